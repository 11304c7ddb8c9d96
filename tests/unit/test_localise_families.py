"""Placeholders of each family of formats, and of none: kept whole, and no text with them."""

from __future__ import annotations

import pytest

from transduce.localise.formats import read_document
from transduce.localise.placeholders import check_placeholders, protect


@pytest.mark.parametrize(
    "placeholder",
    (
        *("%<name>s", "%-10<name>s", "%<price>.2f", "<%= @user.name %>", "<%- x %>", "<sprite=3>"),
        *("$t(key)", "$t(common.name, {count: 1})", "@.lower:(common.tree)", "@:(a.b)", ":Name"),
        *("%0:s", "%1:-10d", "$USER$", "$COUNT_2$", "\\(name)", "\\(user.name(of: x))", "\\C[2]"),
        *("\\N[1]", "\u00a7a", "`the page`_", "`a page <https://x.org>`_", ":ref:`the guide <a>`"),
        *(":py:class:`~a.B`", "[player_name]", "<:custom:12345>", "<@U123|bob>", "%%NAME%%"),
        *("@{x}", "a[b].c[d]", "[[User:$3|$3]]", "{{#if name}}", "<filename/>", "@@VERSION@@"),
        *("x=1&y=2", "<<name>>", "${a:-b}", "#[name]"),
    ),
)
def test_kept_whole(placeholder: str) -> None:
    for text in (placeholder, f"Öffne {placeholder} jetzt.", f"({placeholder}), dann"):
        source = protect(text)
        assert list(source.names.values()) == [placeholder]
        assert source.restored(source.text) == text
        check_placeholders(source, source.text)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("<color=#fc0>den <size=50%>roten</size></color> Hund", 4),
        ("[b]den[/b] [url=https://x.org]Hund[/url]", 4),
        ("[quote]den [i]roten[/i][/quote] Hund", 4),
        ("<filename>a</filename> <interface>Datei</interface>", 4),
        ("<bold>den</bold> <0>Hund</0>", 4),
    ],
)
def test_pairs_of_tags(text: str, names: int) -> None:
    source = protect(text)
    assert len(source.names) == names
    assert len(source.partners(source.text)) == names // 2


@pytest.mark.parametrize(
    "text",
    (
        *("<file>", "git add <pathspec>...", "<your name>", "[OPTION]... [FILE]...", "[so], (x)"),
        *("Kund:innen/Leser:innen", "std::cout", "a <= b", "By %title", "§ 20", "note: x"),
        *("a|b|c", "10 = 5 + 5", "[b] und [c]", "um 12:30:45", "#hashtag", "C# und F#"),
    ),
)
def test_text_is_no_placeholder(text: str) -> None:
    assert protect(text).names == {}


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("访问https://example.com了解更多信息。", "https://example.com"),
        ("請參閱 https://example.com/a，謝謝。", "https://example.com/a"),
        ("詳細はhttps://example.jp/pathをご覧", "https://example.jp/path"),
        ("자세한 내용은 https://example.kr에서", "https://example.kr"),
        ("ดูที่https://example.comได้เลย", "https://example.com"),
        ("ดูที่ www.example.com/xได้", "www.example.com/x"),
        ("Смотри https://example.com/путь/к-файлу.", "https://example.com/путь/к-файлу"),
        ("«https://x.org/é/ü?q=ä»", "https://x.org/é/ü?q=ä"),
        ("راجع https://x.org/a؟", "https://x.org/a"),
        ("https://x.org/हिन्दी।", "https://x.org/हिन्दी"),
        ("siehe https://x.org—jetzt", "https://x.org"),
        ("[see https://x.org/a[1]]", "https://x.org/a[1]"),
        ("(https://x.org/a_(b))", "https://x.org/a_(b)"),
        ("“https://x.org/a”, dann", "https://x.org/a"),
        ("https://x.org/a?b={c}&d=%20#e!", "https://x.org/a?b={c}&d=%20#e"),
        ("ftp://x.org/a。", "ftp://x.org/a"),
    ],
)
def test_ends_of_addresses(text: str, address: str) -> None:
    assert list(protect(text).names.values()) == [address]


@pytest.mark.parametrize(
    ("flag", "text", "names"),
    [
        ("object-pascal-format", "Value %0:s and %1:d, %s", ["%0:s", "%1:d", "%s"]),
        ("ruby-format", "Hello %<name>s, %{b}", ["%<name>s", "%{b}"]),
        ("perl-brace-format", "Hello {name} %s", ["{name}"]),
        ("csharp-format", "Cost {0:C2}, {1,-10}", ["{0:C2}", "{1,-10}"]),
        ("chrome-format", "Hello $USER$, $1", ["$USER$", "$1"]),
        ("c-format", "100% of %s", ["% of", "%s"]),
        ("c-format", "Pre&view of %s", ["&", "%s"]),
        ("python-brace-format", "100% of {x}", ["{x}"]),
        ("rst-text", "|version| of |a b|_, [1]_ a | b | c", ["|version|", "|a b|_", "[1]_"]),
        ("prose-text", "--den Hund. --hund?", []),
        ("", "100% of %s", ["%s"]),
        ("", "--den Hund", ["--den"]),
    ],
)
def test_by_flag(flag: str, text: str, names: list[str]) -> None:
    assert list(protect(text, flags=frozenset([flag])).names.values()) == names


@pytest.mark.parametrize("suffix", ("txt", "srt", "vtt", "html", "md"))
def test_two_hyphens_of_prose_are_a_dash(suffix: str) -> None:
    time = "1\n00:00:01.000 --> 00:00:02.000\n" if suffix in ("srt", "vtt") else ""
    document = read_document(f"a.{suffix}", f"{time}Ich sehe --den Hund.\n".encode())
    for segment in document.segments:
        assert protect(segment.source, flags=segment.flags).names == {}


def test_messages_of_sphinx() -> None:
    content = b'#: ../index.rst:3\nmsgid "In |version|"\nmsgstr ""\n\nmsgid "a |b|"\nmsgstr ""\n'
    first, second = read_document("a.po", content).segments
    assert list(protect(first.source, flags=first.flags).names.values()) == ["|version|"]
    assert protect(second.source, flags=second.flags).names == {}

"""Subtitles: sentences over lines and cues, speakers, tags, widths."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.localised_document import Output, localised_document, word_by_word
from helpers.real_documents import needs_documents, real_documents
from transduce import DecodingOptions
from transduce.errors import DataError
from transduce.localise.document import Document, Record, Span, document_with
from transduce.localise.formats import read_document
from transduce.localise.projection import Links
from transduce.text.scripts import COLUMNS, cut_at, width, wrapped

TIMES = [f"00:00:{n:02},000 --> 00:00:{n:02},900" for n in range(60)]

SRT = """\
1
00:00:01,000 --> 00:00:02,000 X1:1
{\\an8}Ich habe nie gedacht,

2
00:00:02,500 --> 00:00:06,500
{\\an8}dass ich dich
<i>noch einmal</i> wiedersehe.

3
00:00:07,000 --> 00:00:08,000
- Hallo, Max.
- Wie <b>geht</b> es
dir?

4
00:00:08,000 --> 00:00:09,000

5
00:00:09,000 --> 00:00:10,000
<i>Gut.</i>

6
00:00:10,200 --> 00:00:11,000
Und wenn

7
00:00:13,000 --> 00:00:14,000
dann?
"""


def cues(*texts: str) -> bytes:
    """A file of cues, one second after the other."""
    times = (
        f"00:{n // 60:02}:{n % 60:02},000 --> 00:{n // 60:02}:{n % 60:02},900" for n in range(3600)
    )
    blocks = (
        f"{n}\n{time}\n{text}\n"
        for n, (time, text) in enumerate(zip(times, texts, strict=False), 1)
    )
    return "\n".join(blocks).encode()


def span_of(text: str, word: str) -> Span:
    """The place of a word."""
    return Span(text.index(word), text.index(word) + len(word))


def sources(document: Document) -> dict[str, str]:
    return {segment.key: segment.source for segment in document.segments}


def translated(document: Document, **targets: str) -> str:
    return document.with_targets(targets).decode()


def test_sentences_over_lines_and_cues_are_segments() -> None:
    assert sources(read_document("a.srt", SRT.encode())) == {
        "cues 1-2": "Ich habe nie gedacht, dass ich dich <i>noch einmal</i> wiedersehe.",
        "cue 3, speaker 1": "Hallo, Max.",
        "cue 3, speaker 2": "Wie <b>geht</b> es dir?",
        "cue 5": "Gut.",
        "cue 6": "Und wenn",  # two seconds before the next
        "cue 7": "dann?",
    }


def test_a_translation_is_cut_by_characters_and_width() -> None:
    document = read_document("a.srt", SRT.encode())
    target = "I never thought, not in my dreams, that I would ever see <i>your face again</i> here."
    result = translated(document, **{"cues 1-2": target, "cue 3, speaker 2": "How <b>are</b> you?"})
    assert result == SRT.replace(
        "Ich habe nie gedacht,", "I never thought, not in my dreams,"
    ).replace(
        "dass ich dich\n<i>noch einmal</i> wiedersehe.",
        "that I would ever\nsee <i>your face again</i> here.",
    ).replace("Wie <b>geht</b> es\ndir?", "How <b>are</b>\nyou?")


def test_line_breaks_of_a_target_are_those_between_its_cues() -> None:
    document = read_document("a.srt", SRT.encode())
    assert document.segments[0].borders == (len("Ich habe nie gedacht, "),)
    result = translated(document, **{"cues 1-2": "I\nnever thought that I <i>see you</i> again."})
    assert "{\\an8}I\n" in result
    assert "{\\an8}never thought\nthat I <i>see you</i> again.\n" in result


def test_a_translation_is_cut_where_the_alignment_puts_the_border() -> None:
    pytest.importorskip("sentencex")
    words = {"Als": "When", "ich": "I", "ihn": "him,", "sah,": "saw", "ging er.": "he left"}

    def translate(texts: Sequence[str], _: Sequence[DecodingOptions]) -> list[Output]:
        return [Output("When I saw him, he left the house at once.") for _ in texts]

    def align(pairs: Sequence[tuple[str, str]]) -> list[Links]:
        return [
            [(span_of(source, a), span_of(target, b)) for a, b in words.items()]
            for source, target in pairs
        ]

    document = read_document("a.srt", cues("Als ich ihn sah,", "ging er."))
    by_links = localised_document(document, "de", translate, DecodingOptions(), align)
    assert by_links == cues("When I saw him,", "he left the house at once.")
    by_share = localised_document(document, "de", translate, DecodingOptions())
    assert by_share == cues("When I saw him, he left the", "house at once.")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Never gonna give you up", "Yes"),
        ("2", "ich sehe den Hund"),
        ("Ich sehe den Hund", ">> und du"),
        ("Ich sehe den Hund", "[Musik]"),
        ("Ich sehe", "12 Hunde"),
        ("Ich sehe,", "- und du?"),
        ("ich sehe den Hund", "ich sehe den Hund"),
        ('<font color="#fff">Oui</font>', '<font color="#fff">- et toi ?</font>'),
    ],
)
def test_what_begins_a_sentence_is_not_joined(first: str, second: str) -> None:
    assert len(read_document("a.srt", cues(first, second)).segments) == 2


@pytest.mark.parametrize(
    "times",
    [
        "00:00:01,000 -> 00:00:02,000",
        "00:00:01:000 --> 00:00:02:000",
        "00:00:01000 --> 00:00:02000",
        "0:0:1.0-->0:0:2.5 X1:100 Y2:2",
        "-00:00:01,000 --> 00:00:02,000",
        "00:01.000 ––> 00:02.000\t",
        "100:00:01,000  -->  100:00:02,000 align:start",
        "00:00:01,000 → 00:00:02,000",
    ],
)
def test_usual_deviations_of_times(times: str) -> None:
    data = cues("Eins.", "Zwei.", "Drei.").decode().replace(TIMES[1], times)
    document = read_document("a.srt", data.encode())
    assert [segment.source for segment in document.segments] == ["Eins.", "Zwei.", "Drei."]
    assert not document.unread


@pytest.mark.parametrize(
    "block",
    [
        "2\n00:00:19werwer,580 --> 00:00:21,000\nZwei.",
        "2\n00:00:20 --> 00:00:24\nZwei.",
        "2\n00:00:20,000 00:00:24,000\nZwei.",
        "2\nZwei.\n\nNoch eins.",
    ],
)
def test_a_block_without_times_stays_and_is_named(block: str) -> None:
    data = cues("Eins.", "Zwei.", "Drei.").decode()
    data = data.replace(f"2\n{TIMES[1]}\nZwei.", block)
    document = read_document("a.srt", data.encode())
    assert [segment.source for segment in document.segments] == ["Eins.", "Drei."]
    (record,) = document.unread
    assert (record.key, record.source, record.state) == (
        "line 5",
        " ".join(block.split()),
        "unread",
    )
    assert "no line of times such as 00:00:01,000" in record.reason
    result = translated(document, **{"cue 1": "One.", "cue 2": "Three."})
    assert result == data.replace("Eins.", "One.").replace("Drei.", "Three.")
    done = [
        Record(segment.key, segment.source, segment.source, "translated")
        for segment in document.segments
    ]
    made = document_with(document, done)
    assert made.records == [*done, record]


@pytest.mark.parametrize(
    ("name", "data", "line"),
    [
        ("a.srt", "1\n00:00:20 --> 00:00:24\nIch sehe den Hund.\n", "line 1"),
        ("a.srt", "\n[Events]\nDialogue: 0,0:00:01.00,0:00:02.00,,Ich sehe den Hund.\n", "line 2"),
        ("a.vtt", "WEBVTT\n\nIch sehe den Hund.\n", "line 3"),
    ],
)
def test_subtitles_without_times_are_an_error(name: str, data: str, line: str) -> None:
    pytest.importorskip("sentencex")
    document = read_document(name, data.encode())
    with pytest.raises(DataError, match=f"nothing was translated; {line}: no line of times"):
        localised_document(document, "de", lambda texts, _: [], DecodingOptions())


ROLLING = """\
WEBVTT

00:00:00.000 --> 00:00:02.000 align:start
{blank}
{ich}<00:00:00.300><c> {sehe}</c><00:00:01.000><c> {ihn}</c>

00:00:02.000 --> 00:00:02.010
{ich} {sehe} {ihn}
{blank}

00:00:02.010 --> 00:00:04.000
{ich} {sehe} {ihn}
{er}<00:00:02.300><c> {geht}</c>

00:00:04.000 --> 00:00:04.010
{er} {geht}
{blank}
"""


def test_each_line_of_rolling_captions_is_a_segment() -> None:
    words = {name: name for name in ("ich", "sehe", "ihn", "er", "geht")}
    document = read_document("a.vtt", ROLLING.format(blank=" ", **words).encode())
    keys = {"cues 1-4, line 1": "ich sehe ihn", "cues 1-4, line 2": "er geht"}
    assert sources(document) == keys
    assert not document.unread
    result = translated(
        document, **{"cues 1-4, line 1": "I see him", "cues 1-4, line 2": "he goes"}
    )
    english = {"ich": "I", "sehe": "see", "ihn": "him", "er": "he", "geht": "goes"}
    assert result == ROLLING.format(blank=" ", **english)


def test_line_breaks_keep_their_form() -> None:
    data = cues(r"{\an8}Ich sehe\Nden Hund.", "Ja,<br/>das <i>ist</i> gut.", "Eins,\n \nzwei.")
    document = read_document("a.srt", data)
    assert list(sources(document).values()) == [
        "Ich sehe den Hund.",
        "Ja, das <i>ist</i> gut.",
        "Eins, zwei.",
    ]
    targets = {
        "cue 1": "I see the dog.",
        "cue 2": "Yes, this <i>is</i> good.",
        "cue 3": "One, two.",
    }
    assert translated(document, **targets).encode() == cues(
        r"{\an8}I see\Nthe dog.", "Yes,<br/>this <i>is</i> good.", "One,\n \ntwo."
    )


WORDS = st.sampled_from(
    ["ich", "Hund,", "sehe.", "den <i>alten</i>", "你好，", "我", "Wie?", "12", "a-b", "...", "♪"]
)
ROWS = st.lists(WORDS, min_size=1, max_size=6).map(" ".join)


@given(st.lists(st.lists(ROWS, min_size=1, max_size=3).map("\n".join), min_size=1, max_size=12))
def test_identity_in_identity_out(texts: list[str]) -> None:
    for name in ("a.srt", "a.vtt"):
        data = cues(*texts)
        document = read_document(name, data)
        same = {segment.key: segment.source for segment in document.segments}
        assert document.with_targets(same) == data


@given(st.lists(ROWS, min_size=1, max_size=9))
def test_a_cipher_in_each_word_comes_back_in_its_cue(texts: list[str]) -> None:
    pytest.importorskip("sentencex")

    def translate(lines: Sequence[str], _: Sequence[DecodingOptions]) -> list[Output]:
        return [Output(codecs.encode(line, "rot13")) for line in lines]

    data = cues(*(re.sub("<.*?>", "", text) for text in texts))
    document = read_document("a.srt", data)
    result = localised_document(document, "de", translate, DecodingOptions(), word_by_word(r"\S+"))
    assert codecs.encode(result.decode(), "rot13").encode() == data


@needs_documents
@pytest.mark.parametrize("path", real_documents(".srt", ".vtt"), ids=lambda path: path.name)
def test_identity_of_real_subtitles(path: Path) -> None:
    data = path.read_bytes()
    document = read_document(
        path.name, data, None if path.name != "194-subtitle.srt" else "latin-1"
    )
    same = {segment.key: segment.source for segment in document.segments}
    assert document.with_targets(same) == data


def test_tags_over_a_cut_are_closed_and_opened() -> None:
    data = SRT.replace("Ich habe", "<b>Ich</b> <i>habe").replace("noch einmal</i>", "noch</i>")
    data = data.replace("<i>noch", "noch").replace("\n", "\r\n")
    document = read_document("a.srt", data.encode())
    assert document.segments[0].source.startswith("<b>Ich</b> <i>habe nie gedacht, dass ich")
    result = translated(document, **{"cues 1-2": "<b>I</b> <i>never thought, that I see you.</i>"})
    assert "{\\an8}<b>I</b> <i>never thought,</i>\r\n" in result
    assert "{\\an8}<i>that I\r\nsee you.</i>\r\n" in result
    assert result.count("\n") == result.count("\r\n")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("a --> b", "subtitles cannot hold the tags or the -->"),
        ("a <u>b</u>", "subtitles cannot hold the tags or the -->"),
        ("- Well", "begins as words of another speaker"),
    ],
)
def test_what_would_be_read_otherwise_is_refused(target: str, message: str) -> None:
    document = read_document("a.srt", SRT.encode())
    with pytest.raises(DataError, match=f"^cue 7: .*{message}"):
        document.with_targets({"cue 7": target})


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("I see you again.", "lacks <i>"),
        ("I see <i>you</i> <i>again</i>.", "has <i> more often"),
        ("I see </i>you<i>.", "not nested"),
    ],
)
def test_each_tag_comes_once(target: str, message: str) -> None:
    document = read_document("a.srt", SRT.encode())
    with pytest.raises(DataError, match=f"^cues 1-2: .*{message}"):
        document.with_targets({"cues 1-2": target})


def test_vtt_keeps_notes_styles_settings_and_voices() -> None:
    data = (
        "WEBVTT\n\nNOTE a\n00 b\n\nSTYLE\n::cue {}\n\nREGION\nid:x\n\nintro\n"
        "00:01.000 --> 00:02.000 line:0\n<v Roger>Ja &amp; nein, <00:01.500>so &lt;b&gt;"
        "&nbsp;ist es."
        "\n\n"
        "NOTE c\n\n00:03.000 --> 00:04.000\nEnde.\n"
    )
    document = read_document("a.vtt", data.encode())
    assert sources(document) == {
        "cue 1": "Ja &amp; nein, <00:01.500>so &lt;b&gt;\xa0ist es.",
        "cue 2": "Ende.",
    }
    result = translated(document, **{"cue 1": "Yes <00:01.500>& no --> <b>.\xa0", "cue 2": "End."})
    assert result == data.replace(
        "Ja &amp; nein, <00:01.500>so &lt;b&gt;&nbsp;ist es.",
        "Yes <00:01.500>&amp; no --&gt; &lt;b&gt;.",
    ).replace("Ende.", "End.")


def test_chinese_has_no_blanks() -> None:
    data = (
        "1\n00:00:01,000 --> 00:00:02,000\n我从来没有想到，\n\n"
        "2\n00:00:02,100 --> 00:00:03,000\n会再次\n见到你。\n"
    )
    document = read_document("a.srt", data.encode())
    assert sources(document) == {"cues 1-2": "我从来没有想到，会再次见到你。"}
    german = SRT.partition("\n\n3")[0]
    target = "我从来没有想到<i>会再次</i>在这里见到你，我亲爱的老朋友，真是太好了，太好了。"
    result = translated(read_document("a.srt", german.encode()), **{"cues 1-2": target})
    lines = [line.removeprefix("{\\an8}") for line in result.splitlines()]
    chinese = [line for line in lines if not line.isascii()]
    assert "".join(chinese) == target
    assert len(chinese) == 3
    assert all(width(line) <= COLUMNS for line in chinese)
    assert not any(line.startswith(("，", "。")) for line in chinese)


def test_widths_and_shares() -> None:
    assert wrapped("one two", 42) == ["one two"]
    text = "A line that is longer than forty-two columns is cut into like parts."
    assert wrapped(text, 42) == [
        "A line that is longer than forty-two",
        "columns is cut into like parts.",
    ]
    assert wrapped("a " + "b" * 60, 42) == ["a", "b" * 60]
    assert cut_at("Yes.", [0, 1, 2, 3]) == ["Yes.", "", ""]
    assert cut_at("one two three four", [0, 1, 2]) == ["one two", "three four"]
    assert cut_at("Well, one two three", [0, 7, 16]) == ["Well,", "one two three"]
    assert cut_at("Well, one two three", [0, 10, 19]) == ["Well, one", "two three"]  # exactly
    assert cut_at("", [0, 1, 2]) == ["", ""]


def test_a_number_is_no_counter_and_a_blank_line_no_end() -> None:
    data = (
        "00:00:01,000 --> 00:00:02,000\n12\n\nÄpfel.\n\n"
        "8\n00:00:03,000 --> 00:00:04,000\n-5 Grad.\n"
    )
    expected = {"cue 1": "12 Äpfel.", "cue 2": "-5 Grad."}
    assert sources(read_document("a.srt", data.encode())) == expected


@pytest.mark.parametrize(
    "address", ("www.x.com", "https://x.org/a", "me@x.org", "sub.example.com/a")
)
def test_a_cue_that_begins_with_an_address_begins_a_sentence(address: str) -> None:
    cues = (
        "1\n00:00:01,000 --> 00:00:02,000\nI see the dog\n\n"
        f"2\n00:00:02,100 --> 00:00:03,000\n{address} sync by me\n"
    )
    segments = read_document("a.srt", cues.encode()).segments
    assert [segment.source for segment in segments] == ["I see the dog", f"{address} sync by me"]
    lower = cues.replace(f"{address} sync", "and i.e. the cat")
    assert len(read_document("a.srt", lower.encode()).segments) == 1

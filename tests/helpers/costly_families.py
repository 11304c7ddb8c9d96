"""Families of costly inputs: a long name over many children, a header over many entries, two long
halves."""

from __future__ import annotations

from collections.abc import Callable

from helpers.costly import CUE, Costly, html, placeholders, rewritten
from transduce.decoding.options import DecodingOptions
from transduce.localise.checks import Terms, read_entries
from transduce.localise.formats import read_document
from transduce.localise.memory import with_matches
from transduce.localise.translate import similarity
from transduce.metrics.measure import measure


def halves(work: Callable[[str, str], object]) -> Callable[[str], object]:
    """Work on the first and the second half of a text."""
    return lambda text: work(text[: len(text) // 2], text[len(text) // 2 :])


def scores(name: str, language: str = "") -> Callable[[str], object]:
    """A metric of the halves."""
    return halves(lambda a, b: measure([name], [a], [[b]], language))


def terms(text: str) -> object:
    """A glossary above a blank line, and the text below it."""
    entries, _, below = text.partition("\n\n")
    return Terms(read_entries(entries, False)).constraints(below)


def two_words(n: int) -> str:
    """Halves that agree in half of their words."""
    return "a b " * n + "b c " * n


def items_in_ter(text: str) -> object:
    """TER of items of 80 words, of a text that repeats `two_words(40)`."""
    item = two_words(40)
    half = len(item) // 2
    count = len(text) // len(item)
    return measure(["ter"], [item[:half]] * count, [[item[half:]]] * count)


def long_key(opened: str, child: str, closed: str) -> Callable[[int], str]:
    """A name as long as the children below it."""
    return lambda n: opened.replace("NAME", "k" * n) + child * (n // 8) + closed


def numbered(opened: str, child: str, closed: str, part: int = 8) -> Callable[[int], str]:
    """The same with a number in each child."""
    return lambda n: (
        opened.replace("NAME", "k" * n)
        + "".join(child.replace("#", str(i)) for i in range(n // part))
        + closed
    )


RULE = "n*" * 200 + "n"
PO = 'msgid ""\nmsgstr "Plural-Forms: nplurals=2; plural='
TYPE = "<!DOCTYPE resources [NAME]><resources>"

FAMILIES: dict[str, Costly] = {
    "long key of JSON": Costly(
        numbered('{"NAME": {', '"#": "a b",', '"z": 1}}'), rewritten("a.json")
    ),
    "long key of a list": Costly(long_key('{"NAME": [', '"a b",', "1]}"), rewritten("a.json")),
    "long key of YAML": Costly(
        lambda n: "k" * 1000 + ":\n" + "".join(f"  k{i}: a b\n" for i in range(n // 8)),
        rewritten("a.yml"),
    ),
    "long keys of YAML": Costly(
        lambda n: "".join(f"{'k' * 900}{i}:\n  a: b c\n" for i in range(n // 400)),
        rewritten("a.yml"),
    ),
    "nested JSON": Costly(
        lambda n: '{"a b": ' * min(n, 400) + '"c d"' + "}" * min(n, 400) + " " * n,
        rewritten("a.json"),
    ),
    "lists in JSON": Costly(lambda n: "[" + '[["a b"]],' * (n // 4) + "1]", rewritten("a.json")),
    "aliases of YAML": Costly(
        lambda n: "a: &a b c\n" + "".join(f"b{i}: *a\n" for i in range(n // 8)),
        rewritten("a.yml"),
    ),
    "units of TMX": Costly(
        lambda n: (
            '<tmx version="1.4"><header srclang="de"/><body>'
            + '<tu><tuv xml:lang="de"><seg>a b</seg></tuv></tu>' * (n // 8)
            + "</body></tmx>"
        ),
        rewritten("a.tmx", target="en"),
    ),
    "one source in TMX": Costly(
        lambda n: (
            '<tmx version="1.4"><header srclang="de"/><body><tu><tuv xml:lang="de"><seg>'
            + "a <ph>b</ph> " * (n // 8)
            + '</seg></tuv><tuv xml:lang="en"><seg>a</seg></tuv></tu></body></tmx>'
        ),
        rewritten("a.tmx", target="en"),
    ),
    "cues of one time": Costly(lambda n: f"{CUE}a, b\n\n" * (n // 8), rewritten("a.srt")),
    "stop strings": Costly(
        lambda n: "\n".join("a" * (i % 40) + str(i) for i in range(n // 8 + 1)),
        lambda text: DecodingOptions(stop_strings=tuple(text.split("\n"))),
    ),
    "long file of XLIFF": Costly(
        numbered(
            '<xliff version="1.2"><file original="NAME"><body>',
            '<trans-unit id="#"><source>a</source></trans-unit>',
            "</body></file></xliff>",
        ),
        rewritten("a.xlf"),
    ),
    "long array of Android": Costly(
        long_key(
            '<resources><string-array name="NAME">',
            "<item>a b</item>",
            "</string-array></resources>",
        ),
        rewritten("a.xml"),
    ),
    "long message of Fluent": Costly(numbered("NAME = a\n", " .a# = b\n", ""), rewritten("a.ftl")),
    "long identifiers of cues": Costly(
        lambda n: ("1" * 40 + "\n" + CUE[2:] + "a b\n\n") * (n // 8), rewritten("a.srt")
    ),
    "a rule over entries": Costly(
        lambda n: (
            PO + RULE + '\\n"\n\n' + "".join(f'msgid "a{i}"\nmsgstr ""\n\n' for i in range(n // 4))
        ),
        rewritten("a.po"),
    ),
    "flags over entries": Costly(
        lambda n: (
            "#, "
            + "c-format, " * n
            + '\nmsgid "a"\nmsgstr ""\n\n'
            + '#, fuzzy\nmsgid "b"\nmsgstr ""\n\n' * (n // 8)
        ),
        rewritten("a.po"),
    ),
    "entities over elements": Costly(
        lambda n: (
            TYPE.replace("NAME", '<!ENTITY e "a b c d e f">' * 200)
            + "".join(f'<string name="a{i}">&e; b</string>' for i in range(n // 8))
            + "</resources>"
        ),
        rewritten("a.xml"),
    ),
    "anchors of YAML": Costly(
        lambda n: (
            "a: &a [x, y]\n" + "".join(f"b{i}: &b{i} [*a, *a, c d]\n" for i in range(n // 16))
        ),
        rewritten("a.yml"),
    ),
    "columns over rows": Costly(
        lambda n: "source,target," + "x," * n + "\n" + "a b,\n" * n, rewritten("a.csv")
    ),
    "notes of Markdown": Costly(
        lambda n: "".join(f"[a{i}]: b\n" for i in range(n // 8)) + "[a1][a2] " * (n // 8),
        rewritten("a.md"),
    ),
    "emphasis of Markdown": Costly(lambda n: "*a **b " * (n // 4), rewritten("a.md")),
    "tables of HTML": Costly(lambda n: "<table><tr>" + "<td>a b" * n, html),
    "terms over a text": Costly(
        lambda n: (
            "\n".join(f"{'a' * (i % 900 + 1)}{i}\tb" for i in range(n // 400 + 1))
            + "\n\n"
            + "aaa " * n
        ),
        terms,
    ),
    "terms within terms": Costly(
        lambda n: (
            "\n".join(f"{'中' * i}\tb" for i in range(1, 400))
            + "\n\n"
            + ("中" * 399 + "国") * (n // 40)
        ),
        terms,
    ),
    "halves of braces": Costly(lambda n: "{" * n + "}" * n, placeholders),
    "halves of tags": Costly(lambda n: "<p>x" + "<b>" * n + "y " * n, html),
    "halves in CER": Costly(two_words, scores("cer")),
    "halves in PER": Costly(two_words, scores("per")),
    "halves in ROUGE-L": Costly(two_words, scores("rouge-l")),
    "halves in F1": Costly(two_words, scores("f1", "zh")),
    "halves in chrF": Costly(two_words, scores("chrf")),
    "items in TER": Costly(lambda n: two_words(40) * (n // 160 + 1), items_in_ter),
    "halves in similarity": Costly(two_words, halves(similarity)),
    "numbers in a memory": Costly(
        lambda n: "".join(
            f'msgid "a {i} b"\nmsgstr "{"b " + str(i) if i % 2 else ""}"\n\n' for i in range(n // 4)
        ),
        lambda text: with_matches(read_document("a.po", text.encode())),
    ),
}

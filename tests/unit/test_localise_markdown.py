"""Markdown: what is a segment, what stays, and what a translation is written as."""

from __future__ import annotations

import re

import pytest
from markdown_it import MarkdownIt

from transduce.errors import DataError
from transduce.localise.checks import ACCENTED, pseudo_translated
from transduce.localise.document import Document, document_with
from transduce.localise.formats import read_document
from transduce.localise.placeholders import protect
from transduce.localise.projection import detagged

PAGE = """---
title: "The guide"
slug: guide
---

# A *title* {#top}

First line of a paragraph with **bold**
and a [link](https://a.b "t"), `code  x`,
![an image](b.png) & more. Two &nbsp;spaces\\*\x20\x20
after a break[^1].

> [!NOTE]
> Quoted *text
> that* goes on.

- [ ] an item
  that goes on
    1. inner

!!! warning "Look out"
    Inside of it

        code

| Name | Value \\| x |
|------|:---------:|
| `a`  | **one** two |

```sh
ls -l
```

    indented code

<details><summary>More</summary>
</details>

Setext
======

[ref]: https://c.d
See [the site][ref], <b>HTML</b> or <https://e.f>.
"""


def read(text: str) -> Document:
    return read_document("a.md", text.encode())


def written(text: str, *targets: str) -> str:
    document = read(text)
    keys = [segment.key for segment in document.segments]
    return document.with_targets(dict(zip(keys, targets, strict=False))).decode()


def test_segments_of_a_page() -> None:
    sources = [re.sub(r' of="[^"]*"', "", one.source) for one in read(PAGE).segments]
    assert [re.sub(r"(?<=[a-z])\d+", "", source) for source in sources] == [
        "The guide",
        "A <em>title</em>",
        "First line of a paragraph with <strong>bold</strong> and a <a>link</a>, <code/>, "
        "<img>an image</img> &amp; more. Two \xa0spaces*<br/>after a break<code/>.",
        "Quoted <em>text that</em> goes on.",
        *("[ ] an item that goes on", "inner", "Look out", "Inside of it", "Name"),
        *("Value | x", "<strong>one</strong> two", "More", "Setext"),
        "See <a>the site</a>, <b>HTML</b> or <a>https://e.f</a>.",
    ]
    assert not read(PAGE).unread


def test_a_pseudo_translation_has_the_same_markup() -> None:
    letters = {accent: letter for letter, accent in ACCENTED.items()}

    def rendered(content: bytes) -> str:
        page = MarkdownIt("commonmark").enable("table").render(content.decode())
        return re.sub(r"[\[\]\s]", "", page.translate(letters))

    document = read(PAGE)
    made = document_with(document, pseudo_translated(document.segments))
    assert all(record.is_done for record in made.records)
    assert rendered(made.content) == rendered(PAGE.encode())


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_paragraph_is_wrapped_as_it_was(newline: str) -> None:
    text = "> - One two three,\n>   four five six\n>   seven.\n".replace("\n", newline)
    made = written(text, "Eins zwei drei, vier fünf sechs sieben acht neun.")
    expected = "> - Eins zwei\n>   drei, vier\n>   fünf sechs\n>   sieben acht\n>   neun.\n"
    assert made == expected.replace("\n", newline)


@pytest.mark.parametrize(
    ("source", "target", "result"),
    [
        ("a b", "2 * 3 & <b> x_y_z", "2 \\* 3 \\& \\<b\\> x\\_y\\_z"),
        ("a b", "1. a", "1\\. a"),
        ("a b", "- a", "\\- a"),
        ("a b", "*a*", "\\*a\\*"),
        ("a b", "[x](y)", "\\[x\\](y)"),
        ("# a b", "1. a", "# 1. a"),
        ("a `x` b", "c `y`", None),
        ("|a b|\n|-|", "x | y", "|x \\| y|\n|-|"),
        ("a &copy; b", "© ü", "&copy; ü"),
        ("a\\\nb", "x", None),
    ],
)
def test_signs_are_escaped_where_they_would_be_markup(
    source: str, target: str, result: str | None
) -> None:
    if result is None:
        with pytest.raises(DataError, match="line 1, column 1: the translation lacks <"):
            written(source, target)
    else:
        assert written(source, target) == result


def test_tags_may_be_moved_but_must_be_markup() -> None:
    (segment,) = read("See **bold** and `code`.").segments
    start, end, code = segment.tags
    text = f"{code} und {start}fett{end}."
    assert written("See **bold** and `code`.", text) == "`code` und **fett**."
    with pytest.raises(DataError, match="Markdown would not read the translation as it is"):
        written("See **bold** and `code`.", f"{code}a{start} «fett» {end}b")


def test_the_source_changes_nothing() -> None:
    document = read(PAGE)
    assert document.with_targets({one.key: one.source for one in document.segments}) == (
        PAGE.encode()
    )


BEYOND = """Before it.

$$
E = mc^2
$$

\\[
\\int_0^1 x dx
\\]

\\[ a_1 = b \\]

> $$
> a = b
> $$

import Tabs, { Tab } from '@theme/Tabs';
import 'style.css'

export const x = (y) => {
  return "text";
};

Term
Other term
:   Its definition
    on two lines

: Another one

```md
$$
not a formula
```

\\[WIP\\] After it.
"""


def test_blocks_beyond_common_mark_stay_and_are_not_joined() -> None:
    document = read_document("a.md", BEYOND.encode())
    assert not document.unread
    assert [segment.source for segment in document.segments] == [
        *("Before it.", "Term", "Other term", "Its definition on two lines", "Another one"),
        "[WIP] After it.",
    ]
    made = document.with_targets({s.key: f"Zz {s.source}" for s in document.segments}).decode()
    expected = BEYOND.replace("\\[WIP\\]", "[WIP]").split()
    assert made.replace("Zz", "").split() == expected and made.count("Zz") == 6


@pytest.mark.parametrize(
    "text", ("import this book today.", "export settings by hand.", "Note : x")
)
def test_prose_is_no_code(text: str) -> None:
    assert [s.source for s in read_document("a.md", f"{text}\n".encode()).segments] == [text]


@pytest.mark.parametrize(
    ("text", "plain"),
    (
        ("I see  \nthe dog.", "I see the dog."),
        ("I see\\\nthe dog.", "I see the dog."),
        ("I see,<br>the dog.", "I see, the dog."),
        ("I see<img src='a'/>the dog<br>.", "I see the dog."),
        ("我看<br>狗。", "我看狗。"),
        ("<ruby>漢字<rt>かんじ</rt></ruby>を読む。", "漢字を読む。"),
    ),
)
def test_breaks_and_readings_before_the_model(text: str, plain: str) -> None:
    (segment,) = read_document("a.md", text.encode()).segments
    protected = protect(segment.source, segment.tags, segment.markup, segment.flags)
    assert detagged(protected).text == plain


MDX = """---
title: A page
id: page
---
import Tabs from '@theme/Tabs';
import {a,
  b} from './c';

export const x = 3;

# Heading {#id}

Text with {props.name} and <Button kind="a">Press here</Button> now.

<Tabs groupId="os">
  <TabItem value="a" label="Linux">

  Inside *text*.

  </TabItem>
</Tabs>

<Callout type={{a: "b"}} render={() => <b>hi</b>}>
  Words in it.
</Callout>

{/* a comment */}

{items.map((item) => <li key={item.id}>{item.name}</li>)}

export default function Layout({children}) {
  return <div>{children}</div>;
}
"""


def test_expressions_and_components_of_mdx_stay() -> None:
    document = read_document("a.mdx", MDX.encode())
    texts = [re.sub("<[^>]*>", "·", segment.source) for segment in document.segments]
    assert texts == [
        "A page",
        "Heading",
        "Text with · and ·Press here· now.",
        "Inside ·text·.",
        "Words in it.",
    ]
    assert not document.unread
    made = document.with_targets(
        {s.key: s.source.replace("Words in", "Words IN") for s in document.segments}
    )
    assert made.decode() == MDX.replace("Words in", "Words IN")
    (record,) = read_document("a.mdx", b"A text {a < b ? {c: `}`} : 1").unread
    assert record.reason == "its expression is not read"

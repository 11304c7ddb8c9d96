"""reStructuredText: titles with their lines, items, roles and directives."""

from __future__ import annotations

import re

import pytest

from helpers.localised_document import Output, localised_document, word_by_word
from transduce import DecodingOptions
from transduce.errors import DataError
from transduce.localise.document import Document
from transduce.localise.formats import read_document
from transduce.localise.inline import parts_of

pytest.importorskip("sentencex")

RST = r""".. _top:

=====
Title
=====

A paragraph with ``code``, **strong words** and *emphasis*, :ref:`the guide <guide>`,
:ref:`target` and `a link <https://x.org>`_ of |version| [1]_ and name_::

    code stays

Second
------

- One item
  that goes on
- Two \*stars\*

1. First
2. Second

   .. note:: A title here
      and more

      Body of it.

.. image:: a.png
   :alt: A picture
   :width: 10

.. code-block:: python

   def a(): pass

.. versionadded:: 3.5
   The new thing.

.. custom:: thing
   unknown body

.. py:function:: f(x)

   Does a thing.

   :param x: The number
   :type x: int

term
   Its meaning.

>>> a = "no"

==== ====
A    B
==== ====
one  two
==== ====

.. a comment
   of lines

.. |sub| replace:: the text
.. [1] A note.
"""
STAYING = """alt block body code comment custom def function guide https image int lines name no
note of one org param pass png py python ref replace stays sub target thing top two type unknown
version versionadded width"""
"""Words of code, names, comments, and of what is named as unread."""


def read(text: str) -> Document:
    return read_document("a.rst", text.encode())


def raised(document: Document) -> str:
    """The file with its texts in capitals, but for their tags."""
    targets = {
        s.key: "".join(p if is_tag else p.upper() for is_tag, p in parts_of(s.source, s.tags))
        for s in document.segments
    }
    return document.with_targets(targets).decode()


def test_capitals_leave_no_word_but_of_code() -> None:
    document = read(RST)
    assert set(re.findall("[a-z]{2,}", raised(document))) <= {
        *STAYING.split(),
        "stays",
        "body",
        "no",
    }
    assert [record.reason for record in document.unread] == [
        "the directive custom is not known",
        "it is a table of characters",
    ]


def test_a_word_for_each_word_keeps_marks_in_place() -> None:
    def swapped(texts: list[str], _: object) -> list[Output]:
        return [Output(text.swapcase()) for text in texts]

    made = localised_document(
        read(RST), "de", swapped, DecodingOptions(), word_by_word(r"\w+|[^\w\s]")
    ).decode()
    assert made.lower().split() == RST.lower().split()
    assert "**STRONG WORDS** AND *EMPHASIS*, :ref:`THE GUIDE <guide>`" in made


@pytest.mark.parametrize(
    ("target", "length"), [("Überschrift", 11), ("短い題名です", 12), ("A", 5)]
)
def test_lines_of_titles_are_as_wide_as_they(target: str, length: int) -> None:
    document = read("=====\nTitle\n=====\n\ntext\n")
    made = document.with_targets({"line 2, column 1": target}).decode()
    assert made == f"{'=' * length}\n{target}\n{'=' * length}\n\ntext\n"


def test_docutils_reads_the_translation() -> None:
    core = pytest.importorskip("docutils.core")
    text = RST.replace(":ref:", ":sub:").replace(".. py:function:: f(x)", "f")
    text = text.replace(".. versionadded:: 3.5", "b").replace(".. custom::", ".. note::")
    settings = {"report_level": 5, "warning_stream": False}
    before, after = (
        core.publish_string(page, writer="pseudoxml", settings_overrides=settings).decode()
        for page in (text, raised(read(text)))
    )
    names = r"<(\w+)"
    assert re.findall(names, after) == re.findall(names, before)


def test_signs_in_a_translation_are_kept_as_text() -> None:
    document = read("One\n")
    key = document.segments[0].key
    assert document.with_targets({key: "Eins *x* y"}).decode() == "Eins \\*x\\* y\n"
    assert document.with_targets({key: "2 * 3 = a_b"}).decode() == "2 * 3 = a_b\n"
    glued = read("One *two* three\n")
    begin, end = glued.segments[0].tags
    with pytest.raises(DataError, match="would be a mark"):
        glued.with_targets({key: f"eins{begin}zwei{end}drei"})

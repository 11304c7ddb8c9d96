"""Parts of a file that no segment holds: each is a record, whatever the format."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from helpers.message_samples import PO
from transduce.localise.formats import read_document

CASES: dict[str, tuple[str, bytes, str]] = {
    "a line that is none of PO": ("a.po", PO + b"\nmsgid Open\n", "is not a line of PO"),
    "a string without a keyword": ("a.po", b'"Open"\n\n' + PO, "belongs to no keyword"),
    "a string after a broken line": (
        "a.po",
        PO + b'\nmsgid "a"\nmsgstr oops\n"b"\n',
        "belongs to no keyword",
    ),
    "a cue without times": (
        "a.srt",
        b"1\n00:00:01,000 --> 00:00:02,000\nHi\n\n2\n00:00:03 -> 4\nthere\n",
        "no line of times",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_read_is_a_record(case: str) -> None:
    name, content, reason = CASES[case]
    document = read_document(name, content)
    assert [reason in record.reason for record in document.unread].count(True) == 1
    assert all(record.state == "unread" and record.key for record in document.unread)
    assert document.segments, "the rest is read"
    assert document.with_targets({}) == content, "and nothing is lost"


def test_every_reason_is_seen_by_a_test() -> None:
    """A record "unread" whose reason occurs in no test could be lost in silence."""
    folder = Path(str(resources.files("transduce"))) / "localise"
    reasons = {
        reason
        for file in sorted(folder.rglob("*.py"))
        for reason in reasons_in(ast.parse(file.read_text(encoding="utf-8")))
    }
    assert len(reasons) >= 6
    files = sorted(Path(__file__).parent.glob("test_*.py"))
    tests = "\n".join(file.read_text(encoding="utf-8") for file in files)
    assert [reason for reason in sorted(reasons) if reason not in tests] == []


def reasons_in(module: ast.Module) -> Iterator[str]:
    """Beginnings of the reasons of all records "unread" that a module makes."""
    for function in ast.walk(module):
        if not isinstance(function, ast.FunctionDef):
            continue
        named = {
            target.id: node.value
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Record":
                states = [a.value for a in call.args if isinstance(a, ast.Constant)]
                reason = call.args[-1]
                if "unread" in states:
                    reason = (
                        named.get(reason.id, reason) if isinstance(reason, ast.Name) else reason
                    )
                    texts = [n.value for n in ast.walk(reason) if isinstance(n, ast.Constant)]
                    yield from (str(text).strip()[:30] for text in texts[:1])

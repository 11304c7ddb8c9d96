"""The model of a live page in Node, and its explanations beside those of Python."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from helpers.node import run_node
from transduce.explain.explanation import Explanation
from transduce.explain.live import LiveModel, Precision
from transduce.explain.page import ENGINE, page_of
from transduce.tasks.table import TASKS

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")

EXPLAIN = """
const { readFileSync } = require("fs");
const { facts, asked } = JSON.parse(readFileSync("model.json", "utf8"));
const model = new LiveModel(facts, Uint8Array.from(Buffer.from(facts.bytes, "base64")));
const answers = asked.map(([texts, settings]) => published(model.explain(texts, settings)));
process.stdout.write(JSON.stringify(answers));
"""
TOKENIZE = """
const { readFileSync } = require("fs");
const { facts, lines } = JSON.parse(readFileSync("lines.json", "utf8"));
const tokenizer = tokenizerOf(facts);
const answers = lines.map((line) => {
  const ids = tokenizer.encode(line);
  return [ids, tokenizer.decode(ids), ids.map((id) => tokenizer.token(id))];
});
process.stdout.write(JSON.stringify(answers));
"""


def live_of(predictor: Any, name: str) -> LiveModel:
    """The model of a predictor for a page, by the row of its task.  name: of the run."""
    live = TASKS[predictor.recipe.task].live
    assert live is not None
    return live(predictor, name)


def explained(predictor: Any, *parts: str) -> Explanation:
    """The explanation of an input, by the row of its task."""
    explain = TASKS[predictor.recipe.task].explain
    assert explain is not None
    explanation: Explanation = explain(predictor, parts)
    return explanation


def live_html(predictor: Any, *texts: str) -> str:
    """A page that computes with a predictor; its examples are texts."""
    examples = [explained(predictor, text).packed() for text in texts]
    return page_of(examples, live_of(predictor, "run").packed("float32"))


def engine() -> str:
    """The code that computes in a page."""
    folder = resources.files("transduce.explain") / "static"
    return "\n".join((folder / f"{name}.js").read_text(encoding="utf-8") for name in ENGINE)


def live_explanations(
    directory: Path,
    model: LiveModel,
    texts: Sequence[Sequence[str]],
    precision: Precision = "float32",
    **settings: Any,
) -> list[dict[str, Any]]:
    """Objects that `transduce.explain` gives in Node, one for each input."""
    content = {"facts": model.packed(precision), "asked": [[text, settings] for text in texts]}
    (directory / "model.json").write_text(json.dumps(content), encoding="utf-8")
    answers: list[dict[str, Any]] = run_node(directory, engine() + EXPLAIN)
    return answers


def tokenized(directory: Path, facts: dict[str, Any], lines: Sequence[str]) -> list[Any]:
    """Ids, text and tokens of each line, in Node."""
    content = json.dumps({"facts": facts, "lines": list(lines)})
    (directory / "lines.json").write_text(content, encoding="utf-8")
    answers: list[Any] = run_node(directory, engine() + TOKENIZE)
    return answers


def differences(python: Explanation, page: Any) -> list[str]:
    """Paths where an explanation of the page is not that of Python, within 1e-4."""
    expected = json.loads(json.dumps(python.as_dict()))
    return list(_differences(expected, page, ""))


def _differences(expected: Any, shown: Any, path: str) -> Iterator[str]:
    if isinstance(expected, float) and isinstance(shown, int | float):
        if abs(expected - shown) > 1e-4 * max(1.0, abs(expected)):
            yield f"{path}: {expected} is shown as {shown}"
    elif isinstance(expected, list) and isinstance(shown, list) and len(expected) == len(shown):
        for k, pair in enumerate(zip(expected, shown, strict=True)):
            yield from _differences(*pair, f"{path}[{k}]")
    elif isinstance(expected, dict) and isinstance(shown, dict):
        for key in expected.keys() | shown.keys():
            yield from _differences(expected.get(key), shown.get(key), f"{path}.{key}")
    elif expected != shown:
        yield f"{path}: {str(expected)[:60]} is shown as {str(shown)[:60]}"

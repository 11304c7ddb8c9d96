"""The translator of a web page in Node."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import transduce
from helpers.node import run_node
from transduce.engine.build import LEARNER, WASM, InstructionSet, build_refusal, library_path
from transduce.explain.page import static
from transduce.making.learner_page import WORKER, sources, worker_facts
from transduce.runs.exporting import export_run
from transduce.web.page import SCRIPTS

COMPILING = 900
"""Seconds for a test that may be the first to need the modules."""
HAS_ENGINE = all(build_refusal(instructions) is None for instructions in WASM)
needs_wasm = pytest.mark.skipif(not HAS_ENGINE, reason="the engine for pages needs zig")
HAS_LEARNER = all(build_refusal(instructions) is None for instructions in LEARNER)
needs_learner = pytest.mark.skipif(not HAS_LEARNER, reason="the trainer for pages needs zig")
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")

TRANSLATE = """
const { readFileSync } = require("fs");
const { lines, settings } = JSON.parse(readFileSync("lines.json", "utf8"));
const modules = { relaxed: readFileSync("relaxed.wasm"), plain: readFileSync("plain.wasm") };
Translator.load(readFileSync("model.bin"), modules).then((translator) => {
  const answers = lines.map((line) => {
    const answer = translator.translate(line, settings);
    const attended = answer.lines
      .flatMap((line) => line.pieces)
      .map((piece) => translator.attended(piece, piece.hypotheses[0].ids));
    const plain = ({ probability, attention }) => [probability, [...attention]];
    const rows = attended.map((piece) => piece.map(plain));
    return { ...answer, attended: rows };
  });
  process.stdout.write(JSON.stringify(answers));
});
"""


def translated(
    directory: Path,
    file: bytes,
    lines: Sequence[str],
    modules: Sequence[InstructionSet] = WASM,
    **settings: Any,
) -> list[dict[str, Any]]:
    """Answers to lines by a model file in Node.  modules: for Node with relaxed vectors, and
    without them."""
    (directory / "model.bin").write_bytes(file)
    for name, instructions in zip(("relaxed", "plain"), modules, strict=True):
        (directory / f"{name}.wasm").write_bytes(library_path(instructions).read_bytes())
    content = json.dumps({"lines": list(lines), "settings": settings})
    (directory / "lines.json").write_text(content, encoding="utf-8")
    code = "".join(static(*script) for script in SCRIPTS[:-1])
    answers: list[dict[str, Any]] = run_node(directory, code + TRANSLATE)
    return answers


def assert_same_as_engine(path: Path, directory: Path, lines: Sequence[str]) -> None:
    """Check that the model of a run in a page has texts, tokens and scores of the engine; with
    several languages, those of options and of tags."""
    file = export_run(path, directory / "model.transduce", form="npm").read_bytes()
    run = transduce.load(path, engine="native", precision="int8")
    several = run.translator.config.languages
    ways: list[tuple[Any, Sequence[str], dict[str, str]]] = [(run, lines, {})]
    if several is not None:
        near, far = several.sources[1], several.targets[2]
        ways = [
            (run.between(near, far), lines, {"from": near, "to": far}),
            (run, [f"<{near}> <{far}> {line}" for line in lines if line.strip()], {}),
            (run, [f"<{far}> <b> {line}" for line in lines[:2]], {}),
        ]
    for translator, texts, settings in ways:
        answers = translated(directory, file, texts, **settings)
        for answer, right in zip(answers, translator.translate_batch(texts), strict=True):
            assert (answer["text"], answer["tokens"]) == (right.text, list(right.tokens))
            assert answer["score"] == right.score


def write_learner(directory: Path, relaxed: bool = True) -> str:
    """Write the modules of the trainer for Node, and return its script.  relaxed: with relaxed
    vectors, where Node has them."""
    modules = LEARNER if relaxed else (LEARNER[1], LEARNER[1])
    for name, instructions in zip(("relaxed", "plain"), modules, strict=True):
        (directory / f"{name}.wasm").write_bytes(library_path(instructions).read_bytes())
    return "".join(static(*script) for script in (*SCRIPTS[:-1], ("transduce.web", "learner.js")))


def worker_script() -> str:
    """The worker of the page that learns, for Node."""
    parts = {**worker_facts(), "sources": sources()}
    code = "\n".join(sources()[name] for name in WORKER)
    return f"const page = {json.dumps(parts)};\n{code}"

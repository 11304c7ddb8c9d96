"""Tasks of the page that learns, in Node: what its small models learn, and not without a part."""

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.node import run_node
from helpers.web import needs_learner, needs_node, needs_wasm, worker_script

pytestmark = [pytest.mark.system, needs_node, needs_wasm, needs_learner]

PRACTISE = """
(async () => {
  const study = await TaskStudy.open(%s);
  const losses = [];
  while (study.progress() < 1) {
    const { nll, count } = study.learner.pass(study.batch(), { backward: true, seed: 1 });
    study.learner.step(study.progress());
    losses.push(nll / count);
  }
  const loss = mean(losses.slice(-20)), seen = study.look("31415");
  process.stdout.write(JSON.stringify({ loss, share: study.share(), seen }));
})();
"""
DIALS: dict[str, Any] = {
    "task": "copy",
    "layers": 1,
    "heads": 2,
    "width": 32,
    "order": "pre",
    "rate": 1e-2,
    "positions": "sinusoidal",
    "longest": 5,
    "steps": 400,
    "seed": 1,
    "leftOut": [],
}


def practised(directory: Path, **dials: Any) -> Any:
    return run_node(directory, worker_script() + PRACTISE % json.dumps({**DIALS, **dials}))


@pytest.mark.parametrize("task", ["copy", "reverse", "sort"])
def test_a_layer_learns_a_task(tmp_path: Path, task: str) -> None:
    learnt = practised(tmp_path, task=task)
    assert learnt["share"] >= 0.8
    assert learnt["seen"]["wanted"] == {"copy": "31415", "reverse": "51413", "sort": "11345"}[task]
    assert len(learnt["seen"]["maps"]) == 6


def test_without_the_mask_nothing_is_learnt_though_the_loss_is_low(tmp_path: Path) -> None:
    learnt = practised(tmp_path, leftOut=["mask"])
    assert learnt["loss"] < 0.05
    assert learnt["share"] <= 0.05


def test_without_positions_lines_are_bags_of_digits(tmp_path: Path) -> None:
    learnt = practised(tmp_path, leftOut=["positions"])
    assert learnt["loss"] > 0.3
    assert learnt["share"] <= 0.1


def test_agreement_needs_positions(tmp_path: Path) -> None:
    learnt = practised(tmp_path, task="agreement")
    assert learnt["share"] >= 0.9
    assert learnt["seen"]["line"] == "key by cats of jars"  # 31415 is no line of this task
    assert not learnt["seen"]["isTyped"]
    assert learnt["seen"]["wanted"] == "is"
    assert practised(tmp_path, task="agreement", leftOut=["positions"])["share"] <= 0.8


def test_lines_of_agreement_have_one_subject(tmp_path: Path) -> None:
    code = """
    study = Object.assign(new TaskStudy({}), { task: TASKS.agreement });
    const answer = (text) => {
      const ids = study.idsOf(text);
      return study.task.fits(ids) ? WORDS[study.task.answer(ids)[0] - DIGIT] : "";
    };
    const random = randomOf(1);
    const typed = ["key by cats", "keys on cat of dog", "Dogs", "key cats", "key by", "by key"];
    const lines = Array.from({ length: 50 }, () => study.task.line(random, 4));
    const shown = { drawn: lines.every(study.task.fits), typed: typed.map(answer) };
    process.stdout.write(JSON.stringify(shown));
    """
    lines = run_node(tmp_path, worker_script() + code)
    assert lines == {"drawn": True, "typed": ["is", "are", "are", "", "", ""]}


def test_a_decoder_alone_repeats(tmp_path: Path) -> None:
    dials = {"task": "repeat", "layers": 2, "width": 64, "rate": 5e-3, "longest": 4}
    learnt = practised(tmp_path, **dials)
    assert learnt["loss"] < 1.5  # guessing: ln 15
    assert {a["name"].partition(".")[0] for a in learnt["seen"]["maps"]} == {"decoder"}


def test_sums_are_those_of_arithmetic(tmp_path: Path) -> None:
    code = """
    const idsOf = (text) => [...text].map((sign) => (sign === "+" ? PLUS : DIGIT + Number(sign)));
    const sums = ["9+1", "12+345", "999+99"].map((text) => TASKS.add.answer(idsOf(text)));
    process.stdout.write(JSON.stringify(sums.map((ids) => ids.map((id) => id - DIGIT).join(""))));
    """
    assert run_node(tmp_path, worker_script() + code) == ["10", "357", "1098"]

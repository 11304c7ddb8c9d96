"""The page that learns in Firefox, from disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.firefox import firefox, needs_firefox
from helpers.web import COMPILING, needs_learner, needs_wasm
from transduce.making.learner_page import learner_page

pytestmark = [
    pytest.mark.system,
    needs_firefox,
    needs_wasm,
    needs_learner,
    pytest.mark.timeout(COMPILING),
]
ROWS = "\n".join(f"{a}{b}\t{b.upper()} {a.upper()}" for a in "abcdefgh" for b in "ijklmnop")
"""Two letters, and both in upper case the other way round."""
UNTIL = """
  const until = async (test) => {
    for (let value; ; await new Promise((done) => setTimeout(done, 20)))
      if ((value = test()) || !$("#fault").hidden) return value;
  };
  await until(() => typeof page.words === "object");
"""
LEARN = """
  await take(ROWS);
  $("#minutes").value = "0.05";
  $("#train").click();
  await until(() => state.report);
  $("#asked").value = "ai";
  ask();
  await until(() => $("#candidates tbody tr"));
  const saved = await trainer.call("save", { form: "html", account: "" }),
    [fault, told, answer] = ["#fault", "#told p", "#answer"].map((name) => $(name).textContent);
  return { fault, told, answer, step: state.shown.step, saved: saved.length };
"""
PRACTISE = """
  const [side] = sides;
  side.element.querySelector("button.first").click();
  await until(() => side.run()?.share !== undefined && side.run().looks.at(-1)?.step === 50);
  return { fault: $("#fault").textContent, looks: side.run().looks.length };
"""


def test_it_learns_answers_and_saves(tmp_path: Path) -> None:
    file = tmp_path / "learner.html"
    file.write_text(learner_page(), encoding="utf-8")
    profile = tmp_path / "profile"
    profile.mkdir()
    with firefox(profile) as browser:
        browser.open(file.as_uri())
        code = LEARN.replace("ROWS", json.dumps(ROWS))
        learnt = browser.evaluate(f"(async () => {{{UNTIL}{code}}})()")
        assert learnt["fault"] == ""
        assert learnt["step"] > 2
        assert "95 % interval" in learnt["told"]
        assert set(learnt["answer"].split()) <= set("ABCDEFGHIJKLMNOP")
        assert learnt["saved"] > 100_000
        browser.open("about:blank")  # so that the address is more than a change of its fragment
        browser.open(f"{file.as_uri()}#tab=dials&a=task:agreement,steps:50")
        shown = browser.evaluate(f"(async () => {{{UNTIL}{PRACTISE}}})()")
    assert shown["fault"] == ""
    assert shown["looks"] > 1

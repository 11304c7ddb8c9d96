"""Account of a made run: what was done and why, how good it is, and what would help.

Written into the run as `account.json`, and as a page in English and Chinese, `account.html`.
"""

from __future__ import annotations

import dataclasses
import functools
import html
import importlib.resources
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.make.progress import Plan
from transduce.metrics.measure import make_metric
from transduce.runs.loading import load
from transduce.support.html_table import html_table
from transduce.tasks.evaluation import Evaluation
from transduce.training.curves import read_curves
from transduce.training.weights import write_text

EXAMPLES = 5
GOOD, POOR = 65.0, 35.0
"""Scores of an output from which it is close to the reference, and below which it is wrong."""
FLAT = 1.0
"""Points of twice the data that are no gain."""
LEAST_SCORE = 15.0
"""Points of a short training below which it says nothing of the data: some ten need no learning."""
FEW_EPOCHS = 5.0
Row = tuple[str, str, str, float]
"""Source, output, reference and score of an example."""


@functools.cache
def words(language: str) -> Mapping[str, Mapping[str, str]]:
    """Texts of the account in "en" or "zh", by section and name."""
    file = importlib.resources.files(__package__) / "words.json"
    return dict(json.loads(file.read_text(encoding="utf-8"))[language])


@dataclass(frozen=True)
class Account:
    """Facts of a made run.

    scores: with their 95 % intervals.  shares: of test outputs that are close to the reference,
    partly right, and wrong, in percent.  gain: points expected from twice the data; None if
    unmeasured.
    """

    run: str
    kind: str
    interrupted: bool
    facts: Mapping[str, Any]
    scores: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    shares: tuple[int, int, int]
    good: Sequence[Row]
    bad: Sequence[Row]
    curve: Sequence[tuple[int, float]]
    gain: float | None

    def with_curve(self, curve: Sequence[tuple[int, float]]) -> Account:
        """The account with scores of trainings on parts of the data, if they learnt anything."""
        if curve and curve[-1][1] < LEAST_SCORE:
            return self
        gain = round(curve[-1][1] - curve[-2][1], 1) if len(curve) > 1 else None
        return dataclasses.replace(self, curve=curve, gain=gain)

    def sections(self, language: str) -> Iterator[tuple[str, list[str], Sequence[Row]]]:
        """Headings, sentences and examples in "en" or "zh"."""
        headings, harms = words(language)["headings"], words(language)["harms"]
        yield headings["quality"], self.quality(language), ()
        yield headings["good"], [], self.good
        yield headings["bad"], [], self.bad
        yield headings["why"], self.why(language), ()
        yield headings["curve"], [self._curve(language)], ()
        yield headings["helps"], self._helps(language), ()
        yield headings["not"], [harms[self.kind], harms["all"]], ()

    def quality(self, language: str) -> list[str]:
        """Quality in words, and the scores."""
        close, partly, wrong = self.shares
        numbers = {"close": close, "partly": partly, "wrong": wrong, "tested": self.facts["test"]}
        parts = [words(language)["quality"][self.kind].format(**numbers)]
        if self.interrupted:
            parts.append(words(language)["sentences"]["interrupted"])
        if self.facts.get("failure"):
            parts.append(words(language)["sentences"]["failure"])
        for name, score in self.scores.items():
            low, high = self.intervals.get(name, (score, score))
            numbers = {"meaning": words(language)["metrics"].get(name, name), "score": score}
            parts.append(
                words(language)["sentences"]["scores"].format(**numbers, low=low, high=high)
            )
        return parts

    def why(self, language: str) -> list[str]:
        """Steps and choices, with their reasons."""
        templates, faults = words(language)["choices"], words(language)["faults"]
        facts = {**self.facts, "kind": words(language)["kinds"][self.kind]}
        facts["dropped"] = ", ".join(
            faults[name].format(f"{count:,}") for name, count in self.facts["dropped"].items()
        )
        names = ["read", *(["dropped"] if facts["dropped"] else []), "split", "speed", "choice"]
        names += ["order"] if facts["order"] else []
        names += ["tried"] if facts["tried"] else []
        names += ["synthetic"] if facts["synthetic"] else []
        return [templates[name].format(**facts) for name in (*names, "trained")]

    def _curve(self, language: str) -> str:
        if not self.curve:
            return words(language)["sentences"]["no curve"]
        points = ", ".join(f"{pairs:,}: {score:.1f}" for pairs, score in self.curve)
        return f"{points}. {words(language)['sentences']['gain'].format(gain=self.gain)}"

    def _helps(self, language: str) -> list[str]:
        texts = words(language)["helps"]
        helps = []
        gains = self.gain is not None and self.gain >= FLAT
        if self.facts["epochs"] < FEW_EPOCHS or (self.gain is not None and not gains):
            helps.append(texts["time"].format(**self.facts))
        if gains:
            helps.append(texts["more"].format(gain=self.gain))
        if self.kind == "translation" and not self.facts["synthetic"]:
            helps.append(texts["monolingual"])
        if self.facts["dropped_count"] > 0.05 * self.facts["read"]:
            helps.append(texts["clean"])
        return [*helps, texts["recipe"].format(run=self.run)]

    def lines(self, language: str = "en") -> Iterator[str]:
        """The account for a terminal."""
        for heading, sentences, rows in self.sections(language):
            yield heading
            yield from (f"  {sentence}" for sentence in sentences)
            for source, output, reference, _ in rows:
                yield f"  {source}  ->  {output}  ({reference})"


def account_of(run: Path, plan: Plan, interrupted: bool) -> Account:
    """Account of a trained run, evaluated on its test data."""
    assert plan.prepared is not None
    prepared, model = plan.prepared, load(run)
    evaluation = model.evaluate("test")
    each = scores_of_items(evaluation, prepared.facts.kind)
    texts = list(zip(evaluation.sources, evaluation.hypotheses, evaluation.references, strict=True))
    rows = [(s, o, r[0], round(score, 1)) for (s, o, r), score in zip(texts, each, strict=True)]
    rows.sort(key=lambda row: -row[3])
    limits = [score >= GOOD for score in each], [score < POOR for score in each]
    close, wrong = (round(100 * sum(flags) / len(each)) for flags in limits)
    curves = read_curves(run).train
    last: Mapping[str, Any] = curves[-1] if curves else {}
    facts = {
        **dataclasses.asdict(prepared.facts),
        **prepared.counts,
        "read": prepared.read,
        "dropped": dict(prepared.dropped),
        "dropped_count": sum(prepared.dropped.values()),
        "noted": dict(prepared.noted),
        "minutes": plan.request.minutes,
        "speed": round(plan.tokens_per_second),
        "candidate": plan.candidate,
        "failure": plan.failure,
        "order": ", ".join(f"{name} {lost:.1f}" for name, lost in plan.order if lost < math.inf),
        "tried": ", ".join(f"{name} {score:.1f}" for name, score in plan.tried.items()),
        "synthetic": plan.synthetic,
        "parameters": model.info()["parameters"],
        "steps": last.get("step", 0),
        "epochs": 1 + last.get("epoch", 0),
    }
    account = Account(
        str(run),
        prepared.facts.kind,
        interrupted,
        facts,
        {name: round(s, 2) for name, s in evaluation.scores.items() if isinstance(s, float)},
        {name: (round(a, 2), round(b, 2)) for name, (a, b) in evaluation.intervals().items()},
        (close, 100 - close - wrong, wrong),
        _varied(rows),
        _varied([row for row in rows[::-1] if row[3] < GOOD]),
        (),
        None,
    )
    return account.with_curve(plan.curve)


def scores_of_items(evaluation: Evaluation, kind: str) -> list[float]:
    """Score of each output in percent: chrF, letters or symbols that are right, or the label."""
    name = {"translation": "chrf", "spelling": "per", "classification": "accuracy"}[kind]
    name = "cer" if kind == "spelling" and "cer" in evaluation.scores else name
    metric = make_metric(name, evaluation.language)
    rows = metric.statistics(evaluation.hypotheses, evaluation.references)
    scores = [metric.score(row) for row in rows]
    if not metric.higher_is_better:
        scores = [max(100 - score, 0.0) for score in scores]
    if kind == "spelling":  # a word is right or wrong; one slip is "partly"
        scores = [score if score == 100 else min(score, GOOD - 0.1) for score in scores]
    return scores


def _varied(rows: Sequence[Row]) -> list[Row]:
    """The first rows, longer texts before single words."""
    head = rows[: max(len(rows) // 10, EXAMPLES)]
    return sorted(head, key=lambda row: -min(len(row[0]), 80))[:EXAMPLES]


def write_account(account: Account, run: Path) -> None:
    """Write the account into the run, as JSON and as a page."""
    content = json.dumps(dataclasses.asdict(account), ensure_ascii=False, indent=1)
    write_text(run / "account.json", content + "\n")
    write_text(run / "account.html", page_of(account))


def page_of(account: Account) -> str:
    """The account as a page, in English and in Chinese."""
    parts = [_HEAD]
    for language in ("en", "zh"):
        headings = words(language)["headings"]
        columns = [headings[name] for name in ("source", "output", "reference", "score")]
        parts.append(f'<main lang="{language}"><h1>{html.escape(headings["title"])}</h1>')
        for heading, sentences, rows in account.sections(language):
            paragraphs = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in sentences)
            table = html_table(columns, rows) if rows else ""
            parts.append(f"<h2>{html.escape(heading)}</h2>{paragraphs}{table}")
        parts.append("</main>")
    return "\n".join([*parts, "</html>"]) + "\n"


_HEAD = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>transduce make</title>
<style>
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 50rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere }
table { border-collapse: collapse; width: 100%; table-layout: fixed }
th:last-child { width: 3.5rem }
th, td { border-top: 1px solid #8885; padding: .4rem .6rem; text-align: start; vertical-align: top }
main + main { border-top: 4px double #8885; margin-top: 3rem }
</style>"""

"""Account of a made run: what was done and why, how good it is, and the forms it can be taken
along in.

Written into the run as `account.json`, and as a page in English and Chinese, `account.html`.
"""

from __future__ import annotations

import dataclasses
import functools
import html
import importlib.resources
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.engine.pair_shape import unsupported_settings
from transduce.errors import TransduceError
from transduce.interop import ctranslate2
from transduce.loading import Run
from transduce.making.data import GOOD, POOR, Plan, has_learnt, scores_of_items
from transduce.making.plan import MINUTES, START
from transduce.models.config import EncoderDecoderConfig
from transduce.support.tables import html_table
from transduce.tasks.evaluation import Evaluation
from transduce.tasks.translation.translator import Translator
from transduce.training.log import read_curves
from transduce.training.weights import write_text
from transduce.web.page import model_facts


def forms(run: Run) -> Mapping[str, str]:
    """Reason that speaks against each form of a run; empty for a possible one."""
    model: Any = run.recipe.model
    settings = ", ".join(unsupported_settings(model))
    reasons = {"engine": settings and f"it has no {settings}"}
    predictor = run.predictor
    if not isinstance(predictor, Translator) or not isinstance(model, EncoderDecoderConfig):
        return {**reasons, "onnx": reasons["engine"]}
    return {
        **reasons,
        "page": _reason(lambda: model_facts(predictor, "run", "int8")),
        "ctranslate2": _reason(lambda: ctranslate2.check_ctranslate2_expressible(model)),
        "onnx": reasons["engine"],
    }


def _reason(check: Callable[[], object]) -> str:
    """Message of the error that a check raises; empty without one."""
    try:
        check()
    except TransduceError as error:
        return str(error)
    return ""


EXAMPLES = 5
FLAT = 1.0
"""Points of twice the data that are no gain."""
FEW_EPOCHS, MANY_EPOCHS = 5.0, 20.0
"""Epochs below which more time helps, and from which it hardly does."""
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
    partly right, and wrong, in percent.  learnt: better than chance.  gain, gain_interval: points
    of twice the data in short trainings; None if unmeasured.
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
    gain: float | None = None
    gain_interval: tuple[float, float] | None = None
    learnt: bool = True

    def with_curve(self, plan: Plan) -> Account:
        """The account with scores of trainings on parts of the data, if there are any."""
        if not plan.curve or not plan.gain:
            return self
        gain, low, high = plan.gain
        return dataclasses.replace(self, curve=plan.curve, gain=gain, gain_interval=(low, high))

    def sections(self, language: str) -> Iterator[tuple[str, list[str], Sequence[Row]]]:
        """Headings, sentences and examples in "en" or "zh"."""
        headings, harms = words(language)["headings"], words(language)["harms"]
        yield headings["quality"], self.quality(language), ()
        for name, rows in (("good", self.good), ("bad", self.bad)):
            if rows:
                yield headings[name], [], rows
        yield headings["why"], self.why(language), ()
        yield headings["becomes"], self.becomes(language), ()
        yield headings["next"], self.offers(language), ()
        yield headings["curve"], [self._curve(language)], ()
        yield headings["helps"], self._helps(language), ()
        yield headings["not"], [harms[self.kind], harms["all"]], ()

    def quality(self, language: str) -> list[str]:
        """Quality in words, and the scores."""
        close, partly, wrong = self.shares
        numbers = {"close": close, "partly": partly, "wrong": wrong, "tested": self.facts["test"]}
        sentences = words(language)["sentences"]
        parts = [words(language)["quality"][self.kind].format(**numbers)]
        if not self.learnt:
            parts.insert(0, sentences["unlearnt"].format(**self.facts))
        if self.interrupted:
            parts.append(sentences["interrupted"])
        if self.facts.get("failure"):
            parts.append(sentences["failure"])
        for name, score in self.scores.items():
            low, high = self.intervals.get(name, (score, score))
            numbers = {"meaning": words(language)["metrics"].get(name, name), "score": score}
            parts.append(sentences["scores"].format(**numbers, low=low, high=high))
        if self.facts.get("start_gain"):
            gain, low, high = self.facts["start_gain"]
            numbers = {"start": self.facts["start"], "gain": gain, "low": low, "high": high}
            parts.append(sentences["start gain" if gain > 0 else "start loss"].format(**numbers))
        return parts

    def why(self, language: str) -> list[str]:
        """Steps and choices, with their reasons."""
        templates, faults = words(language)["choices"], words(language)["faults"]
        facts = {**self.facts, "kind": words(language)["kinds"][self.kind]}
        facts["dropped"] = ", ".join(
            faults[name].format(f"{count:,}") for name, count in self.facts["dropped"].items()
        )
        facts["columns"] = "; ".join(self.facts["columns"])
        names = ["read", *(name for name in ("columns", "swapped", "dropped") if facts[name])]
        names += ["unexamined"] if facts.get("unexamined") else []
        names += ["split", "speed", "started" if facts.get("start") else "choice"]
        names += ["rejected"] if facts.get("rejected") else []
        names += ["order"] if facts["order"] else []
        names += ["tried"] if facts["tried"] else []
        names += ["synthetic"] if facts["synthetic"] else []
        return [templates[name].format(**facts) for name in (*names, "trained")]

    def _curve(self, language: str) -> str:
        if not self.curve:
            return words(language)["sentences"]["no curve"]
        points = ", ".join(f"{pairs:,}: {score:.1f}" for pairs, score in self.curve)
        assert self.gain is not None and self.gain_interval is not None
        low, high = self.gain_interval
        name = "gain" if low > 0 else "no gain"
        numbers = {"gain": self.gain, "low": low, "high": high}
        return f"{points}. {words(language)['sentences'][name].format(**numbers)}"

    def becomes(self, language: str) -> list[str]:
        """Forms that the model can be taken along in, and those that it cannot, with reasons."""
        names, sentences = words(language)["forms"], words(language)["sentences"]
        forms: Mapping[str, str] = self.facts["forms"]
        able = [names[form] for form, reason in forms.items() if not reason]
        unable = [f"{names[form]} ({reason})" for form, reason in forms.items() if reason]
        return [
            *([sentences["can become"].format(forms="; ".join(able))] if able else []),
            *([sentences["cannot become"].format(forms="; ".join(unable))] if unable else []),
        ]

    def offers(self, language: str) -> list[str]:
        """Next commands, for the forms that are possible."""
        forms, texts = self.facts["forms"], words(language)["offers"]
        names = [form for form in ("page", "ctranslate2", "onnx") if not forms.get(form, "-")]
        return [texts[name].format(run=self.run) for name in ("server", *names)]

    def _helps(self, language: str) -> list[str]:
        texts = words(language)["helps"]
        helps = []
        gains = self.gain_interval is not None and self.gain_interval[0] > 0
        gains = gains and self.gain is not None and self.gain >= FLAT
        few = self.facts["epochs"] < (FEW_EPOCHS if self.learnt else MANY_EPOCHS)
        if few or (self.learnt and self.gain is not None and not gains):
            helps.append(texts["time"].format(**self.facts))
        elif not self.learnt:
            helps.append(texts["check"].format(**self.facts))
        if gains:
            helps.append(texts["more"].format(gain=self.gain))
        if self.kind == "translation" and not self.facts["synthetic"]:
            helps.append(texts["monolingual"])
        if self.facts["dropped_count"] > 0.05 * self.facts["read"]:
            helps.append(texts["clean"])
        return [*helps, texts["recipe"].format(run=self.run)]

    def _repr_html_(self) -> str:
        """The account in English, for a notebook."""
        return _section(self, "en")

    def lines(self, language: str = "en") -> Iterator[str]:
        """The account for a terminal."""
        for heading, sentences, rows in self.sections(language):
            yield heading
            yield from (f"  {sentence}" for sentence in sentences)
            for source, output, reference, _ in rows:
                yield f"  {source}  ->  {output}  ({reference})"


def account_of(model: Run, evaluation: Evaluation, plan: Plan, interrupted: bool) -> Account:
    """Account of a trained run and its outputs on the test data.

    model: the trained run.  evaluation: on the test data.  plan: with its prepared data.
    interrupted: True if training was ended early.
    """
    assert plan.prepared is not None
    prepared, run = plan.prepared, model.path
    kind = prepared.facts.kind
    each = scores_of_items(evaluation, kind)
    learnt = has_learnt(evaluation, kind)
    texts = list(zip(evaluation.sources, evaluation.hypotheses, evaluation.references, strict=True))
    rows = [(s, o, r[0], round(score, 1)) for (s, o, r), score in zip(texts, each, strict=True)]
    rows.sort(key=lambda row: -row[3])
    limits = [score >= GOOD for score in each], [score < POOR for score in each]
    close, wrong = (round(100 * sum(flags) / len(each)) for flags in limits)
    curves = read_curves(run).train
    last: Mapping[str, Any] = curves[-1] if curves else {}
    steps = last.get("step", 0)
    facts = {
        **dataclasses.asdict(prepared.facts),
        **prepared.counts,
        "test": len(evaluation.sources),
        "columns": list(prepared.columns),
        "swapped": prepared.swapped,
        "forms": forms(model),
        "more_minutes": _more(plan.request.minutes),
        "read": prepared.read,
        "dropped": dict(prepared.dropped),
        "dropped_count": sum(prepared.dropped.values()),
        "noted": dict(prepared.noted),
        "unexamined": prepared.noted.get("time", 0),
        "minutes": plan.request.minutes,
        "speed": round(plan.tokens_per_second),
        "candidate": plan.request.start if plan.candidate == START else plan.candidate,
        "start": plan.request.start if plan.candidate == START else "",
        "start_gain": list(plan.start_gain),
        "rejected": plan.request.start if plan.candidate != START else "",
        "failure": plan.failure,
        "order": ", ".join(f"{name} {lost:.1f}" for name, lost in plan.order if lost < math.inf),
        "tried": ", ".join(f"{name} {score:.1f}" for name, score in plan.tried.items()),
        "synthetic": plan.synthetic,
        "parameters": model.info()["parameters"],
        "steps": steps,
        "epochs": 1 + last.get("epoch", 0),
    }
    account = Account(
        str(run),
        kind,
        interrupted,
        facts,
        {name: round(s, 2) for name, s in evaluation.scores.items() if isinstance(s, float)},
        {name: (round(a, 2), round(b, 2)) for name, (a, b) in evaluation.intervals().items()},
        (close, 100 - close - wrong, wrong),
        _varied([row for row in rows if row[3] >= GOOD and row[1].strip()] if learnt else []),
        _varied([row for row in rows[::-1] if row[3] < GOOD]),
        (),
        learnt=learnt,
    )
    return account.with_curve(plan)


def _more(minutes: float) -> int:
    """The next minutes of the forecast that are at least twice as many."""
    return next((more for more in MINUTES if more >= 2 * minutes), round(2 * minutes))


def _varied(rows: Sequence[Row]) -> list[Row]:
    """The first rows, longer texts before single words."""
    head = rows[: max(len(rows) // 10, EXAMPLES)]
    return sorted(head, key=lambda row: -min(len(row[0]), 80))[:EXAMPLES]


def write_account(account: Account, run: Path) -> None:
    """Write the account into the run, as JSON and as a page."""
    content = json.dumps(dataclasses.asdict(account), ensure_ascii=False, indent=1)
    write_text(run / "account.json", content + "\n")
    write_text(run / "account.html", account_page(account))


def account_page(account: Account) -> str:
    """The account as a page, in English and in Chinese."""
    sections = (_section(account, language) for language in ("en", "zh"))
    return "\n".join([_HEAD, *sections, "</html>"]) + "\n"


def _section(account: Account, language: str) -> str:
    headings = words(language)["headings"]
    columns = [headings[name] for name in ("source", "output", "reference", "score")]
    parts = [f'<main lang="{language}"><h1>{html.escape(headings["title"])}</h1>']
    for heading, sentences, rows in account.sections(language):
        paragraphs = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in sentences)
        table = html_table(columns, rows) if rows else ""
        parts.append(f"<h2>{html.escape(heading)}</h2>{paragraphs}{table}")
    return "\n".join([*parts, "</main>"])


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

"""Steps of `transduce make`: data, speed, choice, training, account.

RUN/made/train.jsonl, valid.jsonl, test.jsonl   data without what is surely bad
RUN/made/plan.json                              the request, and the results of the steps
RUN/made/trials/, halves/, reverse/             short trainings, and the reverse model
RUN/recipe.toml                                 the recipe of the run, an ordinary run
"""

import contextlib
import dataclasses
import itertools
import json
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from transduce.data.encoded import has_text
from transduce.data.pairs import write_pairs
from transduce.decoding.options import DecodingOptions
from transduce.engine.pair_shape import unsupported_settings
from transduce.errors import DataError, RunError, SettingError, TrainingError, TransduceError
from transduce.examination.corpora import folded
from transduce.loading import Run, load
from transduce.making.account import Account, account_of, write_account
from transduce.making.collect import Collector
from transduce.making.data import (
    SAMPLE,
    TEST_PAIRS,
    Plan,
    PreparedData,
    Request,
    chance,
    gain_of,
    languages_of_sides,
    mean_score,
    prepare,
    read_prepared_split,
)
from transduce.making.plan import (
    START,
    VALIDATED,
    candidates,
    expected_score,
    interval,
    is_portable,
    preferred,
    ranked,
    recipe_from,
    recipe_of,
    step_cost,
    suited,
)
from transduce.making.trials import machine, tokens_per_second
from transduce.recipes import parse_recipe
from transduce.runs.directory import MADE, SYNTHETIC, locked
from transduce.runs.synthetic import back_translation, make_pairs, with_pairs
from transduce.runs.training import train
from transduce.settings.sections import load_toml, to_dict
from transduce.tasks.evaluation import Evaluation
from transduce.tasks.translation.recipe import TranslationRecipe
from transduce.training.log import BudgetLine, read_curves
from transduce.training.signals import InterruptedTraining
from transduce.training.weight_files import checkpoints_of
from transduce.training.weights import write_text

logger = logging.getLogger("transduce")

PACE_SHARE, TRIAL_SHARE, CURVE_SHARE, REVERSE_SHARE, TEST_SHARE = 0.04, 0.12, 0.12, 0.3, 0.1
"""Shares of the minutes: speed, candidates, halves of the data, back-translation, test."""
TEST_SECONDS, LEAST_SHARE, LEAST_SECONDS = 40.0, 0.5, 5.0
"""Seconds of the test, at most; share of the seconds that are left to train in, at least, without
which the learning curve gives way; and seconds of a training, at least."""
TIMED_TESTS = 16
"""Test items that the time of the test is estimated by."""
CURVE_STEPS = 100
"""Steps of each training of the learning curve, at least."""
TRIAL_MINUTES, CURVE_MINUTES, REVERSE_MINUTES = 20.0, 3.0, 8.0
"""Minutes from which candidates are tried, halves of the data and back-translation are trained."""
CLOSE = 2.0
"""Points that a candidate is expected to lose, at most, to be tried."""
MONOLINGUAL = 2.0
"""Back-translated lines, at most, for each real pair."""
UNKNOWN_STEP = 0.5
"""Seconds of a step of a run to start from, before it is measured."""
CALMER = 0.25
"""Factor of the learning rate after a failure."""
STEPS = 1_000_000


class Maker:
    """The steps of a run."""

    def __init__(self, run: Path, plan: Plan, started: float | None = None) -> None:
        """started: by `time.monotonic`; by default now."""
        self.run, self.plan = run, plan
        self.directory = run / MADE
        self.seconds = 60 * plan.request.minutes
        self._began = (started or time.monotonic()) - plan.seconds
        self.line = BudgetLine(self.seconds, self._began)

    def save(self) -> None:
        """Write the plan, with the time used so far."""
        self.plan.seconds = time.monotonic() - self._began
        content = json.dumps(dataclasses.asdict(self.plan), ensure_ascii=False, indent=1)
        write_text(self.directory / "plan.json", content + "\n")

    @property
    def prepared(self) -> PreparedData:
        """Data of the run."""
        assert self.plan.prepared is not None
        return self.plan.prepared

    def prepare(self, absent: Sequence[Path]) -> None:
        """Read, inspect and split the files.

        absent: directories made for this, innermost first, which an error removes.
        """
        plan, request = self.plan, self.plan.request
        if plan.prepared is not None:
            return
        present = set() if self.directory in absent else {*self.directory.iterdir()}
        logger.info("reading %s", ", ".join(request.files))
        files = [Path(file) for file in request.files]
        try:
            collector = Collector(files, request.target_language, request.columns)
            tested = [Path(file) for file in request.test]
            others = Collector(tested, request.target_language, request.columns, "--test")
            test = [pair for pair in others.pairs() if has_text(pair)] if tested else []
            if tested and not test:
                raise DataError(f"--test {tested[0]}: no pair with text on both sides")
            prepared = prepare(
                collector.pairs(), self.directory, request.minutes, request.task or None, test
            )
            self._check_candidates(prepared)
        except BaseException:
            for path in {*self.directory.iterdir()} - present:
                path.unlink()
            for path in absent:
                with contextlib.suppress(OSError):  # others may have written there meanwhile
                    path.rmdir()
            raise
        facts = prepared.facts
        languages = collector.languages
        if facts.kind == "translation" and not all(languages):
            sample = list(itertools.islice(read_prepared_split(prepared.paths["train"]), SAMPLE))
            detected = languages_of_sides(sample)
            languages = languages[0] or detected[0], languages[1] or detected[1]
        source, target = languages
        facts = dataclasses.replace(facts, source_language=source, target_language=target)
        plan.prepared = dataclasses.replace(prepared, facts=facts, columns=collector.columns)
        left_out = ", ".join(f"{name} {count:,}" for name, count in prepared.dropped.items())
        count = f"{prepared.counts['train']:,}"
        named = f" {source} -> {target}" if source and target else ""
        logger.info("%s%s: %s pairs; left out: %s", facts.kind, named, count, left_out or "none")
        self.save()

    def _check_candidates(self, prepared: PreparedData) -> None:
        """Raise RunError for a run to start from of another task, and SettingError for one, or
        candidates, that cannot go where they are to."""
        facts, request = prepared.facts, self.plan.request
        suited(facts, candidates(facts.kind), request.destination)
        if request.start:
            recipe = recipe_from(facts, request.start, STEPS, prepared.paths, {})
            model: Any = parse_recipe(recipe, str(self.run)).model
            setting = next(unsupported_settings(model), "")
            if request.destination and setting:
                raise SettingError(f"--for {request.destination}: {request.start} has {setting}")

    def measure(self) -> None:
        """Measure the speed, and rank the candidates by the table."""
        plan, facts = self.plan, self.prepared.facts
        speed, seconds = self.directory / "speed", PACE_SHARE * self._left()
        with self.line.inner("measuring the speed"):
            rate, step, rest = tokens_per_second(facts, self.prepared.paths, speed, seconds)
        plan.tokens_per_second, plan.tokens_of_a_step, plan.overhead = rate, step, rest
        plan.order = ranked(facts, rate * self._main_seconds())

    def choose(self) -> None:
        """Measure the speed, and choose a candidate by the table, or by short trainings."""
        plan, facts = self.plan, self.prepared.facts
        if not plan.tokens_per_second:
            self.measure()
            self.save()
        if plan.candidate:
            return
        best, *_ = names = preferred(facts, plan.order, plan.request.destination)
        lost = dict(plan.order)
        close = [
            best,
            *(name for name in names[1:] if lost[name] <= CLOSE or lost[name] == math.inf),
        ]
        if plan.request.start:
            self._try([best, START])
        elif plan.request.minutes >= TRIAL_MINUTES and len(close) > 1 and self._has_time():
            self._try(close[:3])
        else:
            plan.candidate = best
        self.save()
        logger.info("chosen: %s", plan.candidate)

    def _left(self) -> float:
        """Seconds of the request that are left."""
        return self.seconds - (time.monotonic() - self._began)

    def _has_time(self) -> bool:
        """True if half of the time is left, after a slow start or on a busy machine."""
        return self._left() >= LEAST_SHARE * self.seconds

    def _try(self, names: list[str]) -> None:
        """Halve candidates by their validation scores, with twice the time in each round.

        Larger candidates need more time: the points that the table expects a candidate to lose
        by the short training alone are added to its score, and to that of one that can be taken
        along, the interval of the score.  To one that competes with a run to start from, the points
        are added that the table expects of the longer training; that run has to win by more than
        the interval of its score, as two that have learnt nothing are alike or differ by chance.
        """
        rounds = max(len(names) - 1, 1)
        rate, final = self.plan.tokens_per_second, dict(self.plan.order)
        facts, tested = self.prepared.facts, self.prepared.counts.get("valid", VALIDATED)
        is_contest = START in names
        while len(names) > 1:
            seconds = TRIAL_SHARE * self.seconds / rounds / len(names)
            early = dict(ranked(facts, rate * seconds))
            scores = dict.fromkeys(names, -math.inf)
            for name in names:
                with reported(f"candidate {name}"):
                    directory = f"trials/{name}-{len(names)}"
                    scores[name] = self._train_briefly(name, directory, seconds)
                    self.plan.tried[name] = scores[name]
                    if name == START:
                        scores[name] -= interval(scores[name], min(tested, VALIDATED))
                    elif is_contest:
                        works = (rate * self._main_seconds(), rate * seconds)
                        longer, shorter = (expected_score(facts, work)[0] for work in works)
                        scores[name] += max(longer - shorter, 0.0)
                    else:
                        if is_portable(facts, name):
                            scores[name] += interval(scores[name], min(tested, VALIDATED))
                        if math.isfinite(early[name]) and math.isfinite(final[name]):
                            scores[name] += early[name] - final[name]
            names = sorted(names, key=lambda name: -scores[name])[: len(names) // 2]
        self.plan.candidate = names[0]

    def _train_briefly(
        self, candidate: str, name: str, seconds: float, paths: Mapping[str, str] | None = None
    ) -> float:
        """Score of a short training, higher for better ones."""
        settings = self.recipe(candidate, seconds, paths)
        with self.line.inner(f"trying {candidate}"):
            run, outcome = train(settings, self.directory / name, overwrite=True)
        if candidate == START and (rows := read_curves(run).train):
            self.plan.start_seconds = rows[-1]["seconds"] / rows[-1]["step"]
        for metric, sign in (("chrf", 1), ("accuracy", 1), ("wer", -1)):
            if metric in outcome.scores:
                return sign * outcome.scores[metric] + (100 if sign < 0 else 0)
        return -100 * outcome.scores["loss"]

    def recipe(
        self, candidate: str, seconds: float, paths: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Recipe of a candidate for some seconds."""
        facts = self.prepared.facts
        steps = max(int(seconds / self._step_seconds(candidate)), 10)
        training = {
            "steps": STEPS,
            "minutes": max(seconds, 2.0) / 60,
            **machine(facts.kind, candidates(facts.kind)[0] if candidate == START else candidate),
        }
        paths = paths or self.prepared.paths
        if candidate == START:
            return recipe_from(facts, self.plan.request.start, steps, paths, training)
        return recipe_of(facts, candidate, steps, paths, training)

    def _step_seconds(self, candidate: str) -> float:
        """Seconds of a step of a candidate, about."""
        if candidate == START:
            return self.plan.start_seconds or UNKNOWN_STEP
        step = self.plan.tokens_of_a_step / max(self.plan.tokens_per_second, 1.0)
        return max(step * step_cost(self.prepared.facts.kind, candidate), 1e-4)

    def _main_seconds(self) -> float:
        """Seconds for the training of the run, of those that are left."""
        left, later = self._left(), min(TEST_SHARE * self.seconds, TEST_SECONDS)
        request = self.plan.request
        if not self.plan.candidate and (request.minutes >= TRIAL_MINUTES or request.start):
            later += TRIAL_SHARE * self.seconds
        if self.plan.request.minutes >= CURVE_MINUTES and self._has_time():
            later += CURVE_SHARE * self.seconds
        return max(left - later, LEAST_SHARE * left, LEAST_SECONDS)

    def back_translate(self, settings: dict[str, Any]) -> dict[str, Any]:
        """The recipe with back-translated pairs, if there is time for them."""
        plan, request = self.plan, self.plan.request
        facts = self.prepared.facts
        useful = request.monolingual and facts.kind == "translation"
        if not useful or request.minutes < REVERSE_MINUTES or not self._has_time():
            if useful:
                logger.warning("no back-translation: %.1f minutes are left", self._left() / 60)
            return settings
        directory = self.run / SYNTHETIC
        if not plan.synthetic:
            seconds = REVERSE_SHARE / 2 * self.seconds
            reverse = self.recipe(candidates(facts.kind)[0], seconds)
            for split in reverse["data"].values():
                if "source" in split:
                    split["source"], split["target"] = split["target"], split["source"]
            reverse.pop("languages", None)
            with reported("back-translation"):
                with self.line.inner("back-translation"):
                    path, _ = train(reverse, self.directory / "reverse", overwrite=True)
                plan.synthetic = self._translated(load(path), directory, seconds)
            self.save()
        if not plan.synthetic:
            return settings
        recipe = parse_recipe(settings, str(self.run))
        assert isinstance(recipe, TranslationRecipe)
        seconds = self._main_seconds()
        mixed: dict[str, Any] = to_dict(
            with_pairs(recipe, directory / "pairs.jsonl", 1.0, True, "BT")
        )
        mixed["training"]["minutes"] = seconds / 60
        return mixed

    def _translated(self, reverse: Any, directory: Path, seconds: float) -> int:
        """Translate as many lines as the seconds allow; returns how many."""
        job = back_translation([Path(self.plan.request.monolingual)], DecodingOptions(beam_size=1))
        first = list(itertools.islice(job.texts(), 64))
        began = time.monotonic()
        reverse.translate_batch(first, job.options)
        rate = len(first) / max(time.monotonic() - began, 1e-3)
        most = int(min(MONOLINGUAL * self.prepared.counts["train"], rate * seconds))
        paths = [self.prepared.paths[split] for split in ("valid", "test")]
        held_out = {folded(target) for path in paths for _, target in read_prepared_split(path)}
        lines = (line for line in job.texts() if line.strip() and folded(line) not in held_out)
        texts = list(itertools.islice(lines, max(most, 1)))
        job = dataclasses.replace(job, texts=lambda: texts)
        make_pairs(reverse, job, directory, overwrite=True)
        return len(texts)

    def train(self, settings: dict[str, Any], resume: bool) -> None:
        """Train the run.

        A failure, such as a loss that is not finite, ends it with the best weights before; the
        first failure without any starts it again, with a lower learning rate.
        """
        try:
            with self.line.inner("training", logging.WARNING):
                train(settings, self.run, resume=resume)
            self.plan.trained = True
            self.save()
        except TrainingError as error:
            logger.warning("%s", error)
            again = not checkpoints_of(self.run)
            if again and self.plan.failure:
                raise
            self.plan.failure, self.plan.trained = str(error), not again
            self.save()
            if again:
                training = settings["training"]
                training["schedule"]["peak"] *= CALMER
                training["minutes"] = self._main_seconds() / 60
                self.train(settings, False)
            else:
                _end_early(settings, self.run)

    def test(self) -> tuple[Run, Evaluation]:
        """The run and its outputs on the test, without items for which no time is left.

        The time of all is estimated by that of a few; their file is shortened alike.
        """
        plan, model = self.plan, load(self.run)
        path = self.prepared.paths["test"]
        pairs = list(read_prepared_split(path))
        began = time.monotonic()
        model.evaluate(examples=pairs[:TIMED_TESTS])
        each = (time.monotonic() - began) / min(TIMED_TESTS, len(pairs))
        seconds = max(self._left(), TEST_SHARE / 2 * self.seconds)
        fitting = max(int(seconds / max(each, 1e-6)), TEST_PAIRS[0])
        if fitting < len(pairs):
            logger.warning("%d of %d test items, for lack of time", fitting, len(pairs))
            write_pairs(pairs[:fitting], path)
        began = time.monotonic()
        evaluation = model.evaluate("test")
        plan.test_seconds = time.monotonic() - began
        if plan.candidate == START and self._left() > plan.test_seconds:
            with reported(f"the test of {plan.request.start}"):
                self._compare_with_start(model, evaluation)
        return model, evaluation

    def _compare_with_start(self, model: Run, evaluation: Evaluation) -> None:
        """Points over the run to start from as it was, unless that is of another task, such as an
        encoder without labels."""
        start = load(Path(self.plan.request.start))
        if start.recipe.task == model.recipe.task:
            before = start.evaluate(examples=_items(evaluation))
            self.plan.start_gain = gain_of(before, evaluation, self.prepared.facts.kind)

    def halves(self) -> None:
        """Train the cheapest candidate on a quarter, half and all of the data, for the same time
        each, if all fit into the time that is left, and compare the last two on the test."""
        plan, kind = self.plan, self.prepared.facts.kind
        if plan.request.minutes < CURVE_MINUTES or plan.curve:
            return
        lines = Path(self.prepared.paths["train"]).read_bytes().splitlines(keepends=True)
        cheapest = min(candidates(kind), key=lambda name: step_cost(kind, name))
        each = self._left() / 3 - plan.test_seconds
        steps = (each - plan.overhead) / self._step_seconds(cheapest)
        if steps < CURVE_STEPS:
            logger.info("no learning curve: %.0f seconds are left", max(self._left(), 0.0))
            return
        curve, evaluations = [], []
        for part in (4, 2, 1):
            if self._left() < each:
                return
            path = self.directory / f"part{part}.jsonl"
            path.write_bytes(b"".join(lines[::part]))
            paths = {**self.prepared.paths, "train": str(path.resolve())}
            recipe = self.recipe(cheapest, each, paths)
            with self.line.inner("learning curve"):
                run, _ = train(recipe, self.directory / f"halves/{part}", overwrite=True)
            evaluations.append(load(run).evaluate("test"))
            curve.append((len(lines[::part]), mean_score(evaluations[-1], kind)))
        if curve[-1][1] >= chance(evaluations[-1], kind):
            plan.curve, plan.gain = curve, gain_of(evaluations[-2], evaluations[-1], kind)
        self.save()


def make(
    run: Path,
    request: Request | None,
    minutes: float | None = None,
    started: float | None = None,
) -> Account:
    """Make a run, or go on with it if there is no request, and its account.

    minutes: of the whole, more than before, to go on with a finished run.  started: as of `Maker`.

    Raises InterruptedTraining, with the best run so far and its account written if training had
    begun, RunError while another process makes it, and the errors of training.
    """
    _plan_of(run, request)  # before anything is written
    absent = [path for path in (run / MADE, run, *run.parents) if not path.exists()]
    with locked(run / MADE):
        plan = _plan_of(run, request)
        added = 0.0 if minutes is None else plan.extended(minutes, run)
        return _made(Maker(run, plan, started), absent, added)


def _plan_of(run: Path, request: Request | None) -> Plan:
    """The plan of a new run, or that of one to go on with if there is no request."""
    if request is None:
        return Plan.read(run / MADE / "plan.json")
    if (run / "recipe.toml").exists() or (run / MADE / "plan.json").exists():
        raise RunError(f"{run} holds a run already; go on with --resume, or give another --run")
    other = [*run.iterdir()] if run.is_dir() else [run] if run.exists() else []
    if any(file.name not in (MADE, ".lock") for file in other):
        raise RunError(f"{run} exists and is no run; give another --run")
    return Plan(request)


def _made(maker: Maker, absent: Sequence[Path], added: float) -> Account:
    """Account of the steps.  added: minutes of a run that goes on."""
    run, plan = maker.run, maker.plan
    maker.prepare(absent)
    maker.choose()
    begun = (run / "recipe.toml").is_file()
    if begun:
        settings = dict(load_toml(run / "recipe.toml"))
        settings["training"] |= {
            "steps": STEPS,
            "minutes": settings["training"]["minutes"] + added,
        }
    else:
        settings = maker.back_translate(maker.recipe(plan.candidate, maker._main_seconds()))
    stopped: InterruptedTraining | None = None
    if not plan.trained:
        try:
            maker.train(settings, begun)
        except InterruptedTraining as stop:
            stopped = stop
            if not checkpoints_of(run):
                raise
            if not (run / "weights.safetensors").is_file():
                _end_early(settings, run)
    account = account_of(*maker.test(), plan, stopped is not None)
    write_account(account, run)
    if stopped is not None:
        raise stopped
    with reported("the learning curve"):
        maker.halves()
    account = account.with_curve(plan)
    write_account(account, run)
    return account


def _items(evaluation: Evaluation) -> list[tuple[str, str]]:
    """Sources with their first right answers."""
    references = (texts[0] for texts in evaluation.references)
    return list(zip(evaluation.sources, references, strict=True))


@contextlib.contextmanager
def reported(what: str) -> Iterator[None]:
    """Report an error of a step, which is left out."""
    try:
        yield
    except TransduceError as error:
        logger.warning("%s is left out: %s", what, error)


def _end_early(settings: dict[str, Any], run: Path) -> None:
    """End the training with its last checkpoint."""
    step = int(checkpoints_of(run)[-1].name.removeprefix("step-"))
    early = settings | {"training": settings["training"] | {"steps": max(step, 1)}}
    train(early, run, resume=True)

"""A trained model in use, and the ways to get one: `load`, `train`, `average_runs`."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

from transduce.config import to_dict, to_toml
from transduce.decoding.options import DecodingOptions
from transduce.errors import DataError, RunError
from transduce.metrics.measure import make_metric, measure
from transduce.metrics.significance import Comparison, paired_bootstrap
from transduce.run_directory import as_recipe, locked, make_room, model_card, read_recipe
from transduce.tasks import TASKS
from transduce.tasks.recipe import Split, TranslationRecipe, read_split
from transduce.tasks.translation import default_metrics, references_by_source
from transduce.tasks.translator import Alignment, Translation
from transduce.training.checkpoints import best_scores_of, checkpoints_of, served_weights
from transduce.training.trainer import Outcome
from transduce.training.weights import average, read_tensors, write_tensors, write_text

STREAM_TEXTS = 512
"""Texts that are translated together when they come from an iterable."""


@dataclass(frozen=True)
class Evaluation:
    """A model's outputs on a test set, and what they are worth."""

    scores: Mapping[str, float | str]
    """Percentages by name, signatures beside them."""
    sources: Sequence[str]
    hypotheses: Sequence[str]
    references: Sequence[Sequence[str]]

    def against(self, other: Sequence[str], language: str = "") -> dict[str, Comparison]:
        """Paired bootstrap of these outputs over `other` ones for the same sources, by metric."""
        if len(other) != len(self.hypotheses):
            raise DataError(
                f"there are {len(other)} outputs to compare with, but {len(self.hypotheses)} "
                "were evaluated; both need one line per item"
            )
        names = [name for name, value in self.scores.items() if isinstance(value, float)]
        return {
            name: paired_bootstrap(
                make_metric(name, language), other, self.hypotheses, self.references
            )
            for name in names
        }


class Run:
    """A trained model, loaded from its run directory: `transduce.load(path)`."""

    def __init__(self, path: Path, device: str = "auto") -> None:
        self.path = path
        self.recipe = read_recipe(path)
        self._translator = TASKS[self.recipe.task].load(self.recipe, path, device)
        self.model = self._translator.model

    def __repr__(self) -> str:
        return f"<transduce run {self.path}>"

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, texts: str, options: DecodingOptions | None = None
    ) -> Translation: ...
    @overload
    def __call__(
        self, texts: Iterable[str], options: DecodingOptions | None = None
    ) -> Iterator[Translation]: ...
    def __call__(
        self, texts: str | Iterable[str], options: DecodingOptions | None = None
    ) -> Translation | Iterator[Translation]:
        """The same as `translate`."""
        return self.translate(texts, options)

    @overload
    def translate(  # type: ignore[overload-overlap]
        self, texts: str, options: DecodingOptions | None = None
    ) -> Translation: ...
    @overload
    def translate(
        self, texts: Iterable[str], options: DecodingOptions | None = None
    ) -> Iterator[Translation]: ...
    def translate(
        self, texts: str | Iterable[str], options: DecodingOptions | None = None
    ) -> Translation | Iterator[Translation]:
        """The translation of one text, or, lazily, of each text of an iterable, in order.

        options: how to decode; by default as the recipe says.
        """
        if isinstance(texts, str):
            return self._translator.translate([texts], options)[0]
        return self._stream(texts, options)

    def translate_batch(
        self, texts: Sequence[str], options: DecodingOptions | None = None, first: int = 0
    ) -> list[Translation]:
        """Translations of texts that are at hand; `first` is the number of the first of them in
        a longer input, which messages and the random streams of sampling go by."""
        return self._translator.translate(texts, options, first)

    def score(self, pairs: Iterable[tuple[str, str]]) -> Iterator[float]:
        """Natural log-probability of each given (source, target) pair."""
        return self._translator.score(pairs)

    def align(self, source: str, target: str | None = None, layer: int = -1) -> Alignment:
        """How the target (by default the model's own) looked at the source, in one layer."""
        return self._translator.align(source, target, layer)

    def evaluate(
        self,
        split: Split | None = "test",
        pairs: Iterable[tuple[str, str]] | None = None,
        options: DecodingOptions | None = None,
    ) -> Evaluation:
        """Translate held-out sources and measure the outputs against their references.

        pairs: (source, reference) to use instead of a split of the recipe's data.
        """
        config = self.recipe.evaluation
        if pairs is None:
            pairs = read_split(self.recipe.data, split or "test")
        sources, references = references_by_source(pairs, self._translator.target)
        if not sources:
            raise DataError("there are no pairs to evaluate on")
        hypotheses = [t.text for t in self.translate(sources, options)]
        names = config.metrics or default_metrics(self._translator.target)
        scores = measure(names, hypotheses, references, config.target_language)
        return Evaluation(scores, sources, hypotheses, references)

    def info(self) -> dict[str, Any]:
        """What this run is: sizes, best validation scores, checkpoints, settings."""
        parameters = {p.data_ptr(): p.numel() for p in self.model.parameters()}
        return {
            "run": str(self.path),
            "task": self.recipe.task,
            "parameters": sum(parameters.values()),
            "source_vocabulary": self._translator.source.size,
            "target_vocabulary": self._translator.target.size,
            "validation": best_scores_of(self.path),
            "checkpoints": [path.name for path in checkpoints_of(self.path)],
            "recipe": to_dict(self.recipe),
        }

    def _stream(
        self, texts: Iterable[str], options: DecodingOptions | None
    ) -> Iterator[Translation]:
        rest, first = iter(texts), 0
        while chunk := list(itertools.islice(rest, STREAM_TEXTS)):
            yield from self.translate_batch(chunk, options, first)
            first += len(chunk)


def load(path: str | os.PathLike[str], device: str = "auto") -> Run:
    """Load a run directory for use.  Raises RunError when it is missing, damaged or too new."""
    return Run(Path(path), device)


def train(
    recipe: str | os.PathLike[str] | Mapping[str, Any] | TranslationRecipe,
    run: str | os.PathLike[str] | None = None,
    overrides: Iterable[str] = (),
    resume: bool = False,
    overwrite: bool = False,
) -> tuple[Path, Outcome]:
    """Train from a recipe: the path of a TOML file, its settings, or the parsed recipe itself.

    run: directory to make, by default `runs/` and the recipe's name.  overrides: `a.b=value`.
    resume: go on where an interrupted run stopped.  overwrite: delete what is in `run`.
    Returns the run directory and how training ended; use it with `load`.
    """
    parsed, name = as_recipe(recipe, overrides)
    path = Path(run) if run is not None else Path("runs") / name
    make_room(path, parsed, resume, overwrite)
    with locked(path):
        write_text(path / "recipe.toml", to_toml(parsed))
        outcome = TASKS[parsed.task].train(parsed, path, resume)
        write_text(path / "README.md", model_card(path, parsed, outcome))
    return path, outcome


def average_runs(paths: Sequence[Path], output: Path, last: int = 0) -> None:
    """Write a run with the mean weights of several runs, or of the last checkpoints of one.

    Raises RunError when the models differ or `output` exists.
    """
    if output.exists():
        raise RunError(f"{output} exists; give another --output")
    recipes = [read_recipe(path) for path in paths]
    files = [path / "weights.safetensors" for path in paths]
    if last:
        files = [served_weights(c) for path in paths for c in checkpoints_of(path)[-last:]]
    if len(files) < 2:
        raise RunError(
            "averaging needs at least two sets of weights; give more runs, or --last N for "
            "the last N checkpoints of a run"
        )
    recipe = recipes[0]
    for path, other_recipe in zip(paths[1:], recipes[1:], strict=True):
        if other_recipe.model != recipe.model:
            raise RunError(f"{path} and {paths[0]} have different models; they cannot be averaged")
        for tokenizer in paths[0].glob("*tokenizer.*"):
            other = path / tokenizer.name
            if not other.is_file() or other.read_bytes() != tokenizer.read_bytes():
                raise RunError(
                    f"{path} and {paths[0]} have different vocabularies; they cannot be averaged"
                )
    mean = average(read_tensors(file) for file in files)
    output.mkdir(parents=True)
    for file in paths[0].glob("*tokenizer.*"):
        (output / file.name).write_bytes(file.read_bytes())
    write_text(output / "recipe.toml", to_toml(recipe))
    made = ", ".join(str(file) for file in files)
    write_text(output / "README.md", f"# {output.name}\n\nThe mean of the weights in {made}.\n")
    write_tensors(output / "weights.safetensors", mean)

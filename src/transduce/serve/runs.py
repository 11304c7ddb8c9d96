"""Runs to serve: name, task and languages, read from their recipes without loading a model."""

import logging
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transduce.errors import NEEDS_TORCH, DataError, SettingError, TransduceError, naming
from transduce.recipes import recipe_file
from transduce.settings.sections import load_toml
from transduce.support.files import awaited_lock
from transduce.text.languages import canonical, name_of

logger = logging.getLogger("transduce")

CODE = re.compile(r"[A-Za-z]{2,16}([-_][A-Za-z0-9]{1,16}){0,4}")
MOST_OF_A_CODE = 90
"""Characters."""


def base_language(code: str) -> str:
    """The language of a code, without script and region."""
    return code.partition("-")[0]


class Languages:
    """Pairs that the runs translate directly, and those reached through a pivot.

    pairs: (source, target), canonical codes.  pivots: languages that may stand between two runs;
    raises SettingError for those of no run.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]], pivots: Sequence[str] = ()) -> None:
        self.pairs = frozenset(pairs)
        self._pivots = tuple(map(canonical, pivots))
        codes = {code for pair in self.pairs for code in pair}
        self.codes = tuple(sorted(codes, key=lambda code: (code != "en", name_of(code), code)))
        """All languages: English first, then by name."""
        for code in self._pivots:
            if code not in codes:
                known = ", ".join(self.codes) or "no language"
                raise SettingError(f"--pivot {code}: no run has this language; they have {known}")
            sides = [sum(pair[side] == code for pair in self.pairs) for side in (0, 1)]
            if not all(sides):
                other = "into" if sides[0] else "from"
                logger.warning("--pivot %s has no effect: no run translates %s it", code, other)
        sources = {source for source, _ in self.pairs}
        self.sources = tuple(code for code in self.codes if code in sources)

    def resolve(self, code: str) -> str | None:
        """The served language for a code: itself, its base, or its only regional variant."""
        if len(code) > MOST_OF_A_CODE:
            return None
        code = canonical(code)
        for candidate in (code, canonical(base_language(code))):
            if candidate in self.codes:
                return candidate
        alike = [other for other in self.codes if base_language(other) == base_language(code)]
        return alike[0] if len(alike) == 1 else None

    def path(self, source: str, target: str) -> list[tuple[str, str]] | None:
        """Pairs to translate by, in turn; empty for equal languages, None if there is
        no path."""
        if source == target:
            return []
        if (source, target) in self.pairs:
            return [(source, target)]
        for pivot in self._pivots:
            steps = [(source, pivot), (pivot, target)]
            if self.pairs.issuperset(steps):
                return steps
        return None

    def targets(self, source: str) -> list[str]:
        """Languages that a source can be translated into, itself included."""
        return [target for target in self.codes if self.path(source, target) is not None]


_CODE = r"[a-z]+(?:[-_](?:[A-Z][a-z]{3}|[A-Z]{2}|[0-9]{3}))*"
_PAIR = re.compile(rf"({_CODE})-({_CODE})=(.+)")


@dataclass(frozen=True)
class RunSpec:
    """A run directory and its use."""

    name: str
    path: Path
    task: str
    pairs: tuple[tuple[str, str], ...] = ()
    """(source, target) codes; empty for runs of other tasks, or without languages."""
    tags: str = ""
    """Tags before each source that select languages, as in `languages.tags`; "" for none."""

    codes: Mapping[str, str] = field(default_factory=dict)
    """Target languages as the recipe spells them, by canonical codes."""
    in_folder: bool = False
    """Part of a folder of models."""
    origin: Path | None = None
    """Model that the run is made of when it is first loaded."""

    def tag(self, source: str, target: str) -> str:
        """Text before each source that selects the languages, with its space."""
        tags = {"target": f"<{self.codes.get(target, target)}> ", "pair": f"<{source}> <{target}> "}
        return tags.get(self.tags, "")


IMPORTED = ".transduce"
"""Folder in a folder of models for the runs that are made of its models of Firefox and Argos."""


def _spec_in(folder: Path, imported: Path) -> RunSpec | None:
    """Specification of a folder in a folder of models; None if it is neither run nor model.

    A model that names its languages is imported when it is first loaded, another one now.  Raises
    TransduceError and OSError.
    """
    run = imported / folder.name
    for path in (folder, run):
        if (path / "recipe.toml").is_file():
            return spec_of(path, in_folder=True)
    if find_spec("torch") is None:
        raise SettingError(f"the import of {folder} {NEEDS_TORCH}")
    from transduce.interop.model_names import marian_model_file, model_folder, named_languages
    from transduce.interop.packed import packed_files

    if not (model_folder(folder) or marian_model_file(folder) or packed_files(folder)):
        logger.warning("leaving out %s, which is no run and no model of Firefox or Argos", folder)
        return None
    pair = named_languages(folder)
    if pair is None:
        make_run(folder, run)
        return spec_of(run, in_folder=True)
    codes = {pair[1]: pair[1]}
    return RunSpec("-".join(pair), run, "translation", (pair,), "", codes, True, folder)


def make_run(model: Path, run: Path) -> None:
    """Import a model into a folder of models, once, in a process of its own, whose memory is free
    again afterwards.  Raises DataError with its message, and OSError."""
    run.parent.mkdir(exist_ok=True)
    with awaited_lock(run.with_name(f"{run.name}.lock")):
        if (run / "recipe.toml").is_file():
            return
        logger.info("importing %s as %s", model, run)
        command = [sys.executable, "-m", "transduce", "import", str(model), str(run)]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace")
    if done.returncode:
        raise DataError(done.stderr.strip().rpartition("\n")[2] or f"{model} cannot be imported")


def read_specs(paths: Sequence[Path], pairs: Sequence[str] = ()) -> list[RunSpec]:
    """Specifications of runs.

    pairs: such as "de-en=RUN", for runs whose recipe names no languages.  Raises SettingError for
    two runs of one pair, RunError for a directory that is none.
    """
    several = (_specs_in(path) for path in paths)
    specs = [spec for each in several for spec in each]
    specs += [_paired(text) for text in pairs]
    if not specs:
        raise SettingError("there is nothing to serve; give a RUN or --pair de-en=RUN")
    owners: dict[tuple[str, str], Path] = {}
    names: dict[str, Path] = {}
    for spec in specs:
        for pair in spec.pairs:
            if pair in owners:
                raise SettingError(
                    f"{owners[pair]} and {spec.path} both translate {pair[0]} to {pair[1]}; "
                    "remove one of them"
                )
            owners[pair] = spec.path
        if spec.name in names:
            raise SettingError(
                f"{names[spec.name]} and {spec.path} would both be served as {spec.name!r}; rename "
                "one of the directories"
            )
        names[spec.name] = spec.path
    return specs


def _specs_in(path: Path) -> Iterator[RunSpec]:
    """Specifications of a run, or of those in a folder of models, in order; a broken one there is
    left out with a warning.  Raises SettingError for a folder without any."""
    if (path / "recipe.toml").is_file() or not path.is_dir():
        yield spec_of(path)
        return
    n_models = 0
    for folder in sorted(f for f in path.iterdir() if f.is_dir() and f.name != IMPORTED):
        try:
            spec = _spec_in(folder, path / IMPORTED)
            if spec is None:
                continue
            yield spec
        except (TransduceError, OSError) as error:
            logger.warning("leaving out a run: %s", error)
        n_models += 1
    if not n_models:
        raise SettingError(
            f"{path} has no recipe.toml, and no folder in it is a run or a model; give a run "
            "directory, or a folder of runs and of models of Firefox or Argos, a folder each"
        )


def run_bytes(run: Path) -> int:
    """Bytes of the weights of a run."""
    return sum(file.stat().st_size for file in run.glob("*.safetensors"))


def spec_of(path: Path, in_folder: bool = False) -> RunSpec:
    """Specification of a run directory, by its recipe.  in_folder: of models."""
    settings = load_toml(recipe_file(path))
    task = str(settings.get("task", ""))
    with naming(recipe_file(path), SettingError):
        sources, targets = served_languages(settings)
    pairs = [(s, t) for s in sources for t in targets if canonical(s) != canonical(t)]
    named = str(settings.get("languages", {}).get("tags", "target"))
    tags = named if named == "pair" or len(targets) > 1 else ""
    codes = {canonical(code): code for code in targets}
    canonical_pairs = tuple((canonical(s), canonical(t)) for s, t in pairs)
    name = "-".join(canonical_pairs[0]) if len(pairs) == 1 else path.resolve().name
    return RunSpec(name, path, task, canonical_pairs, tags, codes, in_folder)


def _paired(text: str) -> RunSpec:
    match = _PAIR.fullmatch(text)
    if match is None:
        raise SettingError(f"--pair {text!r}: write it like de-en=RUN or zh-Hant-pt-BR=RUN")
    source, target, path = match[1], match[2], Path(match[3])
    task = str(load_toml(recipe_file(path)).get("task", ""))
    if task != "translation":
        raise SettingError(f"--pair {text!r}: {path} is a run of the task {task!r}; give it as RUN")
    named = canonical(source), canonical(target)
    return RunSpec("-".join(named), path, task, (named,))


def served_languages(settings: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Source and target languages that a recipe names.  Raises SettingError."""
    named, measuring = (settings.get(name, {}) for name in ("languages", "evaluation"))
    if not (isinstance(named, Mapping) and isinstance(measuring, Mapping)):
        raise SettingError("languages and evaluation are sections, not values")
    measured = measuring.get("target_language", "")
    return _codes(named.get("source", ())), _codes(named.get("target", ()) or measured or ())


def _codes(value: object) -> tuple[str, ...]:
    """One code, or several.  Raises SettingError for anything else."""
    codes = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(code, str) for code in codes):
        raise SettingError(f"languages are codes such as 'de', not {value!r:.80}")
    return tuple(codes)

"""Synthetic pairs: texts and a run's outputs, as training data of another run.

    RUN/synthetic/
        pairs.jsonl                 an object with "source" and "target" per line
        pairs.provenance.json       their origin
        shards/000000.jsonl …       finished parts; deleted once `pairs.jsonl` is complete

Every file is complete or absent, so the same call resumes after any interruption.  Sequence-level
knowledge distillation (Kim and Rush 2016) and back-translation (Sennrich et al. 2016) differ in the
side of the given texts, and in the use of the real pairs.
"""

import dataclasses
import datetime
import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from transduce.data.pairs import HubDataset
from transduce.data.text_files import read_lines
from transduce.decoding.options import DecodingOptions, decisive
from transduce.errors import DataError, RunError, SettingError, writing
from transduce.runs.directory import locked, vocabularies_of
from transduce.runs.run import LoadedRun
from transduce.settings.sections import parse, to_dict
from transduce.support.files import whole_file
from transduce.support.version import __version__
from transduce.support.work import chunks
from transduce.tasks.provenance import read_provenance, write_provenance
from transduce.tasks.translation.recipe import Corpus, DataConfig, TranslationRecipe, read_pairs_of
from transduce.training.log import ProgressCounter
from transduce.training.weight_files import check_written_to
from transduce.training.weights import sha256_of, write_text

logger = logging.getLogger("transduce")

PAIRS = "pairs.jsonl"
SHARDS = "shards"
SHARD_TEXTS = 1024
"""Texts translated together, sorted by length, and written together."""
SAME_WORK = (
    "weights_sha256",
    "runs_beside_sha256",
    "vocabularies_sha256",
    "precision",
    "engine",
    "decoding",
    "made_side",
    "shard_texts",
)
"""Parts of the provenance that must not change for shards to be reused, besides the texts."""


@dataclass(frozen=True)
class GenerationJob:
    """A job: texts to translate, decoding options, the side of the pairs that outputs become."""

    made_by: str
    """Command, for the provenance."""
    texts: Callable[[], Iterable[str]]
    """Reader of the texts; called once to count them and once to translate them."""
    files: tuple[str, ...]
    """Their files, for the provenance."""
    made_side: Literal["source", "target"]
    """Side of the outputs; the texts are the other side."""
    options: DecodingOptions

    def pair(self, text: str, output: str) -> dict[str, str]:
        """A text and its translation as a pair."""
        source, target = (output, text) if self.made_side == "source" else (text, output)
        return {"source": source, "target": target}


def distillation(
    data: DataConfig, options: DecodingOptions, monolingual: Sequence[Path] = ()
) -> GenerationJob:
    """Job of a teacher: the sources of training data, or else lines of the source language.

    Untranslated sources transfer the joint knowledge of several teachers to one model (Sun et al.
    2019, with words without a pronunciation).

    options: of decoding.  monolingual: files of lines in the source language.
    """
    if monolingual:
        return GenerationJob("transduce distil", *_lines_of(monolingual), "target", options)
    return GenerationJob(
        "transduce distil",
        lambda: (source for source, _ in read_pairs_of(data, "train")),
        tuple(_named_files(data)),
        "target",
        options,
    )


def back_translation(monolingual: Sequence[Path], options: DecodingOptions) -> GenerationJob:
    """Job with lines of the target language, translated by a run of the opposite direction."""
    return GenerationJob("transduce backtranslate", *_lines_of(monolingual), "source", options)


def with_pairs(
    recipe: TranslationRecipe, pairs: Path, weight: float, keep: bool, tag: str = ""
) -> TranslationRecipe:
    """A recipe that trains on synthetic pairs too, or, without `keep`, on them alone.

    tag: put before their sources, so that the model can distinguish them (Caswell et al. 2019).

    Pairs held out by the recipe for validation and test stay the same.  Raises SettingError for an
    invalid weight or tag.
    """
    corpus = {"pairs": {"kind": "jsonl", "path": str(pairs), "tag": tag}, "weight": weight}
    added = parse(Corpus, corpus, "synthetic pairs")
    data = recipe.data
    if keep:
        data = dataclasses.replace(data, mix=(*data.mix, added))
    else:
        data = dataclasses.replace(data, train_weight=0.0, mix=(added,))
    return dataclasses.replace(recipe, data=data)


def make_pairs(
    run: LoadedRun,
    job: GenerationJob,
    directory: Path,
    overwrite: bool = False,
    weight: float = 1.0,
) -> Path:
    """Translate the texts of a job into a file of pairs in `directory`; returns that file.

    Resumes the same job, and does nothing if it is finished.  overwrite: delete the output of
    another job.  weight: of the pairs, if an epoch consists of them alone.  Raises RunError for the
    output of another job, DataError for unreadable texts, SettingError for a weight that gives an
    empty epoch.
    """
    pairs = directory / PAIRS
    check_written_to(directory)
    with locked(directory):
        facts = _facts(run, job)
        if weight * facts["texts"] < 1:
            raise SettingError(
                f"--weight {weight:g} leaves an epoch with none of the {facts['texts']} pairs; "
                "raise it"
            )
        facts["begun"] = _make_place(pairs, facts, overwrite)
        if pairs.is_file():
            logger.info("%s already exists", pairs)
        else:
            shards = _translate(run, job, facts["texts"], directory / SHARDS)
            write_provenance(pairs, {**facts, "finished": _now()})
            _join(shards, pairs)
        if (directory / SHARDS).is_dir():  # even if the pairs were there: a kill may leave them
            shutil.rmtree(directory / SHARDS)
    return pairs


def _translate(run: LoadedRun, job: GenerationJob, total: int, directory: Path) -> list[Path]:
    directory.mkdir(exist_ok=True)
    shards: list[Path] = []
    done = 0
    with ProgressCounter("translating", total) as shown:
        for texts in chunks(job.texts(), SHARD_TEXTS):
            shards.append(directory / f"{len(shards):06}.jsonl")
            if not shards[-1].is_file():
                translations = run.translate_batch(texts, job.options, done)
                made = (job.pair(a, b.text) for a, b in zip(texts, translations, strict=True))
                lines = (json.dumps(pair, ensure_ascii=False) + "\n" for pair in made)
                write_text(shards[-1], "".join(lines))
            done += len(texts)
            shown.to(done)
    if done != total:
        raise DataError(f"{', '.join(job.files)}: changed during translation")
    return shards


def _make_place(pairs: Path, facts: dict[str, Any], overwrite: bool) -> str:
    """Create the directory of the pairs, or find it with shards of the same job.

    Returns the start time of the job.
    """
    now = str(facts["begun"])
    before = read_provenance(pairs) or {}
    begun = pairs.is_file() or (pairs.parent / SHARDS).is_dir()
    other = _difference(before, facts)
    if begun and not other:
        return str(before.get("begun", now))
    if begun and not overwrite:
        raise RunError(
            f"{pairs.parent} contains synthetic pairs made with different {other}; use "
            "--overwrite to replace them"
        )
    pairs.unlink(missing_ok=True)
    shutil.rmtree(pairs.parent / SHARDS, ignore_errors=True)
    pairs.parent.mkdir(parents=True, exist_ok=True)
    write_provenance(pairs, facts)
    return now


def _difference(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Name the first difference between two jobs; empty if they are the same."""
    old, new = map(_essence, (before, now))
    for name in (*SAME_WORK, "texts_sha256"):
        if old.get(name) != new.get(name):
            return name.removesuffix("_sha256")
    return ""


def _essence(facts: dict[str, Any]) -> dict[str, Any]:
    decoding = facts.get("decoding")
    return {**facts, "decoding": decisive(decoding)} if isinstance(decoding, dict) else facts


def _facts(run: LoadedRun, job: GenerationJob) -> dict[str, Any]:
    """Provenance known before the translation."""
    digest, count = hashlib.sha256(), 0
    with ProgressCounter("reading texts") as shown:
        for text in shown.each(job.texts()):
            digest.update(f"{len(text)}:{text}".encode())
            count += 1
    if not count:
        raise DataError(f"{', '.join(job.files)}: no texts to translate")
    beside = {
        "runs_beside": [str(other.path.resolve()) for other in run.others],
        "runs_beside_sha256": [_weights_sha256(other) for other in run.others],
    }
    return {
        "made_by": job.made_by,
        "transduce": __version__,
        "begun": _now(),
        "run": str(run.path.resolve()),
        "weights_sha256": _weights_sha256(run),
        **(beside if run.others else {}),
        "vocabularies_sha256": {f.name: sha256_of(f) for f in vocabularies_of(run.path)},
        "precision": run.precision,
        "engine": run.engine,
        "decoding": to_dict(job.options),
        "files": list(job.files),
        "texts": count,
        "texts_sha256": digest.hexdigest(),
        "made_side": job.made_side,
        "shard_texts": SHARD_TEXTS,
    }


def _weights_sha256(run: LoadedRun) -> str:
    return sha256_of(run.path / "weights.safetensors")


def _join(shards: Iterable[Path], whole: Path) -> None:
    with writing(whole, RunError), whole_file(whole) as out:
        for shard in shards:
            with shard.open("rb") as file:
                shutil.copyfileobj(file, out)


def _lines_of(monolingual: Sequence[Path]) -> tuple[Callable[[], Iterable[str]], tuple[str, ...]]:
    """Reader of the lines of some files, and the files' names."""

    def lines() -> Iterable[str]:
        return (line for path in monolingual for line in read_lines(path))

    return lines, tuple(str(path.resolve()) for path in monolingual)


def _named_files(data: DataConfig) -> Iterable[str]:
    """Files of the training pairs; a data set on the Hub by its name."""
    for part, _ in data.corpora():
        assert part.train is not None
        if isinstance(part.train, HubDataset):
            yield part.train.path
        else:
            yield from map(str, part.train.files(Path(data.root)))


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")

"""Runs made without training: a Hugging Face directory imported, the weights of runs averaged."""

import datetime
import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transduce.decoding.shortlist import Shortlist
from transduce.errors import RunError, SettingError
from transduce.interop.models import import_directory
from transduce.interop.new_language import NewLanguage, with_language
from transduce.interop.packed import plain_files
from transduce.interop.read import ImportedModel
from transduce.interop.speaker_encoder import SPEAKERS, read_speaker_encoder
from transduce.interop.voice import read_voice
from transduce.recipes import flat_settings, parse_recipe, read_recipe, with_overrides
from transduce.runs.directory import (
    card_of,
    claimed,
    copy_run,
    vocabularies_of,
    write_run,
    written_aside,
)
from transduce.settings.sections import differing, to_dict, to_toml
from transduce.support.version import __version__
from transduce.support.zipped import unpacked
from transduce.tasks.model_card import code
from transduce.tasks.recipe import Recipe
from transduce.tasks.table import TASKS
from transduce.tasks.translation.recipe import TranslationRecipe
from transduce.tasks.translation.shortlist import save_shortlist
from transduce.tasks.vocabularies import saved_vocabularies
from transduce.training.checkpoints import served_weights
from transduce.training.weight_files import checkpoints_of
from transduce.training.weights import average, in_levels, read_tensors, write_text, write_weights

logger = logging.getLogger("transduce")


def import_run(
    directory: str | os.PathLike[str],
    run: str | os.PathLike[str],
    overwrite: bool = False,
    overrides: Iterable[str] = (),
    language: NewLanguage | None = None,
    languages: tuple[str, str] | None = None,
) -> Path:
    """Make the run directory `run` from a directory that Hugging Face `transformers` saved, or
    that `publish_run` wrote, or from a .zip that a page of `transduce page` saved.

    overrides: settings of its recipe to change, as `a.b=value`.  language: to add to a model of
    many.  languages: source and target of a model of one pair.  overwrite: replace an existing
    run.  Raises DataError for an unsupported directory, SettingError for an invalid override,
    RunError if `run` exists.  After an error `run` is unchanged.
    """
    source, path = Path(directory), Path(run)
    if languages is not None:
        named = zip(("source", "target"), languages, strict=True)
        overrides = [*overrides, *(f'languages.{side}="{code}"' for side, code in named)]
    if path.name in ("", ".."):  # without a name of its own
        path = path.resolve()
    _check_free(path, overwrite)
    if source.suffix == ".onnx":
        if language is not None:
            raise SettingError(f"{source}: a language cannot be added to a voice; leave it out")
        return _import_voice(source, path, overrides)
    if source.suffix == ".pt" and (encoder := read_speaker_encoder(source)) is not None:
        if language is not None or [*overrides]:
            raise SettingError(f"{source}: an encoder of speakers has no settings; leave them out")
        return _import_speakers(source, path, encoder)
    with unpacked(source) as files:
        if not (files / "recipe.toml").is_file():
            with plain_files(source) as plain:
                imported = import_directory(plain)
        elif language is None:
            return _copy(files, path, overrides, source)
        else:
            imported = _of_run(files)
    if language is not None:
        imported = with_language(imported, language)
    recipe = parse_recipe(with_overrides(imported.recipe, overrides), str(source))
    with written_aside(path) as aside:
        _write(aside, imported, recipe)
        write_text(aside / "README.md", _import_card(path, aside, source, imported, recipe))
        imported.weights.clear()  # a second copy is loaded now
        _check_whole(recipe, aside, source)
        _put(aside, path, recipe)
    if isinstance(recipe, TranslationRecipe) and not recipe.languages.sources:
        message = "%s: %s names no languages; give them for servers and exports: --languages en-pt"
        logger.warning(message, path, source)
    if imported.left_out:
        names = sorted({name.rpartition(".")[0] for name in imported.left_out})
        message = "skipping tensors without a use in the task %r: %s"
        logger.info(message, recipe.task, ", ".join(names))
    return path


def _of_run(source: Path) -> ImportedModel:
    """The model of a run directory of translation."""
    source_side, target_side = saved_vocabularies(source)
    tokenizers = {"source_tokenizer": source_side, "target_tokenizer": target_side}
    if source_side is target_side:
        tokenizers = {"tokenizer": source_side}
    weights = read_tensors(source / "weights.safetensors")
    return ImportedModel(to_dict(read_recipe(source)), weights, tokenizers)


def _import_voice(source: Path, path: Path, overrides: Iterable[str]) -> Path:
    settings, files = read_voice(source)
    recipe = parse_recipe(with_overrides(settings, overrides), str(source))
    with written_aside(path) as aside:
        settings = to_dict(recipe)
        settings["data"].pop("root", None)
        write_text(aside / "recipe.toml", to_toml(settings))
        write_weights(aside / "weights.safetensors", {})  # of PyTorch: none
        for name, content in files.items():
            (aside / name).write_bytes(content)
        write_text(aside / "README.md", f"# {path.name}\n\nA voice, from {source.name}.\n")
        _check_whole(recipe, aside, source)
        _put(aside, path, recipe)
    return path


def _import_speakers(source: Path, path: Path, weights: dict[str, Any]) -> Path:
    """An encoder of speakers, by its weights, for `--speakers`."""
    with written_aside(path) as aside:
        write_weights(aside / SPEAKERS, weights)
        card = f"# {path.name}\n\nAn encoder of speakers, from {source.name}.\n"
        write_text(aside / "README.md", card)
        aside.rename(path)
    return path


def _copy(directory: Path, path: Path, overrides: Iterable[str], source: Path) -> Path:
    """Copy the run in a directory, which was unpacked from `source` or is it."""
    settings = with_overrides(to_dict(read_recipe(directory)), overrides)
    recipe = parse_recipe(settings, str(source))
    with written_aside(path) as aside:
        copy_run(directory, aside, without=("recipe.toml",))
        write_text(aside / "recipe.toml", to_toml(recipe))
        _check_whole(recipe, aside, source)
        _put(aside, path, recipe)
    return path


def _put(aside: Path, path: Path, recipe: Recipe) -> None:
    if not path.exists():
        aside.rename(path)
    else:
        with claimed(path, recipe, resume=False, overwrite=True):
            for file in aside.iterdir():
                file.replace(path / file.name)


def _check_free(path: Path, overwrite: bool) -> None:
    """Raises RunError if there is something that must not be spoiled."""
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is a file; give another RUN")
    if (path / "recipe.toml").is_file():
        if not overwrite:
            raise RunError(
                f"{path} holds a run already; replace it with --overwrite, or give another RUN"
            )
    elif path.is_dir() and any(file.name != ".lock" for file in path.iterdir()):
        raise RunError(f"{path} exists and is not a run directory; give another RUN")


def _write(run: Path, imported: ImportedModel, recipe: Recipe) -> None:
    settings = to_dict(recipe)
    settings["data"].pop("root", None)  # no data, so no place where they are
    write_text(run / "recipe.toml", to_toml(settings))
    for name, tokenizer in imported.tokenizers.items():
        tokenizer.save(run / f"{name}{tokenizer.suffix}")
    if imported.labels is not None:
        labels = json.dumps(imported.labels, ensure_ascii=False, indent=2)
        write_text(run / "labels.json", labels + "\n")
    if imported.shortlist is not None:
        tokenizers = [*imported.tokenizers.values()]
        is_joint, size = len(tokenizers) == 1, tokenizers[-1].size
        save_shortlist(Shortlist(*imported.shortlist, is_joint, size), run)
    weights = in_levels(imported.weights, imported.divisors)
    write_weights(run / "weights.safetensors", weights, imported.header)


def _check_whole(recipe: Recipe, aside: Path, source: Path) -> None:
    """Raises RunError unless every weight has its place; it names the source, which lasts."""
    try:
        TASKS[recipe.task].load(recipe, aside, "cpu")
    except RunError as error:
        weights = str(aside / "weights.safetensors")
        raise RunError(str(error).replace(weights, str(source))) from None


def _import_card(
    path: Path, aside: Path, source: Path, imported: ImportedModel, recipe: Recipe
) -> str:
    parameters = sum(tensor.numel() for tensor in imported.weights.values())
    left_out = "".join(f"- {code(name)}\n" for name in imported.left_out)
    description = (
        f"A {recipe.task} model of {parameters:,} parameters, imported from the Hugging Face "
        f"directory {code(source.resolve().name)} by transduce "
        f"{__version__} on {datetime.date.today()}.  Nothing was "
        "trained here; licence and training data are the imported model's.  Fine-tune it "
        "with `fine_tune.run` in a recipe.\n\n"
        + (f"Left out, since this task has no use for them:\n\n{left_out}" if left_out else "")
    )
    return card_of(aside, path.name, recipe, description, [source.resolve().name])


ONLY_TRAINING = (".dropout", ".label_dropout", ".init")
"""Model settings that affect training only."""
COMPARED_AS_FILES = ("tokenizer", "source", "target", "transcript_tokenizer")
"""Sections of `text` that describe tokenizers; the tokenizer files themselves are compared."""
OF_THE_DATA = {
    "data.inputs": "inputs",
    "data.roles": "roles",
    "data.block": "block",
    "data.train.tag": "tag_names",
}
"""Settings that decide the layout of an input, and the attributes of `data` that have them."""


def _vocabularies(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in vocabularies_of(path)}


def average_runs(paths: Sequence[Path], output: Path, last: int = 0) -> None:
    """Write a run with the mean weights of several runs, or of the last checkpoints of a run.

    Raises RunError if the models or their inputs differ, except in dropout, or if `output` exists.
    """
    if output.exists():
        raise RunError(f"{output} already exists; choose another --output")
    recipes = [read_recipe(path) for path in paths]
    sources = [path / "weights.safetensors" for path in paths]
    if last:
        available = [checkpoints_of(path) for path in paths]
        for path, checkpoints in zip(paths, available, strict=True):
            if len(checkpoints) < last:
                raise RunError(
                    f"{path} has only {len(checkpoints)} of the {last} checkpoints; raise "
                    "training.keep_last to keep more"
                )
        sources = [checkpoint for checkpoints in available for checkpoint in checkpoints[-last:]]
    if len(sources) < 2:
        raise RunError(
            "averaging needs at least two sets of weights; name more runs, or use --last N "
            "for the last N checkpoints of a run"
        )
    recipe = recipes[0]
    for path, other_recipe in zip(paths[1:], recipes[1:], strict=True):
        check_alike(path, other_recipe, paths[0], recipe)
        for name in differing(_vocabularies(paths[0]), _vocabularies(path)):
            raise RunError(
                f"{path} and {paths[0]} have different vocabularies ({name}); they cannot be "
                "averaged"
            )
    mean = average(map(served_weights if last else read_tensors, sources))
    names = ", ".join(code(path.resolve().name) for path in paths)
    made = f"the last {last} checkpoints of {names}" if last else f"the weights of {names}"
    write_run(output, recipe, paths, f"The mean of {made}.", mean)


def check_alike(path: Path, recipe: Recipe, first_path: Path, first: Recipe) -> None:
    """Raises RunError, naming the setting, if the weights cannot be averaged.

    path, recipe: of a run.  first_path, first: of the run it is averaged with.
    """
    ours, theirs = _decisive(first), _decisive(recipe)
    for name in differing(ours, theirs):
        kind = "models" if name.startswith("model.") else "inputs"
        raise RunError(
            f"{path} and {first_path} have different {kind} ({name}: {_spelt(theirs, name)} and "
            f"{_spelt(ours, name)}); they cannot be averaged"
        )


def _decisive(recipe: Recipe) -> dict[str, Any]:
    """Settings that decide the meaning of the weights and their inputs, by dotted name."""
    text = to_dict(getattr(recipe, "text", {}))
    sections = {
        "model": to_dict(recipe.model),
        "text": {name: text[name] for name in text if name not in COMPARED_AS_FILES},
        "audio": to_dict(getattr(recipe, "audio", {})),
        "image": getattr(getattr(recipe, "image", None), "of_each_channel", dict)(),
    }
    settings: dict[str, Any] = {"task": recipe.task}
    for name, setting in flat_settings(sections):
        if not name.endswith((*ONLY_TRAINING, "sampling")):
            settings[name] = setting
    for name, attribute in OF_THE_DATA.items():
        if hasattr(recipe.data, attribute):
            settings[name] = getattr(recipe.data, attribute)
    return settings


def _spelt(settings: Mapping[str, Any], name: str) -> str:
    return repr(settings[name]) if name in settings else "none"

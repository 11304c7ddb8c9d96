"""Model cards: the page of a run, with the metadata that the Hugging Face Hub reads.

Cards are for handing on, so they name files and runs without the directories they lie in, and
names can break neither the YAML at the head nor the Markdown below it.
"""

import itertools
import json
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from transduce.settings.sections import to_dict, to_toml
from transduce.tasks.recipe import Recipe

MODEL_ID = re.compile(r"[A-Za-z0-9_.-]{1,96}")
"""A name that may be a model's on the Hub; it refuses cards with other base models."""


def card_text(
    name: str,
    recipe: Recipe,
    description: str,
    files: Sequence[str],
    scores: Mapping[str, float] | None = None,
    made_of: Sequence[str] = (),
    *,
    pipeline_tag: str,
) -> str:
    """Model card of a run.

    name: of the run's directory. description: of its training, as Markdown. files: needed to
    use the run. scores: of validation. made_of: names of its source runs. pipeline_tag: of the task
    on the Hub; empty for none.
    """
    name = card_line(name)
    head = "\n".join(_yaml(_metadata(name, recipe, pipeline_tag, scores or {}, made_of)))
    title = re.sub(r"([\\`*_{}\[\]<>#|&])", r"\\\1", name)
    needed = ", ".join(code(file) for file in files)
    return (
        f"---\n# license: not known to transduce; add it before you publish the model\n{head}\n"
        f"---\n\n# {title}\n\n{description.strip()}\n\n"
        f"Use it with {code(f'transduce predict {shlex.quote(name)} FILE')}, or in Python with "
        f"{code(f'transduce.load({name!r})')}.  All settings are in `recipe.toml`.\n\n"
        f"To share it, copy {needed}, and any files added by `transduce shortlist` or "
        "`transduce calibrate`; the rest of the directory is only needed to continue training.  "
        "Paths in these files, such as `data.root`, refer to the training machine and are not "
        "needed for use.\n"
    )


def data_told(data: Any) -> str:
    """The settings of a recipe's data as Markdown, without the place where they lie."""
    settings = {name: value for name, value in to_dict(data).items() if name != "root"}
    lines = to_toml(_without_places(settings)).splitlines()
    return "\n".join(f"    {card_line(line)}" for line in lines)


def scores_told(scores: Mapping[str, float]) -> str:
    """A table of validation scores."""
    rows = "\n".join(f"| {name} | {value:.4g} |" for name, value in scores.items())
    return f"| validation | |\n|-|-|\n{rows}"


def code(text: str) -> str:
    """A text as it is, in Markdown and on a single line."""
    text = card_line(text)
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    return f"{fence} {text} {fence}" if "`" in text else f"{fence}{text}{fence}"


def card_line(text: str) -> str:
    """Text with a space for each line break and each other unprintable character."""
    return "".join(character if character.isprintable() else " " for character in text)


def file_name(path: object) -> str:
    """Last part of a path, without details of the machine."""
    return PurePath(str(path)).name or str(path)


def _metadata(
    name: str,
    recipe: Recipe,
    pipeline_tag: str,
    scores: Mapping[str, float],
    made_of: Sequence[str],
) -> dict[str, Any]:
    settings = to_dict(recipe)
    evaluation, data = settings.get("evaluation", {}), settings.get("data", {})
    languages = _languages(settings.get("languages", {})) or [
        evaluation[key] for key in ("target_language", "language") if evaluation.get(key)
    ]
    bases = {code.partition("-")[0] for code in languages}
    if pipeline_tag == "translation" and len(bases) < 2 and len(languages) != 1:
        pipeline_tag = "text2text-generation"  # a speller, say
    train = data.get("train") or {}
    known = {key: value for key, value in scores.items() if math.isfinite(value)}
    metrics = [{"type": key, "value": value, "name": key} for key, value in known.items()]
    dataset = {"type": "validation", "name": _dataset(data), "split": "validation"}
    result = {"task": {"type": pipeline_tag or recipe.task}, "dataset": dataset, "metrics": metrics}
    metadata = {
        "language": languages,
        "library_name": "transduce",
        "pipeline_tag": pipeline_tag,
        "tags": ["transduce", recipe.task],
        "base_model": [origin for origin in dict.fromkeys(made_of) if MODEL_ID.fullmatch(origin)],
        "datasets": [train["path"]] if _is_on_hub(train) else [],
        "metrics": [key for key in known if key != "loss"],
        "model-index": [{"name": name, "results": [result]}] if metrics else [],
    }
    return {key: value for key, value in metadata.items() if value}


def _languages(section: Mapping[str, Any]) -> list[str]:
    sides = [section.get(side, ()) for side in ("source", "target")]
    codes = [[side] if isinstance(side, str) else side for side in sides]
    return list(dict.fromkeys(itertools.chain.from_iterable(codes)))


def _dataset(data: Mapping[str, Any]) -> str:
    valid, train = data.get("valid") or {}, data.get("train") or {}
    path = (valid or train).get("path", (valid or train).get("target", ""))
    first = path[0] if isinstance(path, list | tuple) and path else path
    name = first if _is_on_hub(valid or train) else file_name(first)
    return name if valid else f"held out of {name}" if name else "validation"


def _is_on_hub(section: Mapping[str, Any]) -> bool:
    path = section.get("path")
    parts = r"[A-Za-z0-9_.-]*[A-Za-z0-9_-]"
    return section.get("kind") == "hub" and bool(re.fullmatch(f"{parts}(/{parts})?", str(path)))


def _without_places(value: Any) -> Any:
    """Settings in which paths are names of files."""
    if isinstance(value, Mapping):
        public = ("path",) if _is_on_hub(value) else ()
        return {
            key: entry if key in public else _without_places(entry) for key, entry in value.items()
        }
    if isinstance(value, list | tuple):
        return [_without_places(entry) for entry in value]
    return file_name(value) if isinstance(value, str) else value


def _yaml(value: Any, indent: str = "") -> Iterator[str]:
    """Lines of YAML.  Texts are as in JSON, which YAML reads alike."""
    entries = value.items() if isinstance(value, Mapping) else enumerate(value)
    for key, entry in entries:
        name = f"{key}:" if isinstance(value, Mapping) else "-"
        if isinstance(entry, str):
            yield f"{indent}{name} {json.dumps(card_line(entry), ensure_ascii=False)}"
        elif isinstance(entry, int | float):
            yield f"{indent}{name} {entry:.4f}"
        elif name == "-":
            first, *rest = _yaml(entry, f"{indent}  ")
            yield f"{indent}- {first.strip()}"
            yield from rest
        else:
            yield f"{indent}{name}"
            yield from _yaml(entry, f"{indent}  ")

"""Recipes of all tasks: sections, splits of data, presets, base runs, validation. Imports no
torch."""

import dataclasses
import hashlib
import heapq
import json
import logging
import math
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeVar

from pydantic import BeforeValidator, Field

from transduce.data.sources import fingerprint
from transduce.decoding.options import DecodingOptions, OutputKind, without_meaning
from transduce.errors import DataError, RunError, SettingError
from transduce.metrics.metric import few_items, few_tokens
from transduce.nn.stack_configs import StackConfig, TransformerConfig
from transduce.settings.paths import LiteralText, absolute_path, expanded_path, literal
from transduce.settings.sections import (
    did_you_mean,
    load_toml,
    merge_settings,
    parse,
    section,
    to_dict,
)
from transduce.training.config import RDropTrainingConfig, TrainingConfig
from transduce.training.weight_files import check_files, read_weights_header

Root = Annotated[str, BeforeValidator(expanded_path)]
"""Directory that relative paths start from; may contain `~` and `$VARIABLE`."""


@section
class RootedData:
    """Base of all data sections, used directly by tasks without data."""

    root: Root = "."
    """Directory that relative paths start from; may contain `~` and `$VARIABLE`.  A relative root
    starts from the current directory."""


@section
class TrainingData(RootedData):
    """Base of data sections with training data."""

    train: Any = None
    """Required for training; an imported model has none."""


@section
class SplitsConfig(TrainingData):
    """Base of data sections with splits: a section narrows the types of `train`, `valid`, `test`.

    Splits not named by `valid` and `test` are held out from the training data.
    """

    valid: Any = None
    """By default, `hold_out` of the training data."""
    test: Any = None
    """By default, another `hold_out` of the training data, unless `valid` is given."""
    hold_out: Annotated[float, Field(gt=0, le=0.25)] = 0.02
    """Share of the training data to hold out for each split without a file."""


def check_decoding(options: DecodingOptions, kind: OutputKind = "continuation") -> None:
    """Raises SettingError for a decoding setting without effect in this task."""
    plain = DecodingOptions()
    for name, outputs in without_meaning(kind).items():
        if getattr(options, name) != getattr(plain, name):
            raise SettingError(f"decoding.{name} applies only to {outputs}; remove it")


def check_not_decoding(call_options: DecodingOptions | None, defaults: DecodingOptions) -> None:
    """Raises SettingError for decoding options if only probabilities are measured."""
    if call_options is not None and call_options != dataclasses.replace(
        defaults, n_best=call_options.n_best
    ):
        raise SettingError("this evaluation does not decode; remove the decoding options")


def check_model_size(settings: Any, run: Path) -> None:
    """Raises RunError if the model of a recipe is far larger than the run's weights file.

    settings: the recipe's `model`.  Limits the time to build a model, which is long even without
    allocating memory.
    """
    file = run / "weights.safetensors"
    shapes = read_weights_header(file).shapes
    most = {"n_layers": len(shapes), "d_model": sum(map(math.prod, shapes.values()))}
    for name, value in _numbers(settings, "model"):
        limit = most.get(name.rpartition(".")[2])
        if limit is not None and value > limit:
            raise RunError(
                f"{run}: the recipe sets {name} = {value}, but {file.name} has a smaller model"
            )


def _numbers(settings: Any, name: str) -> Iterator[tuple[str, float]]:
    if isinstance(settings, Mapping):
        for key, value in settings.items():
            yield from _numbers(value, f"{name}.{key}")
    elif isinstance(settings, int | float):
        yield name, settings


def check_selection(chosen: str, measured: Sequence[str]) -> None:
    """Raises SettingError if `training.select_by` is not a score measured in validation."""
    if chosen not in measured:
        known = ", ".join(map(repr, measured))
        raise SettingError(f"training.select_by = {chosen!r}, but validation measures {known}")


def check_r_drop(training: RDropTrainingConfig, *networks: Any) -> None:
    """Raises SettingError for R-Drop without dropout: its two passes would be equal."""
    if not training.r_drop:
        return
    shares = [pair for network in networks for pair in _numbers(to_dict(network), "")]
    if not any(share for name, share in shares if name.endswith("dropout")):
        raise SettingError(
            "training.r_drop needs dropout, but all dropout is 0; raise it, or remove "
            "training.r_drop"
        )


def check_recompute(training: TrainingConfig, *stacks: StackConfig) -> None:
    """Raises SettingError for gradient checkpointing without Transformer layers."""
    if training.recompute and not any(isinstance(stack, TransformerConfig) for stack in stacks):
        raise SettingError("training.recompute: this model has no Transformer layers; remove it")


def with_preset(
    settings: Mapping[str, Any], presets: Mapping[str, Any], where: str
) -> Mapping[str, Any]:
    """Settings with `model.preset` spelled out, overridden by other settings of the model.

    presets: of the task, by name.  Raises SettingError for another name.
    """
    model = settings.get("model")
    if not isinstance(model, Mapping) or "preset" not in model:
        return settings
    name, rest = model["preset"], {key: model[key] for key in model if key != "preset"}
    if not isinstance(name, str) or name not in presets:
        hint = did_you_mean(str(name), presets) or f"; choose from {', '.join(presets)}"
        raise SettingError(f"{where}: unknown model.preset {name!r}{hint}")
    return {**settings, "model": merge_settings(to_dict(presets[name]), rest)}


def base_settings(run: Path, setting: str = "fine_tune.run") -> dict[str, Any]:
    """Recipe settings of another run, which `setting` names. Raises RunError if it is not a run."""
    if not (run / "recipe.toml").is_file():
        raise RunError(f"{setting}: {run} is not a run directory")
    check_files(run)
    settings: dict[str, Any] = literal(load_toml(run / "recipe.toml"))
    for name in ("data", "text", "image", "audio", "model"):
        if not isinstance(settings.get(name, {}), dict):
            raise RunError(f"{setting}: {run / 'recipe.toml'} is damaged: {name} is not a section")
    return settings


def auxiliary_run(run: Path, setting: str, task: str, use: str) -> dict[str, Any]:
    """Recipe settings of a run of another task, which `setting` names.

    use: of the run, for the RunError of a run of a wrong task.
    """
    settings = base_settings(run, setting)
    if settings.get("task") != task:
        raise RunError(f"{setting}: {run} is a run of the task {settings.get('task')!r}{use}")
    return settings


def named_base(settings: Mapping[str, Any]) -> Path | None:
    """Absolute path of the base run named by the settings; None if there is none.

    None also in the recipe of a run, which leaves nothing open.  Raises SettingError for an unset
    environment variable.
    """
    fine_tune = settings.get("fine_tune")
    base = fine_tune.get("run") if isinstance(fine_tune, Mapping) else None
    if not isinstance(base, str | Path) or isinstance(base, LiteralText):
        return None
    try:
        return Path(absolute_path(base))
    except ValueError as error:
        raise SettingError(f"fine_tune.run: {error}") from None


def with_base_run(
    settings: Mapping[str, Any], tasks: Sequence[str], inherited: Sequence[str]
) -> Mapping[str, Any]:
    """Settings with defaults from the base run in `fine_tune.run`: `model`, and those inherited.

    tasks: possible tasks of the base run.  inherited: as in `Recipe`.  Complete model settings, as
    in a run directory, need no base run.  Raises RunError for a base that is not a run, or of
    another task.
    """
    base = named_base(settings) if tasks else None
    model = settings.get("model", {})
    if base is None or not isinstance(model, Mapping):
        return settings
    if model and not (base / "recipe.toml").is_file():
        return settings
    theirs = base_settings(base)
    if theirs.get("task") not in tasks:
        raise RunError(
            f"fine_tune.run: {base} is a run of the task {theirs.get('task')!r}; the task "
            f"{settings.get('task')!r} can start from {', '.join(map(repr, tasks))}"
        )
    filled = {**settings, "model": merge_settings(theirs.get("model", {}), model)}
    for name in inherited:
        section, _, key = name.partition(".")
        written, below = filled.get(section, {}), theirs.get(section, {})
        if isinstance(written, Mapping) and (not key or key in below):  # else for `parse` to refuse
            filled[section] = {**({key: below[key]} if key else below), **written}
    return filled


Split = Literal["train", "valid", "test"]


@section
class Recipe:
    """Base of all recipes: task, seed, data, model, training; a task adds sections of its own.

    presets: values of `model.preset`.  bases: tasks of runs to start from, with `fine_tune`.
    inherited: settings of the base run that are the defaults, as `section` or `section.name`,
    beside those of the model.
    """

    presets: ClassVar[Mapping[str, Any]] = {}
    bases: ClassVar[tuple[str, ...]] = ()
    inherited: ClassVar[tuple[str, ...]] = ()

    task: str
    """Task to train, a key of `TASKS`; required in a recipe."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Random seed of the initial weights, dropout and the order of the data; also of augmentation,
    token masking and the cropping of long texts, in tasks with them."""
    data: RootedData
    model: Any
    training: TrainingConfig = TrainingConfig()

    @classmethod
    def parse(cls, settings: Mapping[str, Any], where: str) -> Self:
        """Settings of a file as a recipe, usable from any directory.

        where: name of the file, for messages.  Raises SettingError for a wrong setting.
        """
        if cls.presets:
            settings = with_preset(settings, cls.presets, where)
        recipe = parse(cls, cls.with_base(settings), where)
        try:
            root = absolute_path(LiteralText(recipe.data.root))
        except ValueError as error:
            raise SettingError(f"data.root: {error}") from None
        return dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, root=root))

    @classmethod
    def with_base(cls, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Settings with those inherited from the run in `fine_tune.run`."""
        return with_base_run(settings, cls.bases, cls.inherited)


T = TypeVar("T")

PLACE_VERSION = 3
"""Incremented when places change (see `read_split`), to invalidate encoded data."""
LARGEST_HOLD_OUT = 0.25
"""Share of the training data that any task can set aside for each split."""


def check_trainable(config: TrainingData) -> None:
    """Raises SettingError for a recipe without training data."""
    if config.train is None:
        raise SettingError("data.train is missing; set it to the training files")


def check_own_data(config: TrainingData, split: Split) -> None:
    """Raises SettingError or DataError if there is no data to take a split from."""
    if split == "train":
        check_trainable(config)
    elif config.train is None:
        raise DataError("the run has no data (it may be imported); give --source and --reference")


def has_split(config: SplitsConfig, split: Split) -> bool:
    """Return True if there are items for this split."""
    return split != "test" or config.test is not None or config.valid is None


def read_split(
    config: SplitsConfig,
    split: Split,
    read: Callable[[Any, Path], Iterator[T]],
    key: Callable[[T], str],
) -> Iterator[T]:
    """Stream the items of a split.  Raises DataError for unreadable data.

    read: reads the items of a section, given the root.  key: text of an item whose hash assigns it
    to a split, if splits are held out from the training data: items of equal keys are in the
    same split, in any order of the file.
    """
    source = source_of(config, split)
    for item in read(source.section, Path(config.root)):
        if source.is_whole or source.holds(place_of(key(item))):
            yield item


class SplitSource(NamedTuple):
    """Section with the items of a split, and the bounds of their hashes."""

    section: Any
    low: float = 0.0
    high: float = 1.0

    @property
    def is_whole(self) -> bool:
        """True if all items belong to the split."""
        return (self.low, self.high) == (0.0, 1.0)

    def holds(self, hashes: Any) -> Any:
        """True for a hash, or an array of them, of items of the split."""
        return (self.low <= hashes) & (hashes < self.high)


def source_of(config: SplitsConfig, split: Split, items: str = "data") -> SplitSource:
    """Section to read a split from.  Raises DataError if there is none.

    items: name of the data, for messages.
    """
    section = own_section(config, split)
    if section is not None:
        return SplitSource(section)
    if not has_split(config, split):
        raise DataError(
            f"the recipe has no test {items}; set data.test, or give --source and --reference"
        )
    check_own_data(config, split)
    return SplitSource(config.train, *bounds_of(config, split))


def bounds_of(config: SplitsConfig, split: Split) -> tuple[float, float]:
    """Bounds of the hash (see `place_of`) of the training data that belong to a split."""
    begin = 0.0
    parts: dict[str, tuple[float, float]] = {}
    for name in ("valid", "test"):
        if getattr(config, name) is None and has_split(config, name):
            parts[name] = (begin, begin := begin + config.hold_out)
    return parts.get(split, (begin, 1.0))


def own_section(config: SplitsConfig, split: Split) -> Any:
    """Section of a split; None for the training data, and for a split held out from it."""
    return {"train": None, "valid": config.valid, "test": config.test}[split]


def split_fingerprint(config: SplitsConfig, split: Split) -> str:
    """Fingerprint of the items of a split."""
    section = own_section(config, split)
    source = section if section is not None else config.train
    made = [PLACE_VERSION, split, config.hold_out, config.valid is None, config.test is None]
    return f"{fingerprint(source, Path(config.root))} {made}"


def remedy_for_nothing_held_out(config: SplitsConfig, split: Split, keys: Iterable[str]) -> str:
    """Remedy to end a message with, where `hold_out` leaves a split empty; else nothing.

    keys: of the items to train on, as `read_split` has them.  Larger shares cannot help where the
    first key to be set aside is also the last.
    """
    if split == "train" or own_section(config, split) is not None:
        return ""
    places = {place_of(key) for key in keys}
    first, last = min(places, default=1.0), max(places, default=0.0)
    parts = 1 if config.test is not None else 2
    if first < LARGEST_HOLD_OUT and last > parts * first:
        return "; raise data.hold_out, or set data.valid"
    return f"; set data.valid, since {len(places)} distinct examples are too few to hold some out"


def place_of(text: str) -> float:
    """Hash of a text as a number in [0, 1), regardless of case.

    "Dog" and "dog" are in the same split: a lower-casing tokenizer would otherwise see the test.
    """
    plain = unicodedata.normalize("NFKC", text).casefold().strip()
    digest = hashlib.blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def sampled(items: Iterable[T], count: int, text: Callable[[T], str]) -> list[T]:
    """A sample of `count` items, in their order.

    Selected by a hash of their texts, independent of their order: the first items of a file sorted
    by language, length or article would not be representative.
    """
    if not count:
        return []
    chosen = heapq.nsmallest(count, enumerate(items), key=lambda item: place_of(text(item[1])))
    return [item for _, item in sorted(chosen, key=lambda item: item[0])]


logger = logging.getLogger("transduce")


def checksum_of(*facts: Any) -> str:
    """Checksum of a JSON value."""
    return digest_of(facts)[:16]


def digest_of(facts: Any) -> str:
    """SHA-256 of a JSON value, in 64 hexadecimal digits: the name of data made from it."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def warn_of_few(data: SplitsConfig, count: int, what: str, tokens: bool = False) -> None:
    """Warn if validation data, and the test data held out with them, are too few to compare models.

    count, what: number and kind of the items of each validation. tokens: items are tokens,
    measured only by loss.
    """
    few = few_tokens(count, what) if tokens else few_items(count, what)
    if not few:
        return
    remedy = "extend data.valid"
    if data.valid is None:
        test = " (which holds out about as many for the test)" if data.test is None else ""
        remedy = f"raise data.hold_out{test}, or set data.valid"
    logger.warning("validation: %s; %s", few, remedy)

"""Training of all tasks: roots, devices, tokenizers, another run as a start, labels of a
classifier."""

import functools
import json
import logging
import re
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from transduce.data.batches import OneShape, RowBatch
from transduce.data.ragged_rows import preparation_lock
from transduce.errors import DataError, RunError, SettingError
from transduce.metrics.measure import METRICS, make_metric
from transduce.nn.initialise import SkipInit
from transduce.nn.kernels import lay_out_for_few_rows
from transduce.sequence import Padded
from transduce.settings.sections import parse
from transduce.support.memory import release_memory
from transduce.support.work import in_batches
from transduce.tasks.labels import FILE, load_labels, logger
from transduce.tasks.recipe import (
    RootedData,
    Split,
    SplitsConfig,
    TrainingData,
    base_settings,
    check_trainable,
    checksum_of,
)
from transduce.tasks.text_inputs import Ids, Row
from transduce.tasks.vocabularies import missing_tokenizers, saved_tokenizer, tell_of_training_texts
from transduce.text import BOS, EOS, PAD, Tokenizer, TokenizerConfig, train_tokenizer
from transduce.training import distributed
from transduce.training.config import FineTuneConfig, TrainingConfig
from transduce.training.distributed import Ranks
from transduce.training.fine_tuning import AdaptWeights
from transduce.training.log import ProgressCounter
from transduce.training.loss import IGNORED, LossSums
from transduce.training.task import TrainingTask
from transduce.training.weight_files import (
    checkpoints_of,
    divisor_of,
    read_weights_header,
    stored_weights,
)
from transduce.training.weights import as_tensor, check_weights, divided, weights_of, write_text

_log = logging.getLogger("transduce")


class HasModel(Protocol):
    """Object with a network as `model`."""

    @property
    def model(self) -> nn.Module: ...  # noqa: D102


P = TypeVar("P", bound=HasModel)

FEW = 1 << 16
"""Elements of a tensor that are checked together, so that they need little memory."""

TOKENIZER_VERSION = 2
"""Incremented when the same text and settings yield another tokenizer."""


def prepare_training(data: RootedData, training: TrainingConfig, seed: int) -> float:
    """Set up threads, device and random numbers for training, after early checks.

    Returns the start of its time budget, by `time.monotonic`.

    data: the section of the recipe.  seed: of torch's random numbers.
    """
    started = time.monotonic()
    if isinstance(data, TrainingData):
        check_trainable(data)
    distributed.is_enabled(training)  # raises for incompatible settings
    _warn_of_missing_test(data)
    if training.threads:
        torch.set_num_threads(training.threads)
    find_device(training.device)
    torch.manual_seed(seed)
    return started


def _warn_of_missing_test(data: RootedData) -> None:
    test = data.test if isinstance(data, SplitsConfig) else None
    for value in vars(test).values() if test is not None else ():
        for path in value if isinstance(value, tuple) else (value,):
            if isinstance(path, Path) and not (location := Path(data.root) / path).exists():
                _log.warning("data.test: %s: no such file; `transduce evaluate` needs it", location)


def find_device(name: str) -> torch.device:
    """Device of that name, ready for use.  Raises SettingError if there is none."""
    if name == "auto":
        return ready(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = str(error).splitlines()[0].partition(". ")[0]
        raise SettingError(f"device {name!r} is not available: {reason}") from None
    if device.type == "meta":
        raise SettingError("device 'meta' stores no data; use cpu or cuda")
    return ready(device)


def ready(device: torch.device) -> torch.device:
    """The device, with PyTorch's settings of this process for a GPU.

    cuDNN makes a plan of attention for each new shape, in tens of milliseconds, and almost every
    batch has a new shape; flash or memory-efficient attention need none.  Convolutions and
    recurrent cells would round float32 to the 10 bits of TF32.
    """
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)
        torch.backends.cudnn.allow_tf32 = False
    return device


def with_weights(build: Callable[[], P], run: Path, device: str) -> P:
    """Predictor on its device, with the weights of a trained run.

    build: constructs it, with any weights.  No memory is allocated before the weights file is known
    to match the model, so an untrusted recipe cannot exhaust the memory.

    Raises RunError for weights that are missing, damaged, of another model or not finite.
    """
    file = run / "weights.safetensors"
    shapes = read_weights_header(file).shapes
    with torch.device("meta"), SkipInit():
        tensors = {name: torch.empty(shape) for name, shape in shapes.items()}
        try:
            model = build().model
        except (RuntimeError, OverflowError, TypeError) as error:  # sizes beyond 64 bits
            reason = str(error).splitlines()[0]
            raise RunError(f"{run}: the model of the recipe cannot be built: {reason}") from None
        check_weights(weights_of(model), tensors, str(file))
    with SkipInit():
        predictor = build()
    if (where := find_device(device)).type == "cpu":
        lay_out_for_few_rows(predictor.model)
    predictor.model.to(where)
    stored = stored_weights(file)
    for name, weight in weights_of(predictor.model).items():
        tensor, divisors = as_tensor(stored[name]), stored.get(divisor_of(name))
        if divisors is not None:
            tensor = divided(tensor, as_tensor(divisors))
        parts = torch.split(tensor.flatten(), FEW)
        if tensor.is_floating_point() and not all(part.isfinite().all() for part in parts):
            raise RunError(
                f"{file}: {name!r} contains NaN or infinite values; use weights from before "
                "training diverged"
            )
        if weight.is_contiguous():
            weight.copy_(tensor)
        else:  # column by column, for which PyTorch has a copy of blocks
            weight.t().copy_(tensor.t())
        stored[name].release()
    predictor.model.eval()
    return predictor


def loader(build: Callable[..., P], *files: Callable[[Path], Any]) -> Callable[..., P]:
    """Function from a recipe, a run directory and a device to its trained model.

    build: makes it, with any weights, of the recipe and the parts that `files` read.  The function
    raises RunError if a file is missing or damaged.
    """

    def load(recipe: Any, run: Path, device: str) -> P:
        parts = [read(run) for read in files]
        return with_weights(lambda: build(recipe, *parts), run, device)

    return load


def describe_batch(what: str, numbers: Sequence[int] | NDArray[np.int64]) -> str:
    """Short description of a batch for messages: the kind of its items, and the first numbers."""
    shown = ", ".join(str(number) for number in numbers[:8])
    more = f" and {len(numbers) - 8} more" if len(numbers) > 8 else ""
    return f"the batch of {what} {shown}{more}"


def cached_tokenizer(cache: Path, facts: Any, make: Callable[[], Tokenizer]) -> Tokenizer:
    """Tokenizer from the cache, or else newly made, saved there.

    facts: key of the cache, as JSON values: all inputs and settings that determine the result.
    Waits for another process that is making it.  Raises RunError if `cache` cannot be written.
    """
    name = f"tokenizer-{checksum_of(TOKENIZER_VERSION, version('sentencepiece'), facts)}"
    tokenizer = _whole_tokenizer(cache, name)
    if tokenizer is not None:
        return tokenizer
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with preparation_lock(cache / name) as waited:
            tokenizer = _whole_tokenizer(cache, name) if waited else None
            if tokenizer is None:
                tokenizer = make()
                tokenizer.save(cache / f"{name}{tokenizer.suffix}")
                release_memory()  # hundreds of megabytes of the texts learnt from
    except OSError as error:
        raise RunError(f"{cache} cannot be written: {error.strerror or error}") from None
    return tokenizer


def _whole_tokenizer(cache: Path, name: str) -> Tokenizer | None:
    try:
        return saved_tokenizer(cache, name)
    except RunError:  # damaged: made anew
        return None


LOSSES = ("loss", "perplexity", "bits_per_byte")


class Trainable(Protocol):
    """Predictor with the network and the recipe of its training."""

    recipe: Any

    @property
    def model(self) -> nn.Module: ...  # noqa: D102


ModelT = TypeVar("ModelT", bound=Trainable)


class PreparedTask(TrainingTask, Protocol):
    """Training task that can start from a base run.

    adapt, reinit: of its weights, as in `BaseRun`.
    """

    adapt: AdaptWeights | None
    reinit: tuple[str, ...]


@dataclass(frozen=True)
class TargetBatch(RowBatch):
    """Base of batches with texts to write.  target: (b, t) BOS + ids + EOS."""

    target: Padded

    @property
    def target_tokens(self) -> int:
        """Tokens to predict: all but the first of each row."""
        return int(self.target.real.sum()) - len(self.rows)


class SequenceTraining(Generic[ModelT]):
    """Parts of a `TrainingTask` that are alike in all tasks.

    unit: of the loss, for the log.  items: of a batch, in messages.  numbers: (n,) of the items in
    the whole data, where those to train on are a subset.  adapt, reinit: as in `PreparedTask`.
    """

    unit: ClassVar[str] = "tokens"
    items: ClassVar[str] = "training pairs"
    numbers: NDArray[np.int64] | None = None
    adapt: AdaptWeights | None = None
    reinit: tuple[str, ...] = ()
    batches: Any
    has_targets: ClassVar[bool] = False
    """True if the second side is a target, whose last token is not read."""
    _valid: Any

    def __init__(self, predictor: ModelT) -> None:
        self.predictor = predictor
        self.model: Any = predictor.model
        self.d_model: int = predictor.recipe.model.d_model

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return next(self.predictor.model.parameters()).device

    @property
    def waits(self) -> bool:
        """True if a packed loss reads values of a GPU."""
        return False

    def padding_reason(self) -> str:
        """Reason for which batches stay padded; empty for none."""
        return ""

    @functools.cached_property
    def shape(self) -> OneShape:
        """Shape of packed batches."""
        shape: OneShape = self.batches.one_shape(self.has_targets)
        return shape

    def describe(self, batch: Any) -> str:
        """Describe a batch by the numbers of its rows."""
        rows = batch.rows if self.numbers is None else self.numbers[batch.rows]
        return describe_batch(self.items, rows)

    def higher_is_better(self, score: str) -> bool:
        """True unless the score is a loss or an error rate."""
        if score in METRICS:
            return make_metric(score).higher_is_better
        return score not in LOSSES

    def validation_checksum(self, score: str) -> str:
        """Checksum of the data and settings behind a score."""
        return checksum_of(self._valid.checksum(), *self.behind(score))

    def behind(self, score: str) -> Sequence[Any]:
        """Facts behind a score, beside the validation batches."""
        return ()

    @torch.inference_mode()
    def mean_loss(self, sums: Iterable[LossSums]) -> float:
        """Loss in nats per unit over batches, whose sums may be computed lazily."""
        nll, count = 0.0, 0
        for batch in sums:
            nll += batch.nll.item()
            count += batch.tokens
        return nll / count


NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")


def label_loss(scores: Tensor, labels: Tensor, smoothing: float) -> LossSums:
    """Cross-entropy of the right labels (b,), perhaps IGNORED, given the scores (b, n_labels) of
    all."""
    labels, scores = labels.to(scores.device), scores.float()
    cross_entropy = functools.partial(F.cross_entropy, ignore_index=IGNORED, reduction="sum")
    total = cross_entropy(scores, labels, label_smoothing=smoothing)
    nll = cross_entropy(scores.detach(), labels)
    return LossSums(total, nll, len(labels))


def save_labels(run: Path, labels: tuple[str, ...]) -> None:
    """Write the labels into a run directory.  Raises RunError when that cannot be done."""
    if not Ranks.present().is_main:
        return
    lines = ",\n  ".join(json.dumps(label, ensure_ascii=False) for label in labels)
    write_text(run / FILE, f"[\n  {lines}\n]\n")


def in_order(labels: Iterable[str]) -> tuple[str, ...]:
    """Labels in the order of the alphabet, or of size if all of them are numbers."""
    names = tuple(labels)
    if all(NUMBER.fullmatch(label) for label in names):
        return tuple(sorted(names, key=lambda label: (Decimal(label), label)))
    return tuple(sorted(names))


def _labels_of_base(fine_tune: FineTuneConfig | None) -> tuple[str, ...]:
    if fine_tune is None or not (Path(fine_tune.run) / FILE).is_file():
        return ()
    return load_labels(Path(fine_tune.run))


def new_head(labels: tuple[str, ...], fine_tune: FineTuneConfig | None) -> tuple[str, ...]:
    """Head weights that cannot come from the base run: `reinit` of `train`.

    labels: labels of the head; () for spans, if both runs have span heads.
    """
    return () if labels == _labels_of_base(fine_tune) else ("head.output.",)


def check_unknown(unknown: int, total: int, split: Split, kind: str, labels: Sequence[str]) -> None:
    """Warn of `unknown` of the `total` items of a split, texts or images by `kind`, that have none
    of the training's labels.  Raises DataError if all have, or if they are of training."""
    if unknown and split == "train":
        raise DataError(f"the labels of the training {kind}s have changed; start a new run")
    if unknown == total:
        raise DataError(f"no {split} {kind} has a label of the training {kind}s ({labels[0]!r}, …)")
    if unknown:
        message = "%d of %d %s %ss have labels that no training %s has; they count as wrong"
        logger.warning(message, unknown, total, split, kind, kind)


def labels_for(
    run: Path,
    training_labels: Iterable[str],
    order: Sequence[str] | None = None,
    fine_tune: FineTuneConfig | None = None,
) -> tuple[str, ...]:
    """Labels of a run before training: existing labels, or else those found in the data.

    training_labels: of every training example; read only when the run has none yet.  order: all
    possible labels, in order; by default the order of `in_order`. fine_tune: base run, whose order
    is kept if it has the same labels.  Raises DataError for a blank label and for fewer than two,
    RunError if the run's labels are missing.
    """
    if (run / FILE).is_file() or checkpoints_of(run):  # their weights are of those very labels
        return load_labels(run)
    counts = Counter(training_labels)
    labels = in_order(counts)
    if not labels:
        raise DataError(
            "no training examples: data.train is empty, or data.hold_out takes all of it"
        )
    if len(labels) < 2:
        raise DataError(
            f"all {counts.total()} training examples have the label {labels[0]!r}; a classifier "
            "needs two or more (is data.train.label the right column?)"
        )
    if len(labels) > 100 and 2 * len(labels) > counts.total():
        message = "%d training examples have %d labels; is data.train.label the right column?"
        logger.warning(message, counts.total(), len(labels))
    labels = labels if order is None else tuple(order)
    if "" in labels:
        raise DataError(
            f"{counts['']} of {counts.total()} training examples have a blank label; name it "
            "or remove them"
        )
    theirs = _labels_of_base(fine_tune)
    if set(theirs) == set(labels):  # the rows of its head are in its order
        labels = theirs
    save_labels(run, labels)
    return labels


def to_padded(
    rows: Sequence[Ids],
    segments: Sequence[Ids] | None = None,
    device: torch.device | str = "cpu",
) -> Padded:
    """Rows of ids padded on the right, (b, t); with segments (b, t, 2), ids before segments.

    rows: ids of each row.  device: of the result.
    """
    lengths = np.array([len(row) for row in rows])
    width = int(lengths.max())
    real = np.arange(width) < lengths[:, None]
    values = np.full(real.shape, PAD, dtype=np.int64)
    values[real] = np.concatenate(rows)
    if segments is not None:
        numbers = np.zeros_like(values)
        numbers[real] = np.concatenate(segments)
        values = np.stack([values, numbers], -1)
    padding = "none" if bool(real.all()) else "right"
    return Padded(torch.from_numpy(values), torch.from_numpy(real), padding).to(device)  # type: ignore[arg-type]


class EncodedTexts:
    """Rows in contiguous memory: 5 bytes per token."""

    def __init__(self) -> None:
        self._ids = array("i")
        self._segments = array("b")
        self._ends = array("q", [0])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def add(self, rows: Iterable[Row]) -> None:
        """Append rows."""
        for row in rows:
            self._ids.extend(row.ids)
            self._segments.extend(row.segments)
            self._ends.append(len(self._ids))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(n,) tokens of each row."""
        ends = np.array(self._ends, np.int64)
        return ends[1:] - ends[:-1]

    def row(self, i: int) -> Row:
        """A row, by number."""
        inside = slice(self._ends[i], self._ends[i + 1])
        return Row(np.array(self._ids[inside]), np.array(self._segments[inside]))

    def padded(self, numbers: NDArray[np.integer[Any]], segmented: bool) -> Padded:
        """Some rows, padded on the right: (b, t), or (b, t, 2) with their segments."""
        return rows_padded([self.row(i) for i in numbers], segmented)


def rows_padded(rows: Sequence[Row], segmented: bool) -> Padded:
    """Rows padded on the right: (b, t), or (b, t, 2) with their segments."""
    segments = [row.segments for row in rows] if segmented else None
    return to_padded([row.ids for row in rows], segments)


def leave_out_tokens(tokens: Padded, share: float) -> Padded:
    """Drop tokens of rows at random, each with probability `share`.

    tokens: (b, t), or (b, t, 2) with segments.  BOS and EOS stay.  The random numbers are torch's.
    """
    values = tokens.values
    ids = values if values.dim() == 2 else values[..., 0]
    retained = (ids == BOS) | (ids == EOS) | (torch.rand(ids.shape, device=ids.device) >= share)
    retained &= tokens.real
    width = int(retained.sum(1).max())
    order = retained.logical_not().byte().argsort(dim=1, stable=True)[:, :width]
    rows = torch.arange(len(order), device=order.device)[:, None]
    real = retained[rows, order]
    return Padded(values[rows, order], real, "none" if bool(real.all()) else "right")


@torch.inference_mode()
def encode_batches(
    model: nn.Module, rows: Sequence[Row], batch_tokens: int, segmented: bool = False
) -> list[Tensor]:
    """Model output of each row, in order, on the CPU.

    model: maps `Padded` ids to a tensor (b, ...); batches have rows of similar length, so outputs
    by position are as wide as the longest row. batch_tokens: positions in a batch. segmented: the
    model uses segments.
    """
    model.eval()
    device = next(model.parameters()).device
    lengths = [len(row.ids) for row in rows]
    results: list[Tensor] = [torch.empty(0)] * len(rows)
    for chosen in in_batches(range(len(rows)), lengths, batch_tokens):
        segments = [rows[i].segments for i in chosen] if segmented else None
        outputs = model(to_padded([rows[i].ids for i in chosen], segments, device)).cpu()
        for i, output in zip(chosen, outputs, strict=True):
            results[i] = output
    return results


def tokenizer_for(
    config: Any,
    fine_tune: FineTuneConfig | None,
    run: Path,
    texts: Iterable[str],
    name: str = "tokenizer",
    name_in_base: str = "",
) -> Tokenizer:
    """Tokenizer of a run before training, saved in its directory under `name`.

    config: section `text` of a recipe, with a `TokenizerConfig` as `name`.  Taken from the
    directory, else from the base run, else learnt from `texts`, which are read only then.
    name_in_base: its name there, by default the same.  Raises RunError if a required tokenizer is
    missing.
    """
    saved = saved_tokenizer(run, name)
    if saved is not None:
        return saved
    if checkpoints_of(run):  # their weights are of that very tokenizer
        raise missing_tokenizers(run)
    section: TokenizerConfig = getattr(config, name)
    if fine_tune is not None:
        base, theirs_is = Path(fine_tune.run), name_in_base or name
        tokenizer = saved_tokenizer(base, theirs_is)
        if tokenizer is None:
            raise missing_tokenizers(base)
        theirs = base_settings(base).get("text", {}).get(theirs_is)
        if theirs and getattr(parse(type(config), {name: theirs}), name) != section:
            raise SettingError(
                f"text.{name} differs from {base}, but its weights need the same tokenizer; "
                "remove it"
            )
        with ProgressCounter("checking texts for unknown characters") as count:
            tell_of_training_texts(tokenizer, count.each(texts))
    else:
        with ProgressCounter("reading texts for the vocabulary") as count:
            counted = count.each(texts, "learning the vocabulary")
            tokenizer = train_tokenizer(section, counted)
    tokenizer.save(run / f"{name}{tokenizer.suffix}")
    return tokenizer

"""Settings of training, and learning rates as functions of the step."""

import math
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from transduce.data.sources import FilePath
from transduce.errors import SettingError
from transduce.settings.paths import absolute_path
from transduce.settings.sections import ByKind, section
from transduce.text.alignment import WordUnit

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
CountOrOff = Annotated[int, Field(ge=0)]


@section
class Noam:
    """factor · m^-0.5 · min(step^-0.5, step · warmup^-1.5): equation (3) of the paper."""

    kind: Literal["noam"] = "noam"
    factor: Positive = 1.0
    """Factor of the learning rate."""
    warmup_steps: Count = 4000
    """Steps of linear rise."""


@section
class InverseSquareRoot:
    """Linear rise to `peak`, then peak · √(warmup / step)."""

    kind: Literal["inverse-sqrt"] = "inverse-sqrt"
    peak: Positive = 5e-4
    """Highest rate."""
    warmup_steps: Count = 4000
    """Steps of linear rise."""


@section
class Cosine:
    """Half a cosine from `peak` down to `floor` at the end of the budget, times a linear rise.

    The cosine falls during warm-up too: the highest rate is 0.90 of `peak` with a fifth of the
    steps for warm-up, and nearly `peak` with a hundredth.
    """

    kind: Literal["cosine"] = "cosine"
    peak: Positive = 1e-3
    """Highest rate."""
    floor: Annotated[float, Field(ge=0)] = 0.0
    """Rate at the end."""
    warmup_steps: Count = 400
    """Steps of linear rise."""


@section
class Constant:
    """Linear rise to `peak`, then level."""

    kind: Literal["constant"] = "constant"
    peak: Positive = 1e-3
    """Highest rate."""
    warmup_steps: Count = 1
    """Steps of linear rise."""


ScheduleConfig = Annotated[Noam | InverseSquareRoot | Cosine | Constant, ByKind()]


@section
class _Moments:
    """Settings of Adam; the defaults are the paper's (section 5.3)."""

    beta1: Share = 0.9
    """Decay of the mean of the gradients."""
    beta2: Share = 0.98
    """Decay of the mean of their squares."""
    epsilon: Positive = 1e-9
    """Added to the square root of the latter."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decoupled decay of matrices; biases, norms and embeddings are excluded."""


@section
class AdamConfig(_Moments):
    """Adam, or AdamW when `weight_decay` is not 0."""

    kind: Literal["adam"] = "adam"


@section
class MuonConfig(_Moments):
    """Muon for the matrices of the layers, Adam for all other parameters."""

    kind: Literal["muon"] = "muon"
    momentum: Share = 0.95
    """Decay of the moving average of a matrix's gradient."""
    rms: Positive = 0.4
    """Root mean square of the entries of a matrix's update, in units of the learning rate; usually
    0.2 to 0.4 with Adam."""


OptimizerConfig = Annotated[AdamConfig | MuonConfig, ByKind("adam")]


@section
class TrainingConfig:
    """Settings of training."""

    steps: Count = 100_000
    """Optimizer steps; the end of the budget unless `minutes` comes first."""
    minutes: Positive | None = None
    """Wall-clock budget of the whole run, from reading the data to the last checkpoint; schedules
    that end with the budget follow whichever limit is nearer.  Results are then not exactly
    reproducible."""
    batch_tokens: Count = 4096
    """Maximum tokens of a batch, padding included, on the source and on the target side; a longer
    pair is a batch of its own."""
    accumulate: Annotated[int, Field(ge=1, lt=2**31)] = 1
    """Batches accumulated into one step."""
    label_smoothing: Share = 0.1
    """Share of the target probability spread evenly over the vocabulary."""
    clip_norm: Annotated[float, Field(ge=0)] = 0.0
    """Maximum norm of the gradient; 0 for no clipping."""
    non_finite: Literal["stop", "skip"] = "stop"
    """Action on a non-finite loss or gradient: stop, or skip the step; the batch is saved in the
    run directory, under `non_finite`."""
    skip_at_most: Count = 10
    """Maximum number of consecutive skipped steps before training stops."""
    optimizer: OptimizerConfig = AdamConfig()
    schedule: ScheduleConfig = Noam()
    ema: Share = 0.0
    """Decay of an exponential moving average of the weights, used for validation and kept; 0 for
    none."""
    average_last: CountOrOff = 0
    """Number of last checkpoints averaged at the end (section 6.1); 0 keeps the best weights, 1 the
    last."""
    validate_every: Count = 1000
    """Steps between validations, each with a checkpoint."""
    patience: CountOrOff = 0
    """Validations without improvement before training stops; 0 to use the whole budget."""
    select_by: str = "loss"
    """Score that selects the best weights: "loss" or a validation metric."""
    keep_last: Count = 2
    """Checkpoints to keep, and at least as many as `average_last` needs."""
    log_every: Count = 50
    """Steps between two lines of `metrics.jsonl`."""
    precision: Literal["float32", "bf16"] = "float32"
    """bf16 runs matrix products in bfloat16, which is fast on GPUs and on processors with AMX or
    AVX-512 BF16; weights stay float32."""
    recompute: bool = False
    """Gradient checkpointing: keep only the inputs of Transformer layers and recompute the rest in
    the backward pass; saves memory for a third more time."""
    compile: bool = False
    """Compile the loss of packed batches, else the stacks, with `torch.compile`; for GPUs, costs
    minutes at the start."""
    sharding: Literal["none", "full"] = "none"
    """"full" shards weights, gradients and optimizer state over the processes of torchrun, for
    models too large for one GPU; "none" replicates them."""
    rank_timeout: Annotated[float, Field(gt=0, le=1440)] = 1440.0
    """Minutes that a process of torchrun waits for another, in the data or a step, before training
    ends; it is named after one."""
    device: str = "auto"
    """PyTorch device such as "cpu" or "cuda:1"; "auto" selects a GPU if there is one."""
    threads: Annotated[int, Field(ge=0, le=1024)] = 0
    """CPU threads, and processes that encode data; 0 for PyTorch's default, and one process per
    core."""
    film: CountOrOff = 0
    """Points of training at which attention of three held-out sentences is kept, for `explain`;
    they lie evenly on a logarithmic scale of the share of the budget that is spent; 0 for none."""
    tensorboard: bool = False
    """Write TensorBoard events into the run directory as well (extra `tensorboard`)."""


@section
class RDropTrainingConfig(TrainingConfig):
    """Training settings of tasks that support R-Drop."""

    r_drop: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Weight α of R-Drop: divergence of two dropout passes over each batch; 0 for one pass."""


@section
class GuidedAlignmentConfig:
    """Guided alignment: the supervised head, and its links."""

    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.05
    """Weight of the alignment loss, relative to the translation loss."""
    layer: int = -1
    """Decoder layer, from 0, or from -1 for the last."""
    head: Annotated[int, Field(ge=0)] = 0
    """Attention head of that layer."""
    links: FilePath | None = None
    """File with the links of each pair of `data.train`, in Pharaoh's format; by default, links are
    learnt from the training pairs by EM in both directions."""
    unit: WordUnit = "words"
    """Unit of the indices in the file: words between spaces, or also characters of Chinese and
    Japanese."""


@section
class GuidedTrainingConfig(RDropTrainingConfig):
    """Training settings of models with trainable cross-attention."""

    alignment: GuidedAlignmentConfig | None = None
    """Guided alignment of one cross-attention head; by default none."""


def check_head(config: GuidedAlignmentConfig, n_layers: int, n_heads: int) -> None:
    """Raises SettingError if the decoder does not have the head.

    config: of guided alignment.  n_layers, n_heads: of the decoder.
    """
    if not n_layers:
        raise SettingError("training.alignment needs cross-attention, but the decoder has none")
    if not -n_layers <= config.layer < n_layers:
        raise SettingError(
            f"training.alignment.layer = {config.layer} is out of range: the decoder has layers "
            f"0 to {n_layers - 1}, or -1 to {-n_layers} counted from the last"
        )
    if config.head >= n_heads:
        raise SettingError(
            f"training.alignment.head = {config.head} is out of range: the decoder has heads 0 to "
            f"{n_heads - 1}"
        )


@section
class LoraConfig:
    """W + alpha / rank · B·A in place of W, with only A and B trained (Hu et al. 2022)."""

    rank: Annotated[int, Field(ge=1)] = 8
    """Rows of A and columns of B; at most the smaller side of each W."""
    alpha: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 16.0
    """Scale of the update: alpha / rank."""
    targets: Annotated[tuple[str, ...], Field(min_length=1)] = ("*attention.*",)
    """Name patterns of linear layers to adapt; by default all projections of
    self-attention and cross-attention."""


@section
class FineTuneConfig:
    """Fine-tuning: start from the weights of another run."""

    run: Annotated[str, BeforeValidator(absolute_path)]
    """Run directory, trained or imported; may contain `~` and `$VARIABLE`, and is stored as an
    absolute path."""
    freeze: tuple[str, ...] = ()
    """Name patterns of frozen parameters, such as "encoder.*"; `*` matches any text, with dots."""
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Learning rate of each layer, as a share of the rate of the layer above."""
    lora: LoraConfig | None = None
    """Train low-rank updates, and weights missing in the base run, instead of all weights."""


def learning_rate(schedule: ScheduleConfig, step: int, progress: float, d_model: int) -> float:
    """Learning rate of `step`, from 1.  progress: share of the budget used, for the cosine.

    schedule: settings of the learning rate.  d_model: width of the model, for Noam.
    """
    match schedule:
        case Noam(factor=factor, warmup_steps=warmup):
            return factor * float(d_model**-0.5 * min(step**-0.5, step * warmup**-1.5))
        case InverseSquareRoot(peak=peak, warmup_steps=warmup):
            return peak * min(step / warmup, math.sqrt(warmup / step))
        case Cosine(peak=peak, floor=floor, warmup_steps=warmup):
            level = floor + (peak - floor) * (1 + math.cos(math.pi * min(progress, 1.0))) / 2
            return min(step / warmup, 1.0) * level
        case Constant(peak=peak, warmup_steps=warmup):
            return min(step / warmup, 1.0) * peak


def long_warm_up(schedule: ScheduleConfig, fitting: int, why: str) -> Iterator[str]:
    """Message about a warm-up longer than half of the `fitting` steps, which `why` limits.

    The remedy is more steps: a shorter warm-up needs a lower peak, how much lower depends on the
    model, and post-norm stacks diverge by one that is too short.
    """
    warmup = schedule.warmup_steps
    if 2 * warmup <= fitting or warmup == 1:
        return
    effect = f"takes {100 * warmup / fitting:.0f} % of the steps"
    if fitting < warmup:
        effect = f"reaches {100 * fitting / warmup:.0f} % of the peak learning rate"
    yield f"{why}: a warm-up of {warmup:,} steps {effect}; allow more steps"

"""Settings of training."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from transduce.config import DefaultKind, section

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
CountOrOff = Annotated[int, Field(ge=0)]


@section
class Noam:
    """factor · m^-0.5 · min(step^-0.5, step · warmup^-1.5): equation (3) of the paper."""

    kind: Literal["noam"] = "noam"
    factor: Positive = 1.0
    warmup_steps: Count = 4000


@section
class InverseSquareRoot:
    """Linear rise to `peak`, then peak · √(warmup / step)."""

    kind: Literal["inverse-sqrt"] = "inverse-sqrt"
    peak: Positive = 5e-4
    warmup_steps: Count = 4000


@section
class Cosine:
    """Half a cosine from `peak` down to `floor` at the end of the budget, times a linear rise.

    It falls during the rise too: with a fifth of the steps to warm up the highest rate is 0.90 of
    `peak`, with a hundredth of them it is nearly all of it.
    """

    kind: Literal["cosine"] = "cosine"
    peak: Positive = 1e-3
    floor: Annotated[float, Field(ge=0)] = 0.0
    warmup_steps: Count = 400


@section
class Constant:
    """Linear rise to `peak`, then level."""

    kind: Literal["constant"] = "constant"
    peak: Positive = 1e-3
    warmup_steps: Count = 1


ScheduleConfig = Annotated[
    Noam | InverseSquareRoot | Cosine | Constant, Field(discriminator="kind")
]


@section
class _Moments:
    """What Adam is set by; the defaults are the paper's (section 5.3)."""

    beta1: Share = 0.9
    beta2: Share = 0.98
    epsilon: Positive = 1e-9
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decoupled decay of matrices; biases, norms and embeddings are left alone."""


@section
class AdamConfig(_Moments):
    """Adam, or AdamW when `weight_decay` is not 0."""

    kind: Literal["adam"] = "adam"


@section
class MuonConfig(_Moments):
    """Muon for the matrices of the layers, Adam for all else."""

    kind: Literal["muon"] = "muon"
    momentum: Share = 0.95
    """Decay of the mean of the gradients of a matrix."""
    rms: Positive = 0.4
    """Root mean square of the entries of a matrix's step, in learning rates."""


OptimizerConfig = Annotated[
    AdamConfig | MuonConfig, Field(discriminator="kind"), DefaultKind("adam")
]


@section
class TrainingConfig:
    """How a model is trained."""

    steps: Count = 100_000
    """Optimizer steps; the end of the budget unless `minutes` comes first."""
    minutes: Positive | None = None
    """Wall-clock budget of the whole run, from reading the data to the last checkpoint; schedules
    that end with the budget follow whichever is nearer its end."""
    batch_tokens: Count = 4096
    """Neither side of a batch, padding included, is larger than this many tokens."""
    accumulate: Annotated[int, Field(ge=1, lt=2**31)] = 1
    """Batches whose gradients are summed into one step."""
    fit_memory: bool = False
    """Before training, find batches that fit, which a step of `batch_tokens * accumulate` is cut
    into; the recipe in the run directory then has both, and this off."""
    memory_limit: Positive | None = None
    """GiB that `fit_memory` may fill: of the GPU, or of this process; by default most of what is
    free."""
    label_smoothing: Share = 0.1
    clip_norm: Annotated[float, Field(ge=0)] = 0.0
    """Largest norm of the whole gradient; 0 for no clipping."""
    non_finite: Literal["stop", "skip"] = "stop"
    """At a loss or gradient that is not finite: stop, or pass over the step; either way its batch
    is kept in the run directory, under `non_finite`."""
    skip_at_most: Count = 10
    """Steps in a row that may be skipped before training stops all the same."""
    optimizer: OptimizerConfig = AdamConfig()
    schedule: ScheduleConfig = Noam()
    ema: Share = 0.0
    """Decay of an exponential moving average of the weights, which is then validated and kept;
    0 for none."""
    average_last: CountOrOff = 0
    """Average the weights of the last so many checkpoints at the end (section 6.1); 0 for none,
    which keeps the best weights, 1 to keep the last."""
    validate_every: Count = 1000
    """Steps between validations; each also writes a checkpoint to resume from."""
    patience: CountOrOff = 0
    """Stop after so many validations without improvement; 0 to use the whole budget."""
    select_by: str = "loss"
    """What decides which weights are best: "loss" or one of the validation metrics."""
    keep_last: Count = 2
    """Checkpoints to keep (at least those that `average_last` needs are kept)."""
    log_every: Count = 50
    """Steps between two lines of `metrics.jsonl`."""
    precision: Literal["float32", "bf16"] = "float32"
    """bf16 runs matrix products in bfloat16, which is fast on GPUs and on processors with AMX or
    AVX-512 BF16; weights stay float32."""
    recompute: bool = False
    """Keep the inputs of Transformer layers alone for the way back, and compute what is inside them
    again (gradient checkpointing): less memory for a third more time."""
    compile: bool = False
    """Compile the stacks with `torch.compile`; pays on GPUs, costs minutes at the start."""
    sharding: Literal["none", "full"] = "none"
    """"full" gives each process of torchrun a part of every weight, its gradient and what the
    optimizer keeps of it, for models that are too large for one GPU; "none" gives each all."""
    device: str = "auto"
    """"auto" takes a GPU when there is one."""
    threads: Annotated[int, Field(ge=0, le=1024)] = 0
    """CPU threads, and processes that encode data; 0 for PyTorch's choice, and one a core."""
    tensorboard: bool = False
    """Write TensorBoard events into the run directory as well (extra `tensorboard`)."""


@section
class RDropTrainingConfig(TrainingConfig):
    """The same for tasks whose loss can ask two passes over a batch to agree."""

    r_drop: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """α of R-Drop: how much two passes of dropout over each batch should agree; 0 for one pass."""

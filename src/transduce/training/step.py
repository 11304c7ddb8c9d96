"""A step of the optimizer over some batches, with its faults handled; steps of equal shape
launched by a CUDA graph."""

import collections
import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from transduce.errors import MemoryLimitError, is_out_of_memory
from transduce.nn import attention as packed_attention
from transduce.nn.attention import MultiHeadAttention
from transduce.nn.kernels import relative_slowdown, slow_bf16_hint
from transduce.nn.positions import Positions
from transduce.nn.repeated_work import RepeatedWork
from transduce.nn.state import KeyValueCache
from transduce.nn.transformer import (
    DecoderLayer,
    EncoderLayer,
    TransformerDecoder,
    TransformerEncoder,
)
from transduce.sequence import moved
from transduce.training.config import TrainingConfig
from transduce.training.distributed import Ranks, Shards, gathered
from transduce.training.loss import LossSums
from transduce.training.task import Batch, PackedTask, TrainingTask


def compile_stacks(model: nn.Module, **options: Any) -> None:
    """Compile encoder and decoder, as functions to tensors: tuples that PyTorch 2.11 compiles may
    have lost their parts.  options: as of `torch.compile`."""
    for name, stack in model.named_children():
        if name in ("encoder", "decoder"):
            _compile(stack, options)


def _compile(stack: nn.Module, options: dict[str, Any]) -> None:
    forward = stack.forward
    values = torch.compile(lambda *inputs: forward(*inputs).values, **options)
    stack.forward = lambda x, *rest: x.with_values(values(x, *rest))


def recompute_layers(model: nn.Module) -> None:
    """Keep only the inputs of Transformer layers; the backward pass recomputes the rest."""
    layers = [m for m in model.modules() if isinstance(m, EncoderLayer | DecoderLayer)]
    assert layers, "recipes without Transformer layers are refused when parsed"
    for layer in layers:
        layer.forward = partial(_recomputed, layer.forward)  # type: ignore[method-assign]


def _recomputed(forward: Callable[..., Tensor], x: Tensor, *rest: Any) -> Tensor:
    """A layer's output, (r, t, m) or (n, m) -> the same shape."""
    if not torch.is_grad_enabled():
        return forward(x, *rest)

    def inside(x: Tensor) -> Tensor:
        # A cache must not append twice in two passes; in training it has no later use.
        reinit = (KeyValueCache() if isinstance(part, KeyValueCache) else part for part in rest)
        return forward(x, *reinit)

    output: Tensor = checkpoint(inside, x, use_reentrant=False)
    return output


class NarrowWeights:
    """Copies of the matrices that a model trains and uses in a single linear layer each."""

    def __init__(self, model: nn.Module) -> None:
        layers = [module for module in model.modules() if type(module) is nn.Linear]
        every = (p for module in model.modules() for p in module._parameters.values())
        uses = collections.Counter(map(id, every))
        self._layers = [m for m in layers if m.weight.requires_grad and uses[id(m.weight)] == 1]
        self._wide: list[Tensor] = [layer.weight for layer in self._layers]
        self._narrow: list[Tensor] = [nn.Parameter(w.detach().bfloat16()) for w in self._wide]

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Copies in place of the matrices within, for forward and backward passes."""
        with torch.no_grad():
            torch._foreach_copy_(self._narrow, self._wide)
        try:
            for layer, narrow in zip(self._layers, self._narrow, strict=True):
                layer._parameters["weight"] = cast(nn.Parameter, narrow)
            yield
        finally:
            for layer, wide in zip(self._layers, self._wide, strict=True):
                layer._parameters["weight"] = cast(nn.Parameter, wide)

    def add_gradients(self) -> None:
        """Add the gradients of the copies to those of the matrices, in float32."""
        for wide, narrow in zip(self._wide, self._narrow, strict=True):
            if narrow.grad is None:
                continue
            wide.grad = narrow.grad.float() if wide.grad is None else wide.grad + narrow.grad
            narrow.grad = None


def packer_of(
    task: TrainingTask, config: TrainingConfig, log: Callable[[str], None]
) -> PackedTask | None:
    """The task, if its batches are to be packed: on a GPU, wherever its kernel can.

    log: writes the line that names the reason for padding, on a GPU.
    """
    device = next(task.model.parameters()).device
    if device.type != "cuda":
        return None
    if isinstance(task, PackedTask):
        dtype = torch.bfloat16 if config.precision == "bf16" else torch.float32
        reason = _own_loss(type(task)) or task.padding_reason()
        reason = reason or padding_reason(task.model, device, dtype)
        if not reason:
            return task
    else:
        reason = f"{type(task).__name__} has no packed loss"
    log(f"batches are padded instead of packed, which is slower on a GPU: {reason}")
    return None


def _own_loss(kind: type) -> str:
    """Reason for padding if a subclass of a task that packs computes another loss."""
    first = next(c for c in kind.__mro__ if {"loss", "packed_loss"} & vars(c).keys())
    return "" if "packed_loss" in vars(first) else f"{first.__name__} computes its own loss"


def padding_reason(model: nn.Module, device: torch.device, dtype: torch.dtype) -> str:
    """Setting of a model for which its batches have to stay padded; empty for none.

    device, dtype: of the computation, for attention by borders.
    """
    for name in ("encoder", "decoder"):
        stack = getattr(model, name, None)
        if stack is None:
            continue
        if not isinstance(stack, TransformerEncoder | TransformerDecoder):
            return f'model.{name}.kind is not "transformer"'
        if type(stack.positions).bias is not Positions.bias:
            return f"model.{name}.positions add a bias to the scores of attention"
        for attention in stack.modules():
            if isinstance(attention, MultiHeadAttention):
                if attention.dropout:
                    return f"model.{name}.attention_dropout is not 0"
                d_head = attention.width // attention.n_heads
                if refusal := packed_attention.refusal(device, d_head, dtype):
                    return refusal
    return ""


class NonFiniteError(Exception):
    """A loss or a gradient, `what`, of step `number` is not finite; the step has changed nothing.
    batches: possible causes; both are empty if it occurred on another rank."""

    def __init__(self, number: int, what: str, batches: Sequence[Any]) -> None:
        super().__init__(what)
        self.number = number
        self.what = what
        self.batches = batches


class OptimizerStep:
    """Optimizer steps along the gradient of the mean loss over all target tokens of a step."""

    def __init__(
        self,
        task: TrainingTask,
        config: TrainingConfig,
        optimizer: torch.optim.Optimizer,
        ranks: Ranks,
        log: Callable[[str], None],
        shards: Shards | None = None,
        packer: PackedTask | None = None,
    ) -> None:
        """log: writes a line.  shards: the task, if its model is sharded.  packer: the task, if
        its batches are to be packed."""
        self.task = task
        self.packer = packer
        self._loss: Callable[[Any], LossSums] = packer.packed_loss if packer else task.loss
        if packer is not None and config.compile and not packer.waits:
            self._loss = torch.compile(self._loss, fullgraph=True, dynamic=False)
        self._nll = 0.0
        self.shards = shards
        self.config = config
        self.optimizer = optimizer
        self.ranks = ranks
        self._log = log
        self._splits = 0
        """Times that each batch is halved."""
        self._device = next(task.model.parameters()).device
        about_precision = relative_slowdown if config.precision == "bf16" else slow_bf16_hint
        if hint := about_precision(self._device):
            log(hint)

    @property
    def is_read(self) -> bool:
        """True if `read` waits for nothing, as the step is known to be complete."""
        return True

    def read(self) -> float:
        """Negative log-likelihood, summed over target tokens, of all steps since the last call.
        Raises NonFiniteError if any of them changed nothing."""
        nll, self._nll = self._nll, 0.0
        return nll

    def __call__(self, number: int, batches: Sequence[Batch], rate: float, count: int) -> None:
        """Make a step of the batches of this rank, with `count` target tokens over all ranks.

        A batch too large for the memory is split; the step stays the same, since sums of losses add
        up.  Raises NonFiniteError, and MemoryLimitError if a single row is too large.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["scale"]
        self.task.model.train()
        parts, sums = self._gradient(number, batches, count)
        if self.shards is None:
            self.ranks.sum_gradients(self.task.model.parameters())
        parameters = [p for p in self.task.model.parameters() if p.grad is not None]
        norm = gathered(nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]))
        # Read at once, and only here: each look at a number of a GPU waits for all its work.
        *read, norm_read = torch.stack([*sums.flatten(), norm.to(sums)]).tolist()
        nll = self._agreed(number, read, parts)
        if not math.isfinite(norm_read):
            raise NonFiniteError(number, f"gradient norm is {norm_read}", batches)
        if self.config.clip_norm:
            nn.utils.clip_grads_with_norm_(parameters, self.config.clip_norm, norm)
        self.optimizer.step()
        self._nll += nll

    def _agreed(self, number: int, read: Sequence[float], parts: Sequence[Batch]) -> float:
        """Likelihood of all ranks, from loss and likelihood of each part of this rank.  Raises
        NonFiniteError on every rank if a loss of any is not finite."""
        losses = zip(read[::2], parts, strict=True)
        failed = next((loss for loss in losses if not math.isfinite(loss[0])), None)
        failures, nll = self.ranks.all_reduce_sum(failed is not None, sum(read[1::2]))
        if failures:
            if failed is None:
                raise NonFiniteError(number, "", [])
            raise NonFiniteError(number, f"loss is {failed[0]}", [failed[1]])
        return nll

    def _gradient(
        self, number: int, batches: Sequence[Batch], count: int
    ) -> tuple[list[Batch], Tensor]:
        """Add the gradient of this rank's batches, split where memory is short; returns the parts,
        and (parts, 2) their losses and negative log-likelihoods.  A failed attempt leaves no trace,
        so a resumed run, which has to find the split again, is the same."""
        restore = random_state(self._device)
        while True:
            self.optimizer.zero_grad(set_to_none=True)
            parts = [part for batch in batches for part in _divided(batch, self._splits)]
            sums: list[Tensor] = []
            for part in parts:
                part_sums = self._part_of_gradient(number, part, count)
                if part_sums is None:
                    break
                sums.append(part_sums)
            if len(sums) == len(parts):
                return parts, torch.stack(sums)
            self._split_more(number, parts[len(sums)])
            restore()

    def _part_of_gradient(self, number: int, batch: Batch, count: int) -> Tensor | None:
        """Add a batch's gradient; returns (2,) its loss and negative log-likelihood, None if out of
        memory."""
        try:
            with self._precision():
                if self.packer is not None and not self._splits:  # halves of one shape are no less
                    loss = self._loss_of(self.packer.pack(batch).to(self._device))
                else:
                    loss = (self.shards or self.task).loss(batch)
                    assert loss.tokens == batch.target_tokens
            (loss.total / count).backward()  # type: ignore[no-untyped-call]
            return torch.stack([loss.total.detach(), loss.nll.detach()])
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            if self.shards is not None:
                raise MemoryLimitError(
                    f"out of memory at step {number:,} in {self.task.describe(batch)}; batches of "
                    "a sharded model cannot be split: lower training.batch_tokens"
                ) from None
            return None

    def _loss_of(self, packed: Any) -> LossSums:
        """Loss of a packed batch on the device; without its count, which differs."""
        return self._loss(packed._replace(target_tokens=0))

    def _split_more(self, number: int, part: Batch) -> None:
        """Split all batches once more.  Raises MemoryLimitError if `part` is a single row."""
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        described = self.task.describe(part)
        if part.halves() is None:
            raise MemoryLimitError(
                f"out of memory at step {number:,} in {described}, a single row; lower the "
                "maximum length in the recipe, or use a smaller model"
            )
        if not self._splits:
            self._log(
                f"out of memory at step {number:,} in {described}; splitting batches from now on, "
                "with the same result: lower training.batch_tokens and raise training.accumulate"
            )
        self._splits += 1

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        if self.config.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, torch.bfloat16)


def _divided(batch: Batch, times: int) -> list[Batch]:
    """The batch halved, each half again, and so on; a single row stays whole."""
    halves = batch.halves() if times else None
    if halves is None:
        return [batch]
    return [part for half in halves for part in _divided(half, times - 1)]


def random_state(device: torch.device) -> Callable[[], None]:
    """A call that sets the random generators of the CPU and the device back to this moment."""
    cpu = torch.get_rng_state()
    gpu = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def restore() -> None:
        torch.set_rng_state(cpu)
        if gpu is not None:
            torch.cuda.set_rng_state(gpu, device)

    return restore


def make_step(
    task: TrainingTask,
    config: TrainingConfig,
    optimizer: torch.optim.Optimizer,
    ranks: Ranks,
    log: Callable[[str], None],
    shards: Shards | None = None,
) -> OptimizerStep:
    """Steps of a task; on a GPU, packed where the task and its model allow it.

    They are recorded and repeated with Adam in one process, unless the loss waits for the GPU, or
    steps may be skipped: the next would have to know.

    config: of training.  optimizer: updates the weights.  ranks: processes that train together.
    log: receives messages.  shards: of weights on several processes; None without.
    """
    packer = packer_of(task, config, log) if shards is None else None
    adam = isinstance(optimizer, torch.optim.AdamW)
    alone = config.non_finite == "stop" and ranks.world == 1
    repeated = packer is not None and not packer.waits and adam and alone
    kind = GraphedStep if repeated else OptimizerStep
    return kind(task, config, optimizer, ranks, log, shards, packer)


class GraphedStep(OptimizerStep):
    """Optimizer steps over packed batches.

    Batches are copied to the same tensors each time, and so are the learning rate and the count of
    target tokens.  A loss or gradient that is not finite, found on the device, keeps the optimizer
    from this step and all later ones; `read` raises its error.
    """

    def __init__(self, *options: Any) -> None:
        """As `OptimizerStep`, with a `packer`."""
        super().__init__(*options)
        device = self._device
        self._is_plain = False
        is_narrow = self.config.precision == "bf16"
        self._narrow = NarrowWeights(self.task.model) if is_narrow else None
        self._inputs: list[Any] = []
        self._work = RepeatedWork(self._compute, device, self._log)
        self._unread: dict[int, Sequence[Batch]] = {}
        self._number = torch.zeros((), dtype=torch.float64, device=device)
        self._count = torch.ones((), device=device)
        self._total_nll = torch.zeros((), dtype=torch.float64, device=device)
        self._failed = torch.zeros((), dtype=torch.float64, device=device)
        self._figures = torch.zeros(self.config.accumulate + 1, device=device)
        self._skip = torch.zeros((), device=device)
        for group in self.optimizer.param_groups:
            group["lr"] = torch.zeros((), device=device)
        self.optimizer.found_inf = self._skip  # type: ignore[attr-defined]

    @property
    def is_read(self) -> bool:
        """False until memory is short."""
        return self._is_plain

    def read(self) -> float:
        """As of any step; waits for the GPU."""
        figures: list[float]
        totals = torch.stack([self._total_nll, self._failed])
        nll, failed, *figures = torch.cat([totals, self._figures.double()]).tolist()
        self._total_nll.zero_()
        batches, self._unread = self._unread.get(int(failed), []), {}
        if failed:
            *losses, norm = figures
            for loss, batch in zip(losses, batches, strict=True):
                if not math.isfinite(loss):
                    raise NonFiniteError(int(failed), f"loss is {loss}", [batch])
            raise NonFiniteError(int(failed), f"gradient norm is {norm}", batches)
        return float(nll) + super().read()

    def __call__(self, number: int, batches: Sequence[Batch], rate: float, count: int) -> None:
        """Launch a step; where memory is short, it and all later ones are as of `OptimizerStep`."""
        if self._is_plain:
            super().__call__(number, batches, rate, count)
            return
        self.task.model.train()
        assert self.packer is not None
        self._place([self.packer.pack(batch) for batch in batches])
        self._unread[number] = batches
        self._number.fill_(number)
        self._count.fill_(count)
        for group in self.optimizer.param_groups:
            group["lr"].fill_(rate * group["scale"])
        restore = None if self._work.is_recorded else random_state(self._device)
        try:
            self._work.launch()
        except (MemoryError, RuntimeError) as error:
            if restore is None or not is_out_of_memory(error):
                raise
            self._give_up()
            restore()
            super().__call__(number, batches, rate, count)

    def _place(self, packed: Sequence[Any]) -> None:
        """Copy packed batches to the tensors of the step."""
        if not self._inputs or not all(map(_alike, self._inputs, packed)):
            self._inputs = [batch.to(self._device) for batch in packed]
            self._work.forget()
            return
        for inputs, batch in zip(self._inputs, packed, strict=True):
            for tensor, new in zip(_leaves(inputs), _leaves(batch), strict=True):
                if isinstance(tensor, Tensor) and isinstance(new, Tensor):
                    tensor.copy_(moved(new, tensor.device))

    def _compute(self) -> None:
        """The whole step on the tensors of the step; reads no value."""
        self.optimizer.zero_grad(set_to_none=True)
        losses, nll = [], torch.zeros_like(self._total_nll)
        with contextlib.nullcontext() if self._narrow is None else self._narrow.in_place():
            for inputs in self._inputs:
                with self._precision():
                    sums = self._loss_of(inputs)
                (sums.total / self._count).backward()  # type: ignore[no-untyped-call]
                if self._narrow is not None:
                    self._narrow.add_gradients()
                losses.append(sums.total.detach())
                nll += sums.nll.detach()
        parameters = [p for p in self.task.model.parameters() if p.grad is not None]
        norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        figures = torch.stack([*losses, norm]).float()
        before = self._failed > 0
        fails = ~before & ~figures.isfinite().all()
        self._figures.copy_(torch.where(fails, figures, self._figures))
        self._failed.copy_(torch.where(fails, self._number, self._failed))
        self._skip.copy_(self._failed > 0)
        if self.config.clip_norm:
            nn.utils.clip_grads_with_norm_(parameters, self.config.clip_norm, norm)
        on_gpu = self._device.type == "cuda"
        recording = on_gpu and torch.cuda.is_current_stream_capturing()
        for group in self.optimizer.param_groups:  # of which PyTorch warns otherwise
            group["capturable"] = recording
        self.optimizer.step()
        self._total_nll.add_(torch.where(self._failed > 0, 0.0, nll))

    def _give_up(self) -> None:
        """Free what the steps of a shape hold."""
        self._is_plain, self._inputs, self._narrow = True, [], None
        self._work.forget()
        self.optimizer.found_inf = None  # type: ignore[attr-defined]


def _leaves(packed: Any) -> Iterator[Tensor | int | str]:
    """Tensors and settings of nested tuples, in order."""
    if isinstance(packed, tuple):
        for part in packed:
            yield from _leaves(part)
    elif isinstance(packed, Tensor | int | str):
        yield packed


def _alike(first: Any, second: Any) -> bool:
    """True if two packed batches are of equal shape."""

    def shape(packed: Any) -> list[Any]:
        leaves = _leaves(packed._replace(target_tokens=0))
        return [leaf.shape if isinstance(leaf, Tensor) else leaf for leaf in leaves]

    return shape(first) == shape(second)

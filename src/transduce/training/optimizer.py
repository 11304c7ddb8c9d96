"""Optimizers: Adam or Muon, over the parameters that are trained."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from transduce.nn.attention import CrossAttention, SelfAttention
from transduce.nn.feed_forward import GatedFeedForward
from transduce.nn.recurrent import number_of_gates
from transduce.training.config import MuonConfig, TrainingConfig
from transduce.training.distributed import Ranks, gathered, own_part, sharded_like
from transduce.training.fine_tuning import is_of_layer, learning_rate_scales

# Jordan's, for which five rounds take singular values of 0.002 to 1 to between 0.68 and 1.14.
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ROUNDS = 5


def orthogonalised(matrices: Tensor) -> Tensor:
    """Matrices (…, a, b) with all their singular values brought near to 1, by five times aX +
    b(XXᵀ)X + c(XXᵀ)²X in the precision of the input.  Zeros stay zeros."""
    is_tall = matrices.size(-2) > matrices.size(-1)
    x: Tensor = matrices.mT if is_tall else matrices
    # Frobenius's norm is at least the largest singular value, which may not be above 1.  Squares of
    # gradients below 1e-22, as of saturated attention, are zero: the largest element becomes 1.
    x = x / x.abs().amax(dim=(-2, -1), keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-30)
    a, b, c = _COEFFICIENTS
    for _ in range(_ROUNDS):
        squares = x @ x.mT
        x = a * x + (b * squares + c * squares @ squares) @ x
    return x.mT if is_tall else x


class Muon(torch.optim.Optimizer):
    """Muon for the groups whose `by_muon` is true, Adam for all others.

    The gradients of a matrix are averaged (Nesterov's way) and their mean is orthogonalised, for
    updates of equal size in all directions, of root mean square `rms` times the learning rate;
    Adam's is usually 0.2 to 0.4, so both can share a learning rate.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        *,
        momentum: float,
        rms: float,
        betas: tuple[float, float],
        eps: float,
        matrices_in: Mapping[Tensor, int],
        ranks: Ranks,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Takes parameter groups as Adam does, with `by_muon` in addition.

        matrices_in: number of matrices stacked in a parameter, if several.  ranks: share the work
        of every step.  dtype: of the products; by default the parameter's.
        """
        super().__init__(groups, {"lr": 0.0})
        self._momentum, self._rms, self._dtype = momentum, rms, dtype
        self._matrices_in, self._ranks = matrices_in, ranks
        rest = self._groups(by_muon=False) or [{"params": []}]  # as where LoRA alone is trained
        self._adam = torch.optim.AdamW(rest, 0.0, betas, eps, fused=True)

    def _groups(self, *, by_muon: bool) -> list[dict[str, Any]]:
        return [group for group in self.param_groups if group["by_muon"] == by_muon]

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Step all parameters with a gradient."""
        # Looked up again, as loading a checkpoint replaces these tensors.
        self._adam.param_groups, self._adam.state = self._groups(by_muon=False), self.state
        self._adam.step()
        for group in self._groups(by_muon=True):
            self._step(group)

    def _step(self, group: dict[str, Any]) -> None:
        parameters = [p for p in group["params"] if p.grad is not None]
        # Matrices of a shape go through the products together.
        alike: dict[tuple[int, ...], list[Tensor]] = {}
        for parameter in parameters:
            for part in gathered(self._direction(parameter)).chunk(self._count(parameter)):
                alike.setdefault(tuple(part.shape), []).append(part)
        directions = {shape: iter(self._orthogonalised(parts)) for shape, parts in alike.items()}
        for parameter in parameters:
            count = self._count(parameter)
            shape = parameter.shape[0] // count, parameter.shape[1]
            step = torch.cat([next(directions[shape]) for _ in range(count)])
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            # An orthogonal matrix has 1 / √(its longer side) as root mean square.
            length = group["lr"] * self._rms * math.sqrt(max(shape))
            own_part(parameter).add_(own_part(sharded_like(parameter, step)), alpha=-length)

    def _orthogonalised(self, parts: list[Tensor]) -> Tensor:
        """Orthogonalised updates, computed in shares by the ranks."""
        matrices = torch.stack(parts)
        directions = torch.zeros_like(matrices)
        share = slice(self._ranks.rank, None, self._ranks.world)
        directions[share] = orthogonalised(matrices[share].to(self._dtype or matrices.dtype))
        return self._ranks.sum_into(directions)

    def _count(self, parameter: Tensor) -> int:
        return self._matrices_in.get(parameter, 1)

    def _direction(self, parameter: Tensor) -> Tensor:
        assert parameter.grad is not None
        state = self.state[parameter]
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        state["momentum"].lerp_(parameter.grad, 1 - self._momentum)
        return parameter.grad.lerp(state["momentum"], self._momentum)


def build_optimizer(
    model: nn.Module, config: TrainingConfig, layer_decay: float = 1.0
) -> torch.optim.Optimizer:
    """Adam over all that is not frozen; or Muon over the matrices of layers, Adam over the rest.
    Weight decay is over matrices that are not embeddings; `scale` of a group:
    `learning_rate_scales`.

    model: with the parameters.  config: of training.  layer_decay: factor of the learning rate from
    a layer to the layer below.
    """
    settings = config.optimizer
    is_muon = isinstance(settings, MuonConfig)
    embeddings = {m.weight for m in model.modules() if isinstance(m, nn.Embedding)}
    scales = learning_rate_scales(model, layer_decay)
    kinds: dict[str, list[tuple[nn.Parameter, float]]] = {"muon": [], "decayed": [], "rest": []}
    for name, p in model.named_parameters():
        if is_muon and p.dim() == 2 and is_of_layer(name):
            kind = "muon"
        else:
            kind = "decayed" if p.dim() > 1 and p not in embeddings else "rest"
        if p.requires_grad:
            kinds[kind].append((p, scales[name]))
    groups: list[dict[str, Any]] = []
    for kind, members in kinds.items():
        decay = 0.0 if kind == "rest" else settings.weight_decay
        for scale in dict.fromkeys(s for _, s in members):
            group = {"weight_decay": decay, "scale": scale, "by_muon": kind == "muon"}
            groups.append({"params": [p for p, s in members if s == scale], **group})
    betas = settings.beta1, settings.beta2
    if isinstance(settings, MuonConfig):
        return Muon(
            groups,
            momentum=settings.momentum,
            rms=settings.rms,
            betas=betas,
            eps=settings.epsilon,
            matrices_in=matrices_in(model),
            ranks=Ranks.present(),
            dtype=torch.bfloat16 if config.precision == "bf16" else None,
        )
    return torch.optim.AdamW(groups, lr=0.0, betas=betas, eps=settings.epsilon, fused=True)


def matrices_in(model: nn.Module) -> dict[Tensor, int]:
    """Numbers of matrices in parameters that are several: projections, gates of recurrent cells."""
    counts: dict[Tensor, int] = {}
    for module in model.modules():
        match module:
            case SelfAttention():
                counts[module.query_key_value.weight] = 3
            case CrossAttention():
                counts[module.key_value.weight] = 2
            case GatedFeedForward():
                counts[module.gate_inner.weight] = 2
            case nn.LSTM() | nn.GRU():
                for parameter in module.parameters():
                    counts[parameter] = number_of_gates(module)
    return counts

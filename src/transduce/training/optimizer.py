"""Optimizers: Adam or Muon, over the parameters that are trained."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from transduce.nn.attention import CrossAttention, SelfAttention
from transduce.nn.feed_forward import GatedFeedForward
from transduce.nn.recurrent import number_of_gates
from transduce.training.config import MuonConfig, TrainingConfig
from transduce.training.distributed import Ranks
from transduce.training.fine_tuning import is_of_layer, learning_rate_scales
from transduce.training.muon import Muon


def build_optimizer(
    model: nn.Module, config: TrainingConfig, layer_decay: float = 1.0
) -> torch.optim.Optimizer:
    """Adam over all that is not frozen; or Muon over the matrices of layers, Adam over the rest.
    Weight decay is over matrices that are not embeddings; `scale` of a group:
    `learning_rate_scales`."""
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

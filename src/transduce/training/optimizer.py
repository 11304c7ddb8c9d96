"""Adam as the recipe sets it, over what is to be trained."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from transduce.training.config import TrainingConfig
from transduce.training.fine_tuning import learning_rate_scales


def build_optimizer(
    model: nn.Module, config: TrainingConfig, layer_decay: float = 1.0
) -> torch.optim.Optimizer:
    """Adam over all parameters that are not frozen.

    Weight decay, if any, is over matrices that are not embeddings.  Each group has a `scale`,
    which its learning rate is multiplied by; see `learning_rate_scales`.
    """
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    scales = learning_rate_scales(model, layer_decay)
    parameters = [(p, scales[name]) for name, p in model.named_parameters() if p.requires_grad]
    decayed = [(p, s) for p, s in parameters if p.dim() > 1 and id(p) not in embeddings]
    chosen = {id(p) for p, _ in decayed}
    rest = [(p, s) for p, s in parameters if id(p) not in chosen]
    adam = config.optimizer
    groups: list[dict[str, Any]] = []
    for members, weight_decay in ((decayed, adam.weight_decay), (rest, 0.0)):
        for scale in dict.fromkeys(s for _, s in members):
            group = [p for p, s in members if s == scale]
            groups.append({"params": group, "weight_decay": weight_decay, "scale": scale})
    return torch.optim.AdamW(
        groups, lr=0.0, betas=(adam.beta1, adam.beta2), eps=adam.epsilon, fused=True
    )

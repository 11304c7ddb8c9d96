"""Fine-tuning: freezing, layer-wise learning rates, low-rank adapters."""

import fnmatch
import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.errors import RunError, SettingError
from transduce.settings.sections import nearest
from transduce.support.files import from_json
from transduce.training.config import FineTuneConfig, LoraConfig
from transduce.training.distributed import Ranks
from transduce.training.weight_files import names_in_format_1, pattern_today
from transduce.training.weights import (
    merged,
    read_tensors,
    read_with_metadata,
    weights_of,
    write_weights,
)

logger = logging.getLogger("transduce")

ADAPTER_FILE = "adapter.safetensors"
FRONT_ENDS = ("front_end", "target_front_end")
_LAYER = re.compile(r"(encoder|decoder)\.(?:(?:layers|residuals)\.(\d+)\.|.*_l(\d+)(?:_reverse)?$)")
_BELOW_LAYERS = tuple(
    f"{stack}.{part}."
    for stack in ("encoder", "decoder")
    for part in ("positions", "embedding_norm")
)


class LowRankLinear(nn.Linear):
    """Linear layer plus low-rank update scale · B·A; weight and bias are shared with `linear`.  B
    is initialised to zero, so that the first output equals `linear`'s."""

    lora_scale: Tensor

    def __init__(self, linear: nn.Linear, config: LoraConfig) -> None:
        n_in, n_out = linear.in_features, linear.out_features
        super().__init__(n_in, n_out, linear.bias is not None, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        self.lora_a = nn.Parameter((torch.randn(config.rank, n_in) * n_in**-0.5).to(self.weight))
        self.lora_b = nn.Parameter(self.weight.new_zeros(n_out, config.rank))
        # With the weights, so that a file of them can be merged by itself.
        self.register_buffer("lora_scale", self.weight.new_tensor(config.alpha / config.rank))
        self.train(linear.training)

    def forward(self, input: Tensor) -> Tensor:
        """(…, n_in) -> (…, n_out).  B·A is never formed, so W needs no gradient."""
        update = F.linear(F.linear(input, self.lora_a), self.lora_b)
        return F.linear(input, self.weight, self.bias) + update * self.lora_scale


@dataclass(frozen=True)
class Adapter:
    """Adapter: the difference between the weights of a run and its base run."""

    names: frozenset[str]
    """Names of its weights: the updates, and weights missing in the base run."""
    left_out: tuple[str, ...]
    """Weights of the base run without a counterpart in this model."""
    base: str
    """Fingerprint of the other weights of the base run."""

    def write(self, run: Path, weights: Mapping[str, Tensor]) -> None:
        """Write the adapter's part of a model's weights."""
        part = {name: tensor for name, tensor in weights.items() if name in self.names}
        metadata = {"base": self.base, "left_out": json.dumps(self.left_out)}
        write_weights(run / ADAPTER_FILE, part, metadata)


AdaptWeights = Callable[[str, Tensor], Tensor]
"""Adapts a tensor of the base run, given with its name, to this model."""


class BaseRun(NamedTuple):
    """A run to start from, with its settings.

    adapt: adapts tensors of another shape; changed tensors count as this run's own.  reinit: name
    prefixes of tensors with another meaning there, which are initialised anew.
    """

    config: FineTuneConfig
    adapt: AdaptWeights | None = None
    reinit: tuple[str, ...] = ()


def start_from(model: nn.Module, base: BaseRun, run: Path, resuming: bool) -> Adapter | None:
    """Load base weights into a new model, freeze parameters and add low-rank updates; returns the
    adapter.

    run: directory of the run in training.  resuming: do not read the base run, since checkpoints
    are complete.  Raises RunError if the base run does not fit, SettingError for a pattern without
    a match.
    """
    config = base.config
    loaded, left_out = ({}, []) if resuming else _copy_base(model, base)
    named = dict(model.named_parameters(remove_duplicate=False))
    frozen = {id(named[name]) for name in _matching(config.freeze, named, "freeze")}
    frozen |= {id(p) for p in named.values() if not p.requires_grad}  # by the task
    adapter = None
    trained = named
    if config.lora is not None:
        add_low_rank_updates(model, config.lora, frozen)
        if resuming:
            adapter = _adapter(run / ADAPTER_FILE, *read_with_metadata(run / ADAPTER_FILE))
        else:
            initial = weights_of(model)
            new = frozenset(initial.keys() - loaded.keys())
            adapter = Adapter(new, tuple(left_out), fingerprint(loaded))
            if Ranks.present().is_main:
                adapter.write(run, initial)  # a resumed run reads the new parameters from it
        parameters = model.named_parameters()
        trained = {name: p for name, p in parameters if name in adapter.names}
    trainable = {id(p) for p in trained.values()} - frozen
    for parameter in model.parameters():
        if id(parameter) not in trainable:
            parameter.requires_grad_(False)
    if not any(p.requires_grad for p in model.parameters()):
        raise SettingError("fine_tune.freeze leaves nothing to train; freeze fewer layers")
    return adapter


def add_low_rank_updates(
    model: nn.Module, config: LoraConfig, frozen: Set[int] = frozenset()
) -> None:
    """Replace the linear layers of `config.targets`, without frozen parameters, by LowRankLinear.

    Raises SettingError for a pattern without a linear layer, or for a matrix that is shared or
    smaller than the rank.
    """
    linears = {n: m for n, m in model.named_modules() if type(m) is nn.Linear}
    chosen = _matching(config.targets, linears, "lora.targets")
    owners: dict[int, set[int]] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(id(parameter), set()).add(id(module))
    replaced: dict[int, nn.Module] = {}
    for name, linear in linears.items():  # in the model's order, which random numbers follow
        if name not in chosen:
            continue
        if len(owners[id(linear.weight)]) > 1:
            raise SettingError(
                f"fine_tune.lora.targets: {name!r} shares its matrix with another layer and "
                "cannot be adapted by itself; remove it"
            )
        if config.rank > (size := min(linear.weight.shape)):
            raise SettingError(
                f"fine_tune.lora.rank = {config.rank} exceeds the full rank of {name!r} ({size}); "
                "lower it, or leave that layer out of fine_tune.lora.targets"
            )
        if id(linear.weight) not in frozen:
            replaced[id(linear)] = LowRankLinear(linear, config)
    if not replaced:
        raise SettingError(
            "every layer in fine_tune.lora.targets is frozen; name others, or freeze fewer"
        )
    _replace(model, replaced)


def remove_low_rank_updates(model: nn.Module) -> None:
    """Restore plain linear layers without updates; weights are loaded afterwards."""
    replaced: dict[int, nn.Module] = {}
    for module in model.modules():
        if isinstance(module, LowRankLinear):
            bias = module.bias is not None
            plain = nn.Linear(module.in_features, module.out_features, bias, device="meta")
            plain.weight, plain.bias = module.weight, module.bias
            replaced[id(module)] = plain.train(module.training)
    _replace(model, replaced)


def apply_adapter(base: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Weights of an adapter applied to its base run.  Raises RunError for any other file or
    base."""
    tensors, metadata = read_with_metadata(path)
    adapter = _adapter(path, tensors, metadata)
    old = names_in_format_1(base)  # an adapter may be older than this copy of its base
    unchanged = {n: t for n, t in base.items() if not {n, old[n]} & set(adapter.left_out)}
    remaining = {n: t for n, t in unchanged.items() if n not in tensors}
    if adapter.base not in (
        fingerprint(remaining),
        fingerprint({old[n]: t for n, t in remaining.items()}),
    ):
        raise RunError(f"{path} was trained on other base weights; give its own base run")
    # The update is added at the precision that it was trained at.
    wide = next((t.dtype for n, t in tensors.items() if n.endswith(".lora_a")), torch.float32)
    unchanged = {n: t.to(wide) if t.is_floating_point() else t for n, t in unchanged.items()}
    try:
        return merged(unchanged | tensors)
    except (KeyError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise RunError(f"{path} is damaged: an update is incomplete ({reason})") from None


def fingerprint(weights: Mapping[str, Tensor]) -> str:
    """Fingerprint of weights: equal only for equal names and values."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def learning_rate_scales(model: nn.Module, layer_decay: float) -> dict[str, float]:
    """Learning rate multiplier of each parameter: layer_decay^(n - i) for layer i of n, from 0,
    layer_decay^(n + 1) below all layers, 1 above them (Howard and Ruder 2018; Clark et al. 2020).
    Tied matrices count as embeddings."""
    names = [name for name, _ in model.named_parameters()]
    depths: dict[str, int] = {}
    for name in names:
        if match := _LAYER.match(name):
            depths[match[1]] = max(depths.get(match[1], 0), int(match[2] or match[3]) + 1)
    scales = {}
    for name in names:
        part = name.partition(".")[0]
        first = "encoder" if "encoder" in depths else "decoder"
        stack = {"front_end": first, "target_front_end": "decoder"}.get(part, part)
        n = depths.get(stack, 0)
        match = _LAYER.match(name)
        if match:
            exponent = n - int(match[2] or match[3])
        elif part in FRONT_ENDS or name.startswith(_BELOW_LAYERS):
            exponent = n + 1
        else:
            exponent = 0
        scales[name] = layer_decay**exponent
    return scales


def is_of_layer(name: str) -> bool:
    """True if a parameter belongs to a layer of a stack, not to an embedding or a head."""
    return _LAYER.match(name) is not None


def _copy_base(model: nn.Module, base: BaseRun) -> tuple[dict[str, Tensor], list[str]]:
    directory = Path(base.config.run)
    file = directory / "weights.safetensors"
    weights, initial = read_tensors(file), weights_of(model)
    loaded, adapted = {}, {}
    for name, tensor in initial.items():
        if name not in weights or name.startswith(base.reinit):
            continue
        theirs, ours = tuple(weights[name].shape), tuple(tensor.shape)
        if theirs == ours:
            loaded[name] = weights[name]
        elif (
            base.adapt is not None
            and (changed := base.adapt(name, weights[name])).shape == tensor.shape
        ):
            adapted[name] = changed
        elif not name.startswith("head."):  # a head is made anew for other labels
            raise RunError(
                f"fine_tune.run: {file}: {name!r} has shape {theirs}, expected {ours}; model and "
                "vocabulary must match the base run"
            )
    if not loaded:
        raise RunError(
            f"fine_tune.run: {file} has no weights for this model: expected names like "
            f"{next(iter(initial))!r}, found {next(iter(weights), 'none')!r}"
        )
    with torch.no_grad():
        for name, tensor in (loaded | adapted).items():
            initial[name].copy_(tensor)
    left_out = sorted(weights.keys() - initial.keys())
    parts = [f"starting from {directory}"]
    if adapted:
        parts.append(f"adapted to this model: {', '.join(sorted(adapted))}")
    if new := sorted(initial.keys() - loaded.keys() - adapted.keys()):
        parts.append(f"newly initialised: {', '.join(new)}")
    if left_out:
        parts.append(f"unused: {', '.join(left_out)}")
    logger.info("; ".join(parts))
    return loaded, left_out


def _adapter(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> Adapter:
    try:
        left_out = tuple(from_json(metadata["left_out"]))
        return Adapter(frozenset(tensors), left_out, metadata["base"])
    except (KeyError, TypeError, ValueError):
        raise RunError(f"{path} is not an adapter trained with fine_tune.lora") from None


def _matching(patterns: Iterable[str], names: Iterable[str], setting: str) -> set[str]:
    """Names matched by the patterns. Raises SettingError for a pattern without a match."""
    selected: set[str] = set()
    names = list(names)
    tops = {name.partition(".")[0] for name in names}
    for written in patterns:
        pattern = pattern_today(written, tops)
        if pattern != written:
            logger.warning("fine_tune.%s: use %r instead of %r", setting, pattern, written)
        matching = [name for name in names if fnmatch.fnmatchcase(name, pattern)]
        if not matching:
            near = _near_pattern(pattern, names)
            begin = ", ".join(sorted(tops))
            hint = f"did you mean {near!r}?" if near else f"names begin with {begin}"
            raise SettingError(f"fine_tune.{setting}: {pattern!r} matches no weights; {hint}")
        selected.update(matching)
    return selected


def _near_pattern(pattern: str, names: Sequence[str]) -> str:
    """Nearest pattern that matches some names, part by part; a module stands for all in it."""

    def some(head: Sequence[str]) -> bool:
        whole = ".".join(head)
        return any(
            fnmatch.fnmatchcase(name, whole) or fnmatch.fnmatchcase(name, f"{whole}.*")
            for name in names
        )

    known = dict.fromkeys(part for name in names for part in name.split("."))
    right: list[str] = []
    for part in pattern.split("."):
        if not some([*right, part]):
            here = [other for other in known if some([*right, other])]
            part = nearest(part.strip("*"), here)
            if not part:
                return ""
        right.append(part)
    current = ".".join(right)
    return current if fnmatch.filter(names, current) else f"{current}.*"


def _replace(model: nn.Module, replaced: Mapping[int, nn.Module]) -> None:
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if id(child) in replaced:
                setattr(parent, name, replaced[id(child)])

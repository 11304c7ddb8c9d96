"""Training that starts from another run: freezing, learning rates by depth, low-rank adapters.

A task hands its recipe's `fine_tune` to `train`, which does the rest: `start_from` before the
first step, `learning_rate_scales` for the optimizer, `Adapter.write` whenever weights are kept.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import BeforeValidator, Field
from torch import Tensor, nn

from transduce.config import nearest, section
from transduce.config_paths import absolute_path
from transduce.errors import RunError, SettingError
from transduce.limits import from_json
from transduce.training.distributed import Ranks
from transduce.training.weight_names import names_in_format_1, pattern_today
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


@section
class LoraConfig:
    """W + alpha / rank · B·A in place of W, with only A and B trained (Hu et al. 2022)."""

    rank: Annotated[int, Field(ge=1)] = 8
    """Rows of A and columns of B."""
    alpha: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 16.0
    """The update is multiplied by alpha / rank."""
    targets: Annotated[tuple[str, ...], Field(min_length=1)] = ("*attention.*",)
    """Patterns of the names of linear layers that get an update; by default all projections of
    self-attention and cross-attention."""


@section
class FineTuneConfig:
    """Start from the weights of another run."""

    run: Annotated[str, BeforeValidator(absolute_path)]
    """Run directory, trained or imported; may hold `~` and `$VARIABLE`."""
    freeze: tuple[str, ...] = ()
    """Patterns of the names of parameters that stay as they are."""
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Learning rate of each layer, as a share of that of the layer above it."""
    lora: LoraConfig | None = None
    """Train low-rank updates, and what the other run has no weights for, instead of everything."""


class LowRankLinear(nn.Linear):
    """A linear layer, plus scale · B·A of low rank; its own weight and bias are `linear`'s.

    B begins as zero, so that the first output is exactly that of `linear`.
    """

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
    """What makes the weights of the base run into those of this one, and nothing else."""

    names: frozenset[str]
    """Weights that belong to it: the updates, and what the base run lacks."""
    left_out: tuple[str, ...]
    """Weights of the base run that this model has no place for."""
    base: str
    """Fingerprint of the base run's other weights."""

    def write(self, run: Path, weights: Mapping[str, Tensor]) -> None:
        """Write the adapter's part of a model's weights."""
        part = {name: tensor for name, tensor in weights.items() if name in self.names}
        metadata = {"base": self.base, "left_out": json.dumps(self.left_out)}
        write_weights(run / ADAPTER_FILE, part, metadata)


AdaptWeights = Callable[[str, Tensor], Tensor]
"""Makes a tensor of the base run, given with its name, into one for this model, if it differs."""


def start_from(
    model: nn.Module,
    config: FineTuneConfig,
    run: Path,
    resuming: bool,
    fit: AdaptWeights | None = None,
    reinit: tuple[str, ...] = (),
) -> Adapter | None:
    """Give a freshly built model the weights to start from; freeze, and add low-rank updates.

    `train` calls it; a task only hands on its recipe's `fine_tune`.  run: directory of the run
    that is being trained.  resuming: its checkpoints hold everything, so the base run is not
    looked at.  fit: for what may have another shape there; what it changes is this run's own.
    reinit: how names begin of what means something else there, and is not taken over.
    Returns the adapter if there is to be one.  Raises RunError where the base run
    does not fit, SettingError for a pattern without a match.
    """
    found, left_out = ({}, []) if resuming else _copy_base(model, Path(config.run), fit, reinit)
    named = dict(model.named_parameters(remove_duplicate=False))
    frozen = {id(named[name]) for name in _matching(config.freeze, named, "freeze")}
    adapter = None
    trained = named
    if config.lora is not None:
        add_low_rank_updates(model, config.lora, frozen)
        if resuming:
            adapter = _adapter(run / ADAPTER_FILE, *read_with_metadata(run / ADAPTER_FILE))
        else:
            own = weights_of(model)
            new = frozenset(own.keys() - found.keys())
            adapter = Adapter(new, tuple(left_out), fingerprint(found))
            if Ranks.present().is_main:
                adapter.write(run, own)  # a resumed run learns from it what was new
        parameters = model.named_parameters()
        trained = {name: p for name, p in parameters if name in adapter.names}
    wanted = {id(p) for p in trained.values()} - frozen
    for parameter in model.parameters():
        if id(parameter) not in wanted:
            parameter.requires_grad_(False)
    if not any(p.requires_grad for p in model.parameters()):
        raise SettingError("fine_tune.freeze leaves nothing to train; freeze less")
    return adapter


def add_low_rank_updates(
    model: nn.Module, config: LoraConfig, frozen: Set[int] = frozenset()
) -> None:
    """Put a LowRankLinear in the place of each linear layer that `config.targets` name.

    frozen: ids of parameters; a layer whose matrix is among them stays as it is.  Raises
    SettingError for a pattern that names no linear layer, or one whose matrix is shared or smaller
    than the rank.
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
                f"fine_tune.lora.targets: the matrix of {name!r} is also another layer's, so it "
                "cannot have an update of its own; leave it out"
            )
        if config.rank > (size := min(linear.weight.shape)):
            raise SettingError(
                f"fine_tune.lora.rank = {config.rank} is more than the {size} that the matrix of "
                f"{name!r} has; lower it, or leave that layer out of fine_tune.lora.targets"
            )
        if id(linear.weight) not in frozen:
            replaced[id(linear)] = LowRankLinear(linear, config)
    if not replaced:
        raise SettingError(
            "fine_tune.freeze names every layer that fine_tune.lora.targets does; freeze less"
        )
    _replace(model, replaced)


def remove_low_rank_updates(model: nn.Module) -> None:
    """Make linear layers plain again, without the updates; weights are loaded afterwards."""
    replaced: dict[int, nn.Module] = {}
    for module in model.modules():
        if isinstance(module, LowRankLinear):
            bias = module.bias is not None
            plain = nn.Linear(module.in_features, module.out_features, bias, device="meta")
            plain.weight, plain.bias = module.weight, module.bias
            replaced[id(module)] = plain.train(module.training)
    _replace(model, replaced)


def apply_adapter(base: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """The weights that an adapter file makes of those of its base run.

    Raises RunError when the file is no adapter, or one for other weights.
    """
    tensors, metadata = read_with_metadata(path)
    adapter = _adapter(path, tensors, metadata)
    old = names_in_format_1(base)  # an adapter may be older than this copy of its base
    kept = {n: t for n, t in base.items() if not {n, old[n]} & set(adapter.left_out)}
    given = {n: t for n, t in kept.items() if n not in tensors}
    if adapter.base not in (
        fingerprint(given),
        fingerprint({old[n]: t for n, t in given.items()}),
    ):
        raise RunError(f"{path} was trained on top of other weights than these; give its base run")
    # The update is added at the precision that it was trained at.
    wide = next((t.dtype for n, t in tensors.items() if n.endswith(".lora_a")), torch.float32)
    kept = {n: t.to(wide) if t.is_floating_point() else t for n, t in kept.items()}
    try:
        return merged(kept | tensors)
    except (KeyError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise RunError(f"{path} is damaged: an update is not whole ({reason})") from None


def fingerprint(weights: Mapping[str, Tensor]) -> str:
    """The same for the same names and numbers only."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def learning_rate_scales(model: nn.Module, layer_decay: float) -> dict[str, float]:
    """For each parameter the share of the learning rate that it is trained with.

    Layer i of n, counted from 0, has layer_decay^(n - i), what is below all layers
    layer_decay^(n + 1), what is above them 1 (Howard and Ruder 2018; Clark et al. 2020).  Tied
    matrices count as what comes first, which is an embedding.
    """
    names = [name for name, _ in model.named_parameters()]
    depths: dict[str, int] = {}
    for name in names:
        if place := _LAYER.match(name):
            depths[place[1]] = max(depths.get(place[1], 0), int(place[2] or place[3]) + 1)
    scales = {}
    for name in names:
        part = name.partition(".")[0]
        first = "encoder" if "encoder" in depths else "decoder"
        stack = {"front_end": first, "target_front_end": "decoder"}.get(part, part)
        n = depths.get(stack, 0)
        place = _LAYER.match(name)
        if place:
            exponent = n - int(place[2] or place[3])
        elif part in FRONT_ENDS or name.startswith(_BELOW_LAYERS):
            exponent = n + 1
        else:
            exponent = 0
        scales[name] = layer_decay**exponent
    return scales


def is_of_layer(name: str) -> bool:
    """Whether a parameter of this name is inside a layer of a stack: no embedding and no head."""
    return _LAYER.match(name) is not None


def _copy_base(
    model: nn.Module, base: Path, fit: AdaptWeights | None, reinit: tuple[str, ...]
) -> tuple[dict[str, Tensor], list[str]]:
    """Load what fits; the tensors that did as they are, and the names that had no place."""
    file = base / "weights.safetensors"
    weights, own = read_tensors(file), weights_of(model)
    found, fitted = {}, {}
    for name, tensor in own.items():
        if name not in weights or name.startswith(reinit):
            continue
        theirs, ours = tuple(weights[name].shape), tuple(tensor.shape)
        if theirs == ours:
            found[name] = weights[name]
        elif fit is not None and (changed := fit(name, weights[name])).shape == tensor.shape:
            fitted[name] = changed
        elif not name.startswith("head."):  # a head is made anew for other labels
            raise RunError(
                f"fine_tune.run: {file}: {name!r} has shape {theirs}, but this model's is {ours}; "
                "model and vocabulary must be those of that run"
            )
    if not found:
        raise RunError(
            f"fine_tune.run: {file} has no weights for this model, such as {next(iter(own))!r}; "
            f"it holds {next(iter(weights), 'none')!r} and such"
        )
    with torch.no_grad():
        for name, tensor in (found | fitted).items():
            own[name].copy_(tensor)
    left_out = sorted(weights.keys() - own.keys())
    told = [f"starting from {base}"]
    if fitted:
        told.append(f"fitted to this model: {', '.join(sorted(fitted))}")
    if new := sorted(own.keys() - found.keys() - fitted.keys()):
        told.append(f"new here: {', '.join(new)}")
    if left_out:
        told.append(f"not used: {', '.join(left_out)}")
    logger.info("; ".join(told))
    return found, left_out


def _adapter(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> Adapter:
    try:
        left_out = tuple(from_json(metadata["left_out"]))
        return Adapter(frozenset(tensors), left_out, metadata["base"])
    except (KeyError, TypeError, ValueError):
        raise RunError(f"{path} is not an adapter that training with fine_tune.lora made") from None


def _matching(patterns: Iterable[str], names: Iterable[str], setting: str) -> set[str]:
    """The names that one of the patterns matches.  Raises SettingError where one matches none."""
    found: set[str] = set()
    names = list(names)
    tops = {name.partition(".")[0] for name in names}
    for given in patterns:
        pattern = pattern_today(given, tops)
        if pattern != given:
            logger.warning("fine_tune.%s: write %r for %r", setting, pattern, given)
        matching = [name for name in names if fnmatch.fnmatchcase(name, pattern)]
        if not matching:
            near = _near_pattern(pattern, names)
            begin = ", ".join(sorted(tops))
            hint = f"did you mean {near!r}?" if near else f"names begin with {begin}"
            raise SettingError(f"fine_tune.{setting}: {pattern!r} matches nothing here; {hint}")
        found.update(matching)
    return found


def _near_pattern(pattern: str, names: Sequence[str]) -> str:
    """The nearest pattern that matches some of the names; nothing where none is near.

    Part by part between the dots, what goes on to match nothing becomes the nearest part of a name
    that does; what then names a module becomes all that is in it.
    """

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
    found = ".".join(right)
    return found if fnmatch.filter(names, found) else f"{found}.*"


def _replace(model: nn.Module, replaced: Mapping[int, nn.Module]) -> None:
    """Put other modules in the place of those with the given ids, wherever they stand."""
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if id(child) in replaced:
                setattr(parent, name, replaced[id(child)])

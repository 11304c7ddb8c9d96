"""Patches and credit of an imported BART beside modules of `transformers` and TransformerLens."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import transduce
from helpers.hugging_face import ours, padded
from helpers.text_to_text import made
from transduce.explain.credit import Choice, Patch, credit_of, patched
from transduce.runs.importing import import_run
from transduce.sequence import Padded
from transduce.text import BOS

TOLERANCE = 1e-5
SHAPES = (
    {"scale_embedding": True},
    {"activation_function": "relu", "decoder_attention_heads": 4, "decoder_layers": 1},
)
HEADS, D_MODEL = 2, 16
D = D_MODEL // HEADS
PATCHES = 60


class Twins(NamedTuple):
    """A random BART of `transformers`, the same imported, and a row for both.

    order: our ids for theirs, without BOS, which stands for their start.
    """

    theirs: Any
    ours: Any
    ids: Tensor
    read: Tensor
    source: Padded
    target: Padded
    rows: list[int]
    order: list[int]


def twins(directory: Path, shape: dict[str, Any]) -> Twins:
    theirs, _ = made("bart", directory / "saved", attn_implementation="eager", **shape)
    run = transduce.load(import_run(directory / "saved", directory / "run"), "cpu")
    tokenizer: Any = run.translator.source
    numbering = tokenizer.numbering
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(5, numbering.size - 5, (1, 9), generator=generator)
    read = torch.randint(5, numbering.size - 5, (1, 6), generator=generator)
    read[:, 0] = theirs.config.decoder_start_token_id
    begun = ours(read, numbering)
    begun[:, 0] = BOS
    source, target = (
        padded(row, torch.ones(row.shape, dtype=torch.bool))
        for row in (ours(ids, numbering), begun)
    )
    rows = list(numbering.rows)
    order = [i for i in range(len(rows)) if i != BOS]
    return Twins(theirs, run.model, ids, read, source, target, rows, order)


THEIR_NAMES = {"self_attention": "self_attn", "cross_attention": "encoder_attn"}


def random_patch(pair: Twins, rng: random.Random, modules: list[str]) -> Patch:
    """A random vector in place of the output of a module or of a head."""
    name = rng.choice(modules)
    side = name.split(".")[0]
    count = pair.ids.shape[1] if side == "encoder" else pair.read.shape[1]
    width = D if ":" in name else D_MODEL
    return Patch(name, rng.randrange(count), torch.tensor([rng.gauss(0, 1) for _ in range(width)]))


def modules_of(pair: Twins) -> list[str]:
    names = ["encoder.embedding_norm", "decoder.embedding_norm"]
    for side in ("encoder", "decoder"):
        kinds = ["self_attention", *(["cross_attention"] * (side == "decoder"))]
        for layer in range(len(getattr(pair.theirs.model, side).layers)):
            of = f"{side}.layers.{layer}"
            names += [of, f"{of}.feed_forward"]
            for kind in kinds:
                names += [f"{of}.{kind}", f"{of}.{kind}:1", f"{of}.{kind}:{HEADS}"]
    return names


def put(patch: Patch) -> Callable[[Any], Any]:
    """The vector in place of what a hook of theirs is given."""

    def change(output: Any) -> Any:
        if isinstance(output, tuple):
            return change(output[0]), *output[1:]
        x = output.flatten(2).clone()  # heads, where apart, side by side
        _, _, head = patch.name.partition(":")
        start = (int(head) - 1) * D if head else 0
        x[:, patch.position, start : start + len(patch.vector)] = patch.vector
        return x.view(output.shape)

    return change


def with_their_hooks(pair: Twins, patch: Patch) -> Tensor:
    """Logits (t, v) by forward hooks on the modules of `transformers`."""
    name, _, head = patch.name.partition(":")
    parts = name.split(".")
    module: nn.Module = getattr(pair.theirs.model, parts[0])
    change = put(patch)
    if parts[1] == "embedding_norm":
        module = module.get_submodule("layernorm_embedding")
    else:
        kind = parts[3] if len(parts) > 3 else ""
        theirs = "fc2" if kind == "feed_forward" else THEIR_NAMES.get(kind, "")
        module = module.get_submodule(".".join(filter(None, ("layers", parts[2], theirs))))
    if head:
        output: Any = module.get_submodule("out_proj")
        handle = output.register_forward_pre_hook(lambda module, args: (change(args[0]),))
    else:
        handle = module.register_forward_hook(lambda module, args, output: change(output))
    try:
        logits: Tensor = pair.theirs(pair.ids, decoder_input_ids=pair.read).logits[0]
    finally:
        handle.remove()
    return logits


def check_patches(
    pair: Twins, patches: list[Patch], reference: Callable[[Twins, Patch], Tensor]
) -> None:
    with torch.inference_mode():
        plain = pair.ours(pair.source, pair.target)[0]
        moved = 0
        for patch in patches:
            with patched(pair.ours, [patch]):
                logits = pair.ours(pair.source, pair.target)[0]
            expected = reference(pair, patch)[:, pair.rows][:, pair.order]
            assert (logits[:, pair.order] - expected).abs().max() < TOLERANCE, patch.name
            moved += int((logits - plain).abs().max() > 1e-2)
    assert moved > len(patches) // 2


def test_patches_beside_hooks_on_transformers(tmp_path: Path) -> None:
    pair, rng = twins(tmp_path, SHAPES[0]), random.Random(0)
    modules = modules_of(pair)
    assert len(modules) == 2 + 2 * 5 + 2 * 8
    check_patches(
        pair, [random_patch(pair, rng, modules) for _ in range(PATCHES)], with_their_hooks
    )


def test_patches_beside_transformer_lens(tmp_path: Path) -> None:
    bridges = pytest.importorskip(
        "transformer_lens.model_bridge", reason="TransformerLens is not installed"
    )
    pair, rng = twins(tmp_path, SHAPES[0]), random.Random(1)
    bridge = bridges.TransformerBridge.boot_transformers(
        str(tmp_path / "saved"), hf_model=copy.deepcopy(pair.theirs), device="cpu"
    )

    def with_lens(pair: Twins, patch: Patch) -> Tensor:
        name, _, head = patch.name.partition(":")
        side, _, layer, *kind = name.split(".")
        hook = f"{side}_blocks.{layer}."
        if not kind:
            hook += "hook_out"
        elif kind == ["feed_forward"]:
            hook += "mlp.hook_out"
        else:
            within = "attn" if side == "encoder" else kind[0].replace("attention", "attn")
            hook += f"{within}.o.hook_in" if head else f"{within}.hook_out"
        change = put(patch)
        logits: Tensor = bridge.run_with_hooks(
            pair.ids,
            decoder_input_ids=pair.read,
            fwd_hooks=[(hook, lambda x, hook: change(x))],
        )[0]
        return logits

    modules = [name for name in modules_of(pair) if "embedding_norm" not in name]
    check_patches(pair, [random_patch(pair, rng, modules) for _ in range(PATCHES)], with_lens)


# Credit by a forward pass in place of gradients.  Each of K inputs (tokens and positions of both
# sides, and the biases) goes alone through the linear map that patterns, scales and gates of
# `transformers` make, so that x is (K, t, m).


class Bart:
    """The linear map of a recorded pass of a BART of `transformers`."""

    def __init__(self, pair: Twins) -> None:
        self.config, self.model = pair.theirs.config, pair.theirs.model
        inputs: dict[nn.Module, Tensor] = {}
        handles = [
            module.register_forward_pre_hook(
                lambda module, args: inputs.__setitem__(module, args[0].detach()[0])
            )
            for module in pair.theirs.modules()
            if isinstance(module, nn.LayerNorm | nn.Linear)
        ]
        self.inputs = inputs
        with torch.inference_mode():
            self.output = pair.theirs(pair.ids, decoder_input_ids=pair.read, output_attentions=True)
        for handle in handles:
            handle.remove()

    def linear(self, module: Any, x: Tensor) -> Tensor:
        y = x @ module.weight.T
        y[-1] += module.bias
        return y

    def norm(self, module: Any, x: Tensor) -> Tensor:
        scale = (self.inputs[module].var(-1, correction=0, keepdim=True) + module.eps).rsqrt()
        y = (x - x.mean(-1, keepdim=True)) * scale * module.weight
        y[-1] += module.bias
        return y

    def attention(self, module: Any, x: Tensor, pattern: Tensor) -> Tensor:
        values = self.linear(module.v_proj, x).unflatten(-1, (module.num_heads, -1))
        mixed = torch.einsum("hts,kshd->kthd", pattern, values)
        return self.linear(module.out_proj, mixed.flatten(-2))

    def feed_forward(self, layer: Any, x: Tensor) -> Tensor:
        before = self.inputs[layer.fc1] @ layer.fc1.weight.T + layer.fc1.bias
        gate = layer.activation_fn(before) / before
        return self.linear(layer.fc2, self.linear(layer.fc1, x) * gate)

    def embedded(self, side: str, ids: Tensor, before: int, count: int) -> Tensor:
        """(K, t, m) of tokens and positions, from number `before` on."""
        stack = getattr(self.model, side)
        t = ids.shape[1]
        x = torch.zeros(count, t, self.config.d_model)
        here = torch.arange(t)
        x[before + here, here] = stack.embed_tokens(ids)[0]
        x[before + t + here, here] = stack.embed_positions(ids)
        return self.norm(stack.layernorm_embedding, x)

    def logits(self, pair: Twins) -> Tensor:
        """Logits (K, t, v) of each input."""
        s, t = pair.ids.shape[1], pair.read.shape[1]
        count = 2 * s + 2 * t + 1
        x = self.embedded("encoder", pair.ids, 0, count)
        for layer, pattern in zip(
            self.model.encoder.layers, self.output.encoder_attentions, strict=True
        ):
            mixed = self.attention(layer.self_attn, x, pattern[0])
            x = self.norm(layer.self_attn_layer_norm, x + mixed)
            x = self.norm(layer.final_layer_norm, x + self.feed_forward(layer, x))
        memory = x
        x = self.embedded("decoder", pair.read, 2 * s, count)
        for layer, within, across in zip(
            self.model.decoder.layers,
            self.output.decoder_attentions,
            self.output.cross_attentions,
            strict=True,
        ):
            mixed = self.attention(layer.self_attn, x, within[0])
            x = self.norm(layer.self_attn_layer_norm, x + mixed)
            mixed = self.attention(layer.encoder_attn, memory, across[0])
            x = self.norm(layer.encoder_attn_layer_norm, x + mixed)
            x = self.norm(layer.final_layer_norm, x + self.feed_forward(layer, x))
        logits: Tensor = x @ pair.theirs.lm_head.weight.T
        logits[-1] += pair.theirs.final_logits_bias[0]
        return logits


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_credit_beside_a_forward_pass_of_shares(shape: dict[str, Any], tmp_path: Path) -> None:
    pair = twins(tmp_path, shape)
    with torch.inference_mode():
        bart = Bart(pair)
        shares = bart.logits(pair)
    torch.testing.assert_close(shares.sum(0), bart.output.logits[0], atol=1e-4, rtol=1e-5)
    of_ours = shares[..., pair.rows]
    choices = [Choice(row, 10 + row, 30 + row) for row in range(pair.read.shape[1])]
    credits = credit_of(
        pair.ours, lambda: pair.ours(pair.source, pair.target), choices, lambda ids: ["x"]
    )
    for credit, (row, written, rival) in zip(credits, choices, strict=True):
        expected = of_ours[:, row, written] - of_ours[:, row, rival]
        computed = torch.tensor(
            [
                *(*credit.source, *credit.source_positions),
                *(*credit.read, *credit.read_positions, credit.biases),
            ]
        )
        assert (computed - expected).abs().max() < TOLERANCE * max(1.0, float(expected.abs().max()))
        assert expected.abs().max() > 0.1

"""The network against the figures of a whole tiny model, and against PyTorch's own layers."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.golden import exact, golden_encoder_decoder, read_golden
from transduce.nn.attention import record_into
from transduce.nn.stack_configs import NormOrder, TransformerConfig
from transduce.nn.transformer import TransformerDecoder, TransformerEncoder
from transduce.sequence import Padded

ORDERS: list[NormOrder] = ["pre", "post"]
TO_SIX = {"rtol": 0.0, "atol": 1e-6}
CLOSE = {"rtol": 0.0, "atol": 1e-11}
SHAPES = [(2, 5, 7, 16, 4, 32), (1, 1, 3, 12, 3, 20), (3, 9, 4, 24, 2, 8)]  # b, t, s, m, h, f


def ids(name: str) -> Padded:
    return Padded.unpadded(torch.tensor([read_golden("encoder_decoder")[name]]))


@pytest.mark.parametrize("order", ORDERS)
def test_memory_and_logits_are_the_known_ones(order: NormOrder) -> None:
    golden, model = read_golden("encoder_decoder")[order], golden_encoder_decoder(order)
    memory = model.encoder(model.front_end(ids("source"))).values[0]
    logits = model(ids("source"), ids("target_input"))[0]
    torch.testing.assert_close(memory, exact(golden["memory"]), **TO_SIX)
    torch.testing.assert_close(logits, exact(golden["logits"]), **TO_SIX)


@pytest.mark.parametrize("order", ORDERS)
def test_cross_attention_weights_are_the_known_ones(order: NormOrder) -> None:
    golden, model = read_golden("encoder_decoder")[order], golden_encoder_decoder(order)
    recorded = record_into(model, on=True)
    model(ids("source"), ids("target_input"))
    (weights,) = recorded["decoder.layers.1.cross_attention"]
    expected = exact(golden["cross_attention_last_layer"])
    torch.testing.assert_close(weights[0], expected, **TO_SIX)


@pytest.mark.parametrize("order", ORDERS)
def test_losses_are_the_known_ones(order: NormOrder) -> None:
    golden = read_golden("encoder_decoder")
    logits = golden_encoder_decoder(order)(ids("source"), ids("target_input"))[0]
    expected = torch.tensor([*golden["target_input"][1:], golden["eos"]])
    loss = F.cross_entropy(logits, expected)
    smoothed = F.cross_entropy(logits, expected, label_smoothing=0.1)
    assert loss.item() == pytest.approx(golden[order]["loss"], abs=1e-6)
    assert smoothed.item() == pytest.approx(golden[order]["loss_smoothed_0.1"], abs=1e-6)


def torch_attention_weights(prefix: str, attention: nn.Module) -> dict[str, Tensor]:
    if hasattr(attention, "query_key_value"):
        parts = [attention.query_key_value]
    else:
        parts = [attention.query, attention.key_value]
    return {
        f"{prefix}.in_proj_weight": torch.cat([part.weight for part in parts]),
        f"{prefix}.in_proj_bias": torch.cat([part.bias for part in parts]),
        f"{prefix}.out_proj.weight": attention.output.weight,
        f"{prefix}.out_proj.bias": attention.output.bias,
    }


def torch_layer_weights(layer: nn.Module) -> dict[str, Tensor]:
    """Weights of one of our layers under the names that PyTorch gives them."""
    inner, outer = layer.feed_forward.inner, layer.feed_forward.outer
    weights = torch_attention_weights("self_attn", layer.self_attention)
    norms = [layer.self_attention_residual.norm]
    if hasattr(layer, "cross_attention"):
        weights |= torch_attention_weights("multihead_attn", layer.cross_attention)
        norms.append(layer.cross_attention_residual.norm)
    norms.append(layer.feed_forward_residual.norm)
    named = {"linear1": inner, "linear2": outer}
    named |= {f"norm{number}": norm for number, norm in enumerate(norms, start=1)}
    for name, module in named.items():
        weights |= {f"{name}.weight": module.weight, f"{name}.bias": module.bias}
    return weights


def load_torch_stack(theirs: nn.Module, ours: nn.Module, order: NormOrder) -> nn.Module:
    """PyTorch's stack with the weights of ours."""
    for their_layer, our_layer in zip(theirs.layers, ours.layers, strict=True):
        their_layer.load_state_dict(torch_layer_weights(our_layer))
    if order == "pre":
        theirs.norm.load_state_dict(ours.norm.state_dict())
    return theirs.double().eval()


def shaken(stack: nn.Module) -> nn.Module:
    """The stack in float64 with random gains and biases in its norms: at 1 and 0 none can err."""
    for module in stack.modules():
        if isinstance(module, nn.LayerNorm):
            nn.init.normal_(module.weight, mean=1.0, std=0.3)
            nn.init.normal_(module.bias, std=0.3)
    return stack.double().eval()


def ragged(b: int, length: int, m: int) -> Padded:
    lengths = torch.randint(1, length + 1, (b,))
    real = torch.arange(length) < lengths[:, None]
    return Padded(torch.randn(b, length, m, dtype=torch.float64), real, "right")


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("b", "t", "s", "m", "h", "f"), SHAPES)
def test_encoder_agrees_with_pytorch(
    b: int, t: int, s: int, m: int, h: int, f: int, order: NormOrder, activation: str
) -> None:
    config = TransformerConfig(
        n_layers=2, n_heads=h, d_ff=f, activation=activation, norm_order=order, positions="none"
    )
    ours = shaken(TransformerEncoder(config, m))
    layer = nn.TransformerEncoderLayer(
        m, h, f, activation=activation, batch_first=True, norm_first=order == "pre"
    )
    norm = nn.LayerNorm(m) if order == "pre" else None
    theirs = nn.TransformerEncoder(layer, 2, norm, enable_nested_tensor=False)
    load_torch_stack(theirs, ours, order)
    source = ragged(b, s, m)
    expected = theirs(source.values, src_key_padding_mask=~source.real)
    torch.testing.assert_close(ours(source).values[source.real], expected[source.real], **CLOSE)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("b", "t", "s", "m", "h", "f"), SHAPES)
def test_decoder_agrees_with_pytorch(
    b: int, t: int, s: int, m: int, h: int, f: int, order: NormOrder, activation: str
) -> None:
    config = TransformerConfig(
        n_layers=2, n_heads=h, d_ff=f, activation=activation, norm_order=order, positions="none"
    )
    ours = shaken(TransformerDecoder(config, m))
    layer = nn.TransformerDecoderLayer(
        m, h, f, activation=activation, batch_first=True, norm_first=order == "pre"
    )
    theirs = nn.TransformerDecoder(layer, 2, nn.LayerNorm(m) if order == "pre" else None)
    load_torch_stack(theirs, ours, order)
    target, memory = ragged(b, t, m), ragged(b, s, m)
    expected = theirs(
        target.values,
        memory.values,
        tgt_mask=torch.ones(t, t, dtype=torch.bool).triu(1),
        memory_key_padding_mask=~memory.real,
    )
    output = ours(target, ours.start(memory)).values
    torch.testing.assert_close(output[target.real], expected[target.real], **CLOSE)


def test_whole_transformer_agrees_with_pytorch() -> None:
    config = TransformerConfig(n_layers=3, n_heads=4, d_ff=24, norm_order="pre", positions="none")
    encoder, decoder = (
        shaken(stack(config, 16)) for stack in (TransformerEncoder, TransformerDecoder)
    )
    theirs = nn.Transformer(
        d_model=16,
        nhead=4,
        dim_feedforward=24,
        norm_first=True,
        batch_first=True,
        custom_encoder=nn.TransformerEncoder(
            nn.TransformerEncoderLayer(16, 4, 24, batch_first=True, norm_first=True),
            3,
            nn.LayerNorm(16),
            enable_nested_tensor=False,
        ),
        num_decoder_layers=3,
    )
    load_torch_stack(theirs.encoder, encoder, "pre")
    load_torch_stack(theirs.decoder, decoder, "pre")
    source, target = ragged(3, 6, 16), ragged(3, 5, 16)
    expected = theirs.double().eval()(
        source.values,
        target.values,
        tgt_mask=torch.ones(5, 5, dtype=torch.bool).triu(1),
        src_key_padding_mask=~source.real,
        memory_key_padding_mask=~source.real,
    )
    output = decoder(target, decoder.start(encoder(source))).values
    torch.testing.assert_close(output[target.real], expected[target.real], **CLOSE)

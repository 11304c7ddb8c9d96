"""The network's makings: sizes, ties, first values, dropout, and what it refuses."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import transduce
from helpers.tiny_run import reversal_pairs, train_tiny, write_tsv
from transduce.errors import DataError, SettingError
from transduce.models.encoder_decoder import (
    EncoderDecoder,
    EncoderDecoderConfig,
    build_encoder_decoder,
)
from transduce.models.presets import PRESETS
from transduce.nn.attention import CrossAttention, SelfAttention, attention_with_weights
from transduce.nn.dropout import Dropout
from transduce.nn.feed_forward import FeedForward, GatedFeedForward
from transduce.nn.masks import Mask
from transduce.nn.residual import PostNorm, PreNorm
from transduce.nn.transformer import TransformerConfig, TransformerDecoder, TransformerEncoder
from transduce.nn.unpadding import Unpadding, row_step
from transduce.sequence import Padded
from transduce.training.weights import read_tensors

STACK = TransformerConfig(n_layers=2, n_heads=4, d_ff=32, dropout=0.0)
MODEL = EncoderDecoderConfig(d_model=16, encoder=STACK, decoder=STACK)


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def count_by_formula(config: EncoderDecoderConfig, source_size: int, target_size: int) -> int:
    """Matrices and biases of the paper's section 3, counted by hand."""
    m = config.d_model
    attention = 4 * (m * m + m)  # W^Q, W^K, W^V, W^O and their biases
    norm = 2 * m

    def feed_forward(f: int) -> int:
        return (m * f + f) + (f * m + m)

    encoder_layer = attention + feed_forward(config.encoder.d_ff) + 2 * norm
    decoder_layer = 2 * attention + feed_forward(config.decoder.d_ff) + 3 * norm
    stacks = config.encoder.n_layers * encoder_layer + config.decoder.n_layers * decoder_layer
    final_norms = norm * [config.encoder.norm_order, config.decoder.norm_order].count("pre")
    matrices = {
        "three-way": target_size,
        "two-way": source_size + target_size,
        "none": source_size + 2 * target_size,
    }
    return stacks + final_norms + matrices[config.tie] * m


TRANSFORMERS = {
    name
    for name, config in PRESETS.items()
    if isinstance(config.encoder, TransformerConfig)
    and isinstance(config.decoder, TransformerConfig)
}


@pytest.mark.parametrize("name", sorted(TRANSFORMERS - {"paper-big"}))
def test_presets_have_the_parameters_of_the_formula(name: str) -> None:
    config = PRESETS[name]
    joint = config.tie == "three-way"
    source_size, target_size = (1000, 1000) if joint else (1000, 900)
    model = build_encoder_decoder(config, source_size, target_size, joint)
    assert count(model) == count_by_formula(config, source_size, target_size)


def test_paper_presets_at_37_000_tokens() -> None:
    """6 · 3,152,384 and 6 · 4,204,032 in the stacks, 37,000 · 512 in the one shared matrix."""
    assert count_by_formula(PRESETS["paper-base"], 37_000, 37_000) == 63_082_496
    assert count_by_formula(PRESETS["paper-big"], 37_000, 37_000) == 214_245_376
    with torch.device("meta"):
        for name, expected in (("paper-base", 63_082_496), ("paper-big", 214_245_376)):
            model = build_encoder_decoder(PRESETS[name], 37_000, 37_000, joint=True)
            assert count(model) == expected


@pytest.mark.parametrize("tie", ["none", "two-way", "three-way"])
def test_tied_matrices_are_one(tie: str) -> None:
    model = build_encoder_decoder(replace(MODEL, tie=tie), 11, 11, joint=True)
    source, target, head = (
        matrix.data_ptr()
        for matrix in (
            model.front_end.embedding.weight,
            model.target_front_end.embedding.weight,
            model.head.weight,
        )
    )
    assert (target == head) == (tie != "none")
    assert (source == target) == (tie == "three-way")
    assert count(model) == count_by_formula(replace(MODEL, tie=tie), 11, 11)


@pytest.mark.parametrize("tie", ["two-way", "three-way"])
def test_ties_outlive_a_step_and_a_change_of_precision(tie: str) -> None:
    model = build_encoder_decoder(replace(MODEL, tie=tie), 11, 11, joint=True).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model(ids([4, 5]), ids([2, 6])).sum().backward()
    optimizer.step()
    assert model.head.weight is model.target_front_end.embedding.weight
    assert (model.front_end.embedding.weight is model.head.weight) == (tie == "three-way")


def test_three_way_tie_without_a_joint_vocabulary_is_refused() -> None:
    with pytest.raises(SettingError, match=r"model\.tie = 'three-way' needs one joint vocabulary"):
        build_encoder_decoder(MODEL, 11, 11, joint=False)
    build_encoder_decoder(replace(MODEL, tie="two-way"), 11, 12, joint=False)


def ids(*rows: list[int]) -> Padded:
    return Padded.from_rows(rows)


# --- first values ----------------------------------------------------------------------------


def wide_model(activation: str = "relu", tie: str = "three-way") -> EncoderDecoder:
    stack = replace(STACK, n_layers=1, d_ff=256, n_heads=8, activation=activation)
    config = EncoderDecoderConfig(d_model=128, tie=tie, encoder=stack, decoder=stack)
    return build_encoder_decoder(config, 2000, 2000, joint=True)


def assert_xavier(weight: Tensor) -> None:
    fan_out, fan_in = weight.shape
    bound = math.sqrt(6 / (fan_in + fan_out))
    assert 0.99 * bound < weight.abs().max() <= bound
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.03)


def test_each_projection_starts_as_a_matrix_of_its_own() -> None:
    model = wide_model("swiglu")
    encoder_layer, decoder_layer = model.encoder.layers[0], model.decoder.layers[0]
    for layer in (encoder_layer, decoder_layer):
        for part in layer.self_attention.query_key_value.weight.chunk(3):
            assert_xavier(part)
        assert_xavier(layer.self_attention.output.weight)
        for part in layer.feed_forward.gate_inner.weight.chunk(2):
            assert_xavier(part)
        assert_xavier(layer.feed_forward.outer.weight)
    cross = decoder_layer.cross_attention
    for part in (cross.query.weight, *cross.key_value.weight.chunk(2), cross.output.weight):
        assert_xavier(part)


def test_feed_forward_starts_with_xavier_and_biases_at_zero() -> None:
    model = wide_model()
    assert_xavier(model.encoder.layers[0].feed_forward.inner.weight)
    assert_xavier(model.decoder.layers[0].feed_forward.outer.weight)
    for name, parameter in model.named_parameters():
        if name.endswith(".bias"):
            assert not parameter.any(), name
        if name.endswith("norm.weight"):
            assert (parameter == 1).all(), name


@pytest.mark.parametrize("tie", ["none", "two-way", "three-way"])
def test_embeddings_come_in_and_logits_go_out_with_unit_variance(tie: str) -> None:
    model = wide_model(tie=tie)
    tokens = Padded.unpadded(torch.randint(0, 2000, (4, 50)))
    for front_end in (model.front_end, model.target_front_end):
        assert front_end.embedding.weight.std().item() == pytest.approx(128**-0.5, rel=0.03)
        assert front_end(tokens).values.std().item() == pytest.approx(1, rel=0.05)
    assert model.head.weight.std().item() == pytest.approx(128**-0.5, rel=0.03)
    assert model.head(torch.randn(20, 128)).std().item() == pytest.approx(1, rel=0.1)


# --- dropout ---------------------------------------------------------------------------------


@pytest.mark.parametrize("stack", [TransformerEncoder, TransformerDecoder])
def test_dropout_stands_where_the_settings_put_it(
    stack: type[TransformerEncoder | TransformerDecoder],
) -> None:
    config = replace(
        STACK, n_layers=1, dropout=0.1, attention_dropout=0.2, feed_forward_dropout=0.3
    )
    modules = dict(stack(config, 16).named_modules())
    found = {name: module.p for name, module in modules.items() if isinstance(module, Dropout)}
    found |= {
        name: module.dropout
        for name, module in modules.items()
        if isinstance(module, SelfAttention | CrossAttention)
    }
    expected = {
        "dropout": 0.1,
        "layers.0.self_attention": 0.2,
        "layers.0.self_attention_residual.dropout": 0.1,
        "layers.0.feed_forward.dropout": 0.3,
        "layers.0.feed_forward_residual.dropout": 0.1,
    }
    if stack is TransformerDecoder:
        expected |= {
            "layers.0.cross_attention": 0.2,
            "layers.0.cross_attention_residual.dropout": 0.1,
        }
    assert found == expected


@pytest.mark.parametrize("place", ["dropout", "attention_dropout", "feed_forward_dropout"])
@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_each_dropout_acts_in_training_alone(place: str, activation: str) -> None:
    stack = replace(STACK, activation=activation, **{place: 0.5})
    model = build_encoder_decoder(replace(MODEL, encoder=stack, decoder=stack), 11, 11, joint=True)
    batch = ids([4, 5, 6, 3], [7, 3]), ids([2, 5, 6], [2, 4])
    assert not torch.equal(model(*batch), model(*batch))
    model.eval()
    assert torch.equal(model(*batch), model(*batch))
    assert torch.equal(model(*batch), without_dropout(model)(*batch))


def without_dropout(model: EncoderDecoder) -> EncoderDecoder:
    """A model of the same weights, built without dropout, in training mode."""
    feed_forward = model.encoder.layers[0].feed_forward
    activation = "swiglu" if isinstance(feed_forward, GatedFeedForward) else "relu"
    stack = replace(STACK, activation=activation)
    plain = build_encoder_decoder(replace(MODEL, encoder=stack, decoder=stack), 11, 11, joint=True)
    plain.load_state_dict(model.state_dict())
    return plain


def test_residual_dropout_acts_on_the_sublayers_output() -> None:
    """With everything dropped only x is left: section 5.4's "before it is added"."""
    x = torch.randn(2, 3, 16)
    post, pre = PostNorm(16, dropout=1.0), PreNorm(16, dropout=1.0)
    torch.testing.assert_close(post(x, lambda y: y + 7), nn.functional.layer_norm(x, [16]))
    assert torch.equal(pre(x, lambda y: y + 7), x)


def test_norm_orders_are_what_they_say() -> None:
    x = torch.randn(2, 3, 16)
    norm = nn.functional.layer_norm
    torch.testing.assert_close(PostNorm(16, 0.0)(x, torch.exp), norm(x + x.exp(), [16]))
    torch.testing.assert_close(PreNorm(16, 0.0)(x, torch.exp), x + norm(x, [16]).exp())


def test_embedding_dropout_acts_on_embeddings_plus_positions() -> None:
    encoder = TransformerEncoder(replace(STACK, dropout=0.5), 16)
    seen: list[Tensor] = []
    encoder.layers[0].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    source = Padded.unpadded(torch.randn(2, 6, 16))
    encoder(source)
    whole = encoder.positions.embed(source.values, torch.arange(6))
    dropped = seen[0] == 0
    assert 0.3 < dropped.float().mean() < 0.7
    torch.testing.assert_close(seen[0], whole.masked_fill(dropped, 0.0) * 2)


def test_attention_dropout_acts_on_the_weights() -> None:
    value = torch.eye(50)  # the output is then the dropped weights themselves
    query, key = torch.randn(2, 50, 50)
    output, weights = attention_with_weights(query, key, value, Mask(), dropout=0.5)
    dropped = output == 0
    assert 0.4 < dropped.float().mean() < 0.6
    torch.testing.assert_close(output, weights.masked_fill(dropped, 0.0) * 2)
    torch.testing.assert_close(weights.sum(-1), torch.ones(50))


# --- feed-forward ----------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_feed_forward_is_equation_2(activation: str) -> None:
    network = FeedForward(8, 20, activation, dropout=0.0)
    x = torch.randn(3, 8)
    inner = x @ network.inner.weight.T + network.inner.bias
    bent = inner.clamp(min=0) if activation == "relu" else inner * (1 + (inner / 2**0.5).erf()) / 2
    expected = bent @ network.outer.weight.T + network.outer.bias
    torch.testing.assert_close(network(x), expected)


def test_swiglu_is_its_formula_and_has_no_bias() -> None:
    network = GatedFeedForward(8, 20, dropout=0.0)
    assert count(network) == 3 * 8 * 20
    x = torch.randn(3, 8)
    gate, inner = (x @ part.T for part in network.gate_inner.weight.chunk(2))
    expected = (gate * gate.sigmoid() * inner) @ network.outer.weight.T
    torch.testing.assert_close(network(x), expected)


# --- what is refused, and what is free -------------------------------------------------------


@pytest.mark.parametrize("stack", [TransformerEncoder, TransformerDecoder])
def test_heads_that_do_not_fit_are_refused(
    stack: type[TransformerEncoder | TransformerDecoder],
) -> None:
    with pytest.raises(SettingError, match="n_heads = 3 does not divide d_model = 16"):
        stack(replace(STACK, n_heads=3), 16)
    with pytest.raises(SettingError, match="rotary positions need an even head width, not 3"):
        stack(replace(STACK, positions="rotary"), 12)


@pytest.mark.parametrize("side", ["source", "target"])
def test_learned_positions_refuse_what_is_too_long(side: str) -> None:
    stack = replace(STACK, positions="learned", max_positions=4)
    model = build_encoder_decoder(replace(MODEL, encoder=stack, decoder=stack), 11, 11, joint=True)
    fits, too_long = ids([4] * 4), ids([4] * 5)
    assert model(fits, fits).shape == (1, 4, 11)
    with pytest.raises(DataError, match="more than 4 tokens") as refusal:
        model(*((too_long, fits) if side == "source" else (fits, too_long)))
    assert "\n" not in str(refusal.value)


def test_learned_positions_refuse_one_step_too_many() -> None:
    stack = replace(STACK, positions="learned", max_positions=2)
    decoder = TransformerDecoder(stack, 16, cross_attention=False)
    state = decoder.start()
    step = Padded.unpadded(torch.randn(1, 1, 16))
    for _ in range(2):
        decoder(step, state)
    with pytest.raises(DataError, match="more than 2 tokens"):
        decoder(step, state)


def test_learned_positions_do_not_count_left_padding() -> None:
    stack = replace(STACK, positions="learned", max_positions=2)
    real = torch.tensor([[False, False, True, True]])
    TransformerEncoder(stack, 16)(Padded(torch.randn(1, 4, 16), real))


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "alibi", "none"])
def test_other_positions_reach_any_length(positions: str) -> None:
    stack = replace(STACK, positions=positions, max_positions=4, n_layers=1)
    long = Padded.unpadded(torch.randn(1, 200, 16))
    assert TransformerEncoder(stack, 16)(long).values.isfinite().all()


def test_stacks_are_of_independent_make() -> None:
    config = replace(
        MODEL,
        encoder=TransformerConfig(n_layers=3, n_heads=2, d_ff=24, norm_order="pre"),
        decoder=TransformerConfig(n_layers=1, n_heads=8, d_ff=40, positions="learned"),
    )
    model = build_encoder_decoder(config, 11, 11, joint=True)
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (3, 1)
    learned_table = config.decoder.max_positions * 16
    assert count(model) == count_by_formula(config, 11, 11) + learned_table
    assert model(ids([4, 5, 3]), ids([2, 6])).shape == (1, 2, 11)


def test_tables_of_positions_made_while_serving_can_be_trained_on() -> None:
    encoder = TransformerEncoder(STACK, 16)
    source = Padded.unpadded(torch.randn(1, 70, 16))
    with torch.inference_mode():
        encoder(source)
    encoder(source).values.sum().backward()


def test_attention_alone_cannot_tell_positions() -> None:
    """Section 3.5's reason for positions: without them order changes nothing but the order."""
    attention, x = SelfAttention(16, 4).eval(), torch.randn(1, 5, 16)
    order = torch.tensor([3, 0, 4, 1, 2])
    straight, shuffled = (attention(rows, Mask()) for rows in (x, x[:, order]))
    torch.testing.assert_close(straight[:, order], shuffled)


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.9])
def test_dropout_drops_the_share_asked_for_and_keeps_the_mean(p: float) -> None:
    torch.manual_seed(3)
    x = torch.ones(999, 1001, requires_grad=True)
    dropped = Dropout(p)(x)
    zeros = (dropped == 0).double()
    tolerance = 5 * math.sqrt(p * (1 - p) / x.numel())
    assert abs(zeros.mean().item() - p) < tolerance
    torch.testing.assert_close(
        dropped[dropped != 0], torch.full_like(dropped[dropped != 0], 1 / (1 - p))
    )
    # Neighbours, whose bits come of one draw, are as independent as others.
    for lag in (1, 2, 3, 4):
        both = (zeros.flatten()[lag:] * zeros.flatten()[:-lag]).mean().item()
        assert abs(both - p * p) < 5 * p * math.sqrt((1 - p * p) / x.numel()) + 1e-4
    dropped.sum().backward()
    assert torch.equal(x.grad, dropped.detach())


@pytest.mark.parametrize("p", [0.99, 1 - 2**-7, 0.9999, 0.99999, 0.999995])
def test_dropout_of_nearly_all_keeps_the_share_asked_for(p: float) -> None:
    torch.manual_seed(3)
    n = 2_000_000
    kept = int((Dropout(p)(torch.ones(n)) != 0).sum())
    assert abs(kept - n * (1 - p)) < 5 * math.sqrt(n * (1 - p)) + n * (1 - p) / 1000


def test_dropout_follows_the_seed_and_rests_in_evaluation() -> None:
    dropout, x = Dropout(0.5), torch.randn(7, 3, 5).transpose(0, 2)
    torch.manual_seed(1)
    first = dropout(x)
    second = dropout(x)
    torch.manual_seed(1)
    assert torch.equal(first, dropout(x))
    assert not torch.equal(first, second)
    assert dropout.eval()(x) is x


@pytest.mark.parametrize("padding", ["right", "any"])
def test_leaving_padding_out_changes_neither_outputs_nor_gradients(padding: str) -> None:
    torch.manual_seed(0)
    config = TransformerConfig(n_layers=2, n_heads=2, d_ff=16, dropout=0.0)
    encoder, decoder = (
        TransformerEncoder(config, 8).double(),
        TransformerDecoder(config, 8).double(),
    )
    lengths = [5, 2, 4]
    real = torch.arange(5)[None, :] < torch.tensor(lengths)[:, None]
    if padding == "any":
        real = real.flip(1)
    values = torch.randn(3, 5, 8, dtype=torch.float64, requires_grad=True)
    batch = Padded(values, real, padding)
    memory = encoder(batch)
    output = decoder(batch, decoder.start(memory)).values[real]
    alone = []
    for i in range(3):
        row = Padded.unpadded(values[i : i + 1, real[i]])
        alone.append(decoder(row, decoder.start(encoder(row))).values[0])
    torch.testing.assert_close(output, torch.cat(alone))
    weights = torch.randn_like(output)
    together = torch.autograd.grad((output * weights).sum(), [values, *decoder.parameters()])
    apart = torch.autograd.grad((torch.cat(alone) * weights).sum(), [values, *decoder.parameters()])
    for ours, theirs in zip(together, apart, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("n_padding", [0, 5, 60])
def test_under_autocast_rows_come_in_few_numbers(n_padding: int) -> None:
    real = torch.ones(134, dtype=torch.bool)
    real[:n_padding] = False
    real = real.view(67, 2)
    values = torch.randn(67, 2, 3, requires_grad=True)
    weight = torch.ones(3, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        unpadding = Unpadding(Padded(values, real, "any"))
    rows = unpadding.unpad(values)
    assert rows.flatten(0, -2).shape[0] == {0: 160, 5: 160, 60: 96}[n_padding]
    spread = unpadding.pad(rows * weight)
    assert torch.equal(spread[real], values[real])
    # With anything after it, at padding too: the rows that only fill up have no part in it.
    gradient, of_weight = torch.autograd.grad(spread[real].sum(), [values, weight])
    assert torch.equal(gradient, real[:, :, None].expand(values.shape).float())
    torch.testing.assert_close(of_weight, values[real].sum(0))


@given(n=st.integers(1, 2**20))
def test_numbers_of_rows_are_few_and_no_more_than_a_sixteenth_too_large(n: int) -> None:
    assert row_step(n) in {32, row_step(2 * n) // 2}
    assert -n % row_step(n) <= max(31, n // 16)


def test_the_default_width_of_a_head_changes_no_tensor() -> None:
    own = replace(STACK, d_head=4)
    torch.manual_seed(1)
    default = TransformerDecoder(STACK, 16).state_dict()
    torch.manual_seed(1)
    same = TransformerDecoder(own, 16).state_dict()
    assert default.keys() == same.keys()
    assert all(torch.equal(default[name], same[name]) for name in default)
    with pytest.raises(SettingError, match="even head width, not 5"):
        TransformerDecoder(replace(STACK, d_head=5, positions="rotary"), 16)


def test_a_model_with_heads_of_their_own_width_is_trained_and_loaded(tmp_path: Path) -> None:
    data = write_tsv(tmp_path / "a.tsv", reversal_pairs(60))
    stacks = "model.encoder", "model.decoder"
    heads = [f"{stack}.{setting}" for stack in stacks for setting in ("n_heads=3", "d_head=5")]
    run, _ = train_tiny(data, tmp_path / "run", "training.steps=2", *heads)
    shapes = {n: tuple(t.shape) for n, t in read_tensors(run / "weights.safetensors").items()}
    assert shapes["decoder.layers.0.cross_attention.key_value.weight"] == (2 * 15, 16)
    assert transduce.load(run)("abc").text is not None

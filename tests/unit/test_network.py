"""The network's makings: sizes, ties, first values, and what it refuses."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import transduce
from helpers.small_network import MODEL, STACK, count, ids
from helpers.tiny_run import reversal_pairs, train_tiny, write_tsv
from transduce.errors import DataError, SettingError
from transduce.models.config import PRESETS, EncoderDecoderConfig
from transduce.models.encoder_decoder import EncoderDecoder, build_encoder_decoder
from transduce.nn.stack_configs import TransformerConfig
from transduce.nn.transformer import TransformerDecoder, TransformerEncoder
from transduce.sequence import Padded
from transduce.training.weights import read_tensors


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

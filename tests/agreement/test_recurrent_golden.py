"""Attention of recurrent decoders against known figures, their cells against plain formulas."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from helpers.golden import exact, read_golden
from transduce.nn.masks import Mask
from transduce.nn.recurrent import (
    AdditiveScore,
    ContextAttention,
    DotScore,
    GeneralScore,
    Recurrence,
    RecurrentDecoder,
    RecurrentEncoder,
    Score,
    summarise,
)
from transduce.nn.stack_configs import (
    AdditiveContext,
    Cell,
    ContextConfig,
    GeneralContext,
    RecurrentDecoderConfig,
    RecurrentEncoderConfig,
)
from transduce.nn.stack_configs import FixedContext as Fixed
from transduce.sequence import Padded

CLOSE = {"rtol": 0.0, "atol": 1e-9}
RESULTS = {"dot": "dot", "general": "general", "additive": "additive_result"}


def golden_score(kind: str) -> Score:
    """The scoring function with the figures' matrices; nn.Linear keeps them transposed."""
    golden = read_golden("rnn_attention")
    if kind == "dot":
        return DotScore()
    score: Score
    if kind == "general":
        # h · W z is hᵀ W z, so what is made of the memory is h W.
        score = GeneralScore(6).double()
        matrices = {score.key: exact(golden["W"]).T}
    else:
        figures = golden["additive"]
        score = AdditiveScore(6, 4).double()
        matrices = {
            score.key: exact(figures["W_h"]).T,
            score.query: exact(figures["W_z"]).T,
            score.score: exact(figures["v"])[None],
        }
    with torch.no_grad():
        for linear, matrix in matrices.items():
            linear.weight.copy_(matrix)
    return score


@pytest.mark.parametrize("kind", RESULTS)
def test_weights_and_contexts_are_the_known_ones(kind: str) -> None:
    golden = read_golden("rnn_attention")
    attention = ContextAttention(golden_score(kind))
    attention.weights = []
    states, query = exact(golden["H"]), exact(golden["z"])
    # A second row and a second query, so that nothing fits by broadcasting alone.
    memory = attention.project(torch.stack([states.flip(0), states]))
    queries = torch.stack([torch.stack([query, -query]), torch.stack([-query, query])])
    context = attention(queries, memory, Mask())[1, 1]
    (weights,) = attention.weights
    assert weights.shape == (2, 1, 2, 5)
    known = golden[RESULTS[kind]]
    torch.testing.assert_close(weights[1, 0, 1], exact(known["weights"]), **CLOSE)
    torch.testing.assert_close(weights[0, 0, 0], exact(known["weights"]).flip(0), **CLOSE)
    torch.testing.assert_close(context, exact(known["context"]), **CLOSE)


def step_by_formula(
    cells: nn.LSTM | nn.GRU, suffix: str, x: Tensor, h: Tensor, c: Tensor
) -> tuple[Tensor, Tensor]:
    """One step of one layer for x (m,), as the papers write it."""
    of_x, of_h = (
        getattr(cells, f"weight_{part}{suffix}") @ vector + getattr(cells, f"bias_{part}{suffix}")
        for part, vector in (("ih", x), ("hh", h))
    )
    if isinstance(cells, nn.LSTM):
        i, f, g, o = (of_x + of_h).chunk(4)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c
    (r, z), n = (of_x + of_h)[: 2 * len(h)].sigmoid().chunk(2), len(h)
    new = torch.tanh(of_x[2 * n :] + r * of_h[2 * n :])
    return (1 - z) * new + z * h, c


def run_by_formula(cells: nn.LSTM | nn.GRU, suffix: str, xs: Tensor, h: Tensor) -> Tensor:
    """One layer over xs (t, m) from h on, in one direction."""
    c, outputs = torch.zeros_like(h), []
    for x in xs:
        h, c = step_by_formula(cells, suffix, x, h, c)
        outputs.append(h)
    return torch.stack(outputs)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@torch.no_grad()
def test_encoder_agrees_with_the_formulas(cell: Cell) -> None:
    encoder = RecurrentEncoder(RecurrentEncoderConfig(cell=cell, n_layers=2), 6).double().eval()
    rows = [torch.randn(length, 6, dtype=torch.float64) for length in (4, 2)]
    values = torch.stack([rows[0], torch.cat([rows[1], torch.full((2, 6), 9.0)])])
    real = torch.tensor([[True] * 4, [True, True, False, False]])
    memory = encoder(Padded(values, real, "right")).values
    for row, result in zip(rows, memory, strict=True):
        x, nothing = row, torch.zeros(3, dtype=torch.float64)
        for layer in ("_l0", "_l1"):
            forward = run_by_formula(encoder.layers.cells, layer, x, nothing)
            back = run_by_formula(encoder.layers.cells, f"{layer}_reverse", x.flip(0), nothing)
            x = torch.cat([forward, back.flip(0)], 1)
        torch.testing.assert_close(result[: len(row)], x, rtol=0, atol=1e-12)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@torch.no_grad()
def test_fixed_context_enters_every_step_and_the_first_state(cell: Cell) -> None:
    config = RecurrentDecoderConfig(cell=cell, n_layers=1, context=Fixed())
    decoder = RecurrentDecoder(config, 6).double().eval()
    memory, target = torch.randn(2, 5, 6, dtype=torch.float64)
    result = decoder(Padded.unpadded(target[None]), decoder.start(Padded.unpadded(memory[None])))
    summary = memory.mean(0)
    h = torch.tanh(decoder.first.weight @ summary + decoder.first.bias)
    inputs = torch.cat([target, summary.expand(5, -1)], 1)
    z = run_by_formula(decoder.layers.cells, "_l0", inputs, h)
    matrix, bias = decoder.output.weight, decoder.output.bias
    expected = torch.tanh(torch.cat([summary.expand(5, -1), z], 1) @ matrix.T + bias)
    torch.testing.assert_close(result.values[0], expected, rtol=0, atol=1e-12)


@torch.no_grad()
def test_last_state_starts_the_decoder_and_is_seen_no_more() -> None:
    """Sutskever et al. 2014: p(y_t | v, y_1 … y_{t-1}), v being the encoder's last state."""
    encoder = RecurrentEncoder(RecurrentEncoderConfig(bidirectional=False), 6).double().eval()
    config = RecurrentDecoderConfig(context=Fixed(every_step=False), summary="last")
    decoder = RecurrentDecoder(config, 6).double().eval()
    source, target = torch.randn(2, 4, 6, dtype=torch.float64)
    nothing = torch.zeros(6, dtype=torch.float64)
    v = run_by_formula(encoder.layers.cells, "_l0", source, nothing)[-1]
    first = torch.tanh(decoder.first.weight @ v + decoder.first.bias)
    expected = run_by_formula(decoder.layers.cells, "_l0", target, first)
    state = decoder.start(encoder(Padded.unpadded(source[None])))
    result = decoder(Padded.unpadded(target[None]), state).values[0]
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-12)


@torch.no_grad()
def test_last_states_of_both_directions_stand_at_either_end() -> None:
    memory = torch.randn(2, 4, 6)
    real = torch.tensor([[True] * 4, [False, True, True, False]])
    result = summarise(Padded(memory, real, "any"), "both-ends")
    ends = torch.cat([memory[[0, 1], [3, 2], :3], memory[[0, 1], [0, 1], 3:]], 1)
    assert torch.equal(result, ends)
    assert torch.equal(summarise(Padded(memory, real, "any"), "last"), memory[[0, 1], [3, 2]])


def found_in(memory: Tensor, query: Tensor, decoder: RecurrentDecoder) -> Tensor:
    """c = Σ α_i h_i, α being the softmax of the scores, one by one."""
    assert decoder.cross_attention is not None
    score = decoder.cross_attention.score
    if isinstance(score, AdditiveScore):
        v, w_h, w_z = score.score.weight[0], score.key.weight, score.query.weight
        scores = torch.stack([v @ torch.tanh(w_h @ h + w_z @ query) for h in memory])
    else:
        assert isinstance(score, GeneralScore)
        scores = torch.stack([(score.key.weight @ h) @ query for h in memory])
    return (scores.exp() / scores.exp().sum()) @ memory


def fed_decoder(
    context: ContextConfig, cell: Cell
) -> tuple[RecurrentDecoder, Tensor, Tensor, Tensor, Tensor]:
    """A decoder, memory (4, 6), target (3, 6), its output (3, 6), and its first state (6,)."""
    config = RecurrentDecoderConfig(cell=cell, n_layers=1, context=context)
    decoder = RecurrentDecoder(config, 6).double().eval()
    memory, target = torch.randn(2, 4, 6, dtype=torch.float64)
    first = torch.tanh(decoder.first.weight @ memory.mean(0) + decoder.first.bias)
    state = decoder.start(Padded.unpadded(memory[None]))
    result = decoder(Padded.unpadded(target[None, :3]), state).values[0]
    return decoder, memory, target[:3], result, first


@pytest.mark.parametrize("context", [AdditiveContext(), GeneralContext()])
@torch.no_grad()
def test_state_before_finds_the_context_that_enters_the_step(context: ContextConfig) -> None:
    """Bahdanau et al. 2015: s_i = f(s_{i-1}, y_{i-1}, c_i), c_i found by s_{i-1}.

    With the general score: the lectures' α = Hᵀ W z, and y = f(z_{t-1}, c_{t-1}).
    """
    fed = replace(context, input_feeding="context")
    decoder, memory, target, result, s = fed_decoder(fed, "gru")
    for y, output in zip(target, result, strict=True):
        c = found_in(memory, s, decoder)
        s, _ = step_by_formula(decoder.layers.cells, "_l0", torch.cat([y, c]), s, s)
        expected = torch.tanh(decoder.output.weight @ torch.cat([c, s]) + decoder.output.bias)
        torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)


@torch.no_grad()
def test_attentional_vector_enters_the_next_step() -> None:
    """Luong et al. 2015: h̃_t = tanh(W_c [c_t; h_t]), and the next input is [x; h̃_t]."""
    context = GeneralContext(input_feeding="attentional")
    decoder, memory, target, result, h = fed_decoder(context, "lstm")
    cell, attentional = torch.zeros_like(h), torch.zeros_like(h)
    for x, output in zip(target, result, strict=True):
        joined = torch.cat([x, attentional])
        h, cell = step_by_formula(decoder.layers.cells, "_l0", joined, h, cell)
        c = found_in(memory, h, decoder)
        matrix, bias = decoder.output.weight, decoder.output.bias
        attentional = torch.tanh(matrix @ torch.cat([c, h]) + bias)
        torch.testing.assert_close(output, attentional, rtol=0, atol=1e-12)


def test_each_gate_starts_as_a_matrix_of_its_own() -> None:
    for cell, gates in (("lstm", 4), ("gru", 3)):
        cells = Recurrence(cell, 96, 64, 1, 0.0).cells
        for gate in cells.weight_hh_l0.chunk(gates):
            torch.testing.assert_close(gate @ gate.T, torch.eye(64), rtol=0, atol=1e-5)
        bound = (6 / (96 + 64)) ** 0.5
        for gate in cells.weight_ih_l0.chunk(gates):
            assert 0.98 * bound < gate.abs().max() <= bound
        biases = (cells.bias_ih_l0 + cells.bias_hh_l0).chunk(gates)
        starts = [0.0, 1.0, 0.0, 0.0] if cell == "lstm" else [0.0] * 3
        assert [bias.unique().tolist() for bias in biases] == [[start] for start in starts]

"""What every stack promises, whatever it is made of.

A new part joins with one line in `ENCODERS` or `DECODERS`.
"""

import copy
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise, product
from typing import Any, get_args

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from transduce.nn.attention import record_into
from transduce.nn.bytenet import BytenetConfig, BytenetDecoder, BytenetEncoder
from transduce.nn.convolution import (
    ConvolutionEncoder,
    ConvolutionEncoderConfig,
    TextCnnConfig,
    TextCnnEncoder,
)
from transduce.nn.convolution_decoder import ConvolutionDecoder, ConvolutionDecoderConfig
from transduce.nn.feed_forward import Activation
from transduce.nn.memory_network import MemoryEncoder, MemoryEncoderConfig
from transduce.nn.positions import PositionKind
from transduce.nn.recurrent import (
    AdditiveContext,
    DotContext,
    FixedContext,
    GeneralContext,
    RecurrentDecoder,
    RecurrentDecoderConfig,
    RecurrentEncoder,
    RecurrentEncoderConfig,
)
from transduce.nn.residual import NormOrder
from transduce.nn.transformer import TransformerConfig, TransformerDecoder, TransformerEncoder
from transduce.sequence import Padded

M = 16  # d_model of every stack below
KINDS = list(product(get_args(PositionKind), get_args(NormOrder), get_args(Activation)))


HEADS = {"rotary": (3, 6), "alibi": (3, 5)}  # n_heads, and a width of their own


def config(positions: PositionKind, order: NormOrder, activation: Activation) -> TransformerConfig:
    n_heads, d_head = HEADS.get(positions, (4, None)) if order == "pre" else (4, None)
    return TransformerConfig(
        n_layers=2,
        n_heads=n_heads,
        d_head=d_head,
        d_ff=24,
        positions=positions,
        norm_order=order,
        activation=activation,
        max_positions=32,
        dropout=0.0,
    )


def decoder(*kind: Any, cross: bool) -> TransformerDecoder:
    return TransformerDecoder(config(*kind), M, cross_attention=cross)


CELLS = list(product(("lstm", "gru"), (1, 2)))  # of so many layers
CONTEXTS = (FixedContext(), DotContext(), GeneralContext(), AdditiveContext(width=6))
FED = (  # what enters the recurrence itself, or does not
    ("lstm", 1, FixedContext(every_step=False), "both-ends"),
    ("gru", 2, FixedContext(), "last"),
    ("lstm", 2, GeneralContext(input_feeding="attentional"), "mean"),
    ("gru", 1, AdditiveContext(width=6, input_feeding="context"), "mean"),
)
CONVOLUTIONS = [  # width, growth, positions
    *product((1, 3), (1, 2), ("none", "sinusoidal")),
    (3, 1, "learned"),
]
CAUSAL = ((1, "none"), (3, "learned"), (4, "sinusoidal"))  # width, positions
WINDOWS = ((3, 4, 5), (1,), (2, 9))


def recurrent_encoder(cell: Any, n_layers: int, both: bool = True) -> RecurrentEncoder:
    config = RecurrentEncoderConfig(cell=cell, n_layers=n_layers, bidirectional=both, dropout=0.0)
    return RecurrentEncoder(config, M)


def recurrent_decoder(
    cell: Any, n_layers: int, context: Any, summary: Any = "mean", cross: bool = True
) -> RecurrentDecoder:
    config = RecurrentDecoderConfig(
        cell=cell, n_layers=n_layers, context=context, summary=summary, dropout=0.0
    )
    return RecurrentDecoder(config, M, cross_attention=cross)


def convolution_encoder(width: int, growth: int, positions: Any) -> ConvolutionEncoder:
    config = ConvolutionEncoderConfig(
        n_layers=3, width=width, dilation_growth=growth, positions=positions, dropout=0.0
    )
    return ConvolutionEncoder(config, M)


def convolution_decoder(width: int, positions: Any, cross: bool = True) -> ConvolutionDecoder:
    config = ConvolutionDecoderConfig(n_layers=2, width=width, positions=positions, dropout=0.0)
    return ConvolutionDecoder(config, M, cross_attention=cross)


def bytenet_decoder(width: int, cross: bool = True) -> BytenetDecoder:
    config = BytenetConfig(n_layers=3, width=width, dropout=0.0)
    return BytenetDecoder(config, M, cross_attention=cross)


def text_cnn_encoder(widths: tuple[int, ...]) -> TextCnnEncoder:
    return TextCnnEncoder(TextCnnConfig(widths=widths, dropout=0.0), M)


def named(*kind: Any) -> str:
    return "-".join(str(getattr(part, "kind", part)) for part in kind)


def fed(context: Any) -> str:
    return getattr(context, "input_feeding", "fixed")


# What makes an encoder: Padded vectors (b, t, M) -> Padded memory.
ENCODERS: dict[str, Callable[[], nn.Module]] = {
    **{"-".join(kind): lambda kind=kind: TransformerEncoder(config(*kind), M) for kind in KINDS},
    **{named(*kind): partial(recurrent_encoder, *kind) for kind in CELLS},
    "lstm-2-one-direction": partial(recurrent_encoder, "lstm", 2, both=False),
    **{named("convolution", *kind): partial(convolution_encoder, *kind) for kind in CONVOLUTIONS},
    "bytenet": lambda: BytenetEncoder(BytenetConfig(n_layers=6, dropout=0.0), M),
    "memory-network": lambda: MemoryEncoder(MemoryEncoderConfig(hops=2, window=3, dropout=0.0), M),
    **{named("text-cnn", *widths): partial(text_cnn_encoder, widths) for widths in WINDOWS},
}

# What makes a decoder, and whether it looks at a memory.
DECODERS: dict[str, tuple[Callable[[], nn.Module], bool]] = {
    **{"-".join(kind) + "-cross": (partial(decoder, *kind, cross=True), True) for kind in KINDS},
    **{"-".join(kind) + "-alone": (partial(decoder, *kind, cross=False), False) for kind in KINDS},
    **{
        named(*kind, context): (partial(recurrent_decoder, *kind, context), True)
        for kind, context in product(CELLS, CONTEXTS)
    },
    **{named(*kind, fed(kind[2])): (partial(recurrent_decoder, *kind), True) for kind in FED},
    **{
        named(*kind, "alone"): (partial(recurrent_decoder, *kind, context, cross=False), False)
        for kind, context in zip(CELLS, CONTEXTS, strict=True)
    },
    **{named("convolution", *kind): (partial(convolution_decoder, *kind), True) for kind in CAUSAL},
    "convolution-alone": (partial(convolution_decoder, 3, "learned", cross=False), False),
    **{named("bytenet", width): (partial(bytenet_decoder, width), True) for width in (3, 5)},
    "bytenet-alone": (partial(bytenet_decoder, 3, cross=False), False),
}

WITH_MEMORY = [name for name, (_, looks_at_memory) in DECODERS.items() if looks_at_memory]

# In float64 equal sums in another order differ by far less, and a leak by far more.
CLOSE = {"rtol": 0.0, "atol": 1e-10}
LENGTHS = (5, 2, 6, 1)
MEMORY_LENGTHS = (3, 7, 1, 4)


@pytest.fixture(params=list(ENCODERS))
def encoder(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(1)
    return ENCODERS[request.param]().double().eval()


class Decoding(nn.Module):
    """A decoder, and the memory that it looks at, if any."""

    def __init__(self, decoder: nn.Module, memory: Padded | None) -> None:
        super().__init__()
        self.decoder = decoder
        self.memory = memory

    def start(self, rows: list[int] | None = None) -> Any:
        """A fresh state over the memory, or over some of its rows."""
        memory = self.memory
        if memory is not None and rows is not None:
            memory = memory.select(torch.tensor(rows))
        return self.decoder.start(memory)

    def forward(self, target: Padded) -> Padded:
        """Everything at once."""
        return self.decoder(target, self.start())


@pytest.fixture(params=list(DECODERS))
def decoding(request: pytest.FixtureRequest) -> Decoding:
    torch.manual_seed(1)
    build, looks_at_memory = DECODERS[request.param]
    memory = lay(vectors(MEMORY_LENGTHS)) if looks_at_memory else None
    return Decoding(build(), memory).double().eval()


@pytest.fixture
def no_gradient() -> Iterator[None]:
    with torch.no_grad():
        yield


def vectors(lengths: tuple[int, ...]) -> list[Tensor]:
    return [torch.randn(length, M, dtype=torch.float64) for length in lengths]


def lay(rows: list[Tensor], side: str = "right", extra: int = 0, told: str | None = None) -> Padded:
    """Rows padded to one length, with loud garbage at the padding.

    extra: columns beyond the longest row.  told: what `Padded.padding` says.
    """
    width = max(len(row) for row in rows) + extra
    values = 100 * torch.randn(len(rows), width, M, dtype=torch.float64)
    real = torch.zeros(len(rows), width, dtype=torch.bool)
    for i, row in enumerate(rows):
        place = slice(0, len(row)) if side == "right" else slice(width - len(row), width)
        values[i, place], real[i, place] = row, True
    return Padded(values, real, told or ("right" if side == "right" else "any"))


LAYOUTS = [
    {"side": "right"},
    {"side": "right", "extra": 3},
    {"side": "right", "told": "any"},
    {"side": "left"},
    {"side": "left", "extra": 3},
]


def each_row(output: Padded) -> list[Tensor]:
    return [values[real] for values, real in zip(output.values, output.real, strict=True)]


def assert_same_rows(found: Padded, wanted: list[Tensor]) -> None:
    for one, other in zip(each_row(found), wanted, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)


# --- padding and batches ---------------------------------------------------------------------


@pytest.mark.usefixtures("no_gradient")
def test_encoder_reads_each_row_as_if_alone(encoder: nn.Module) -> None:
    rows = vectors(LENGTHS)
    alone = [encoder(Padded.unpadded(row[None])).values[0] for row in rows]
    for layout in LAYOUTS:
        assert_same_rows(encoder(lay(rows, **layout)), alone)
    assert_same_rows(encoder(lay(rows[::-1])), alone[::-1])
    assert_same_rows(encoder(lay(rows[1:2] * 3, extra=1)), alone[1:2] * 3)


@pytest.mark.usefixtures("no_gradient")
def test_decoder_reads_each_row_as_if_alone(decoding: Decoding) -> None:
    rows = vectors(LENGTHS)
    alone = []
    for i, row in enumerate(rows):
        memory = None
        if decoding.memory is not None:
            memory = Padded.unpadded(each_row(decoding.memory)[i][None])
        alone.append(Decoding(decoding.decoder, memory)(Padded.unpadded(row[None])).values[0])
    for layout in LAYOUTS:
        assert_same_rows(decoding(lay(rows, **layout)), alone)
    if decoding.memory is not None:
        for layout in LAYOUTS:
            memory = lay(each_row(decoding.memory), **layout)
            assert_same_rows(Decoding(decoding.decoder, memory)(lay(rows)), alone)


@pytest.mark.usefixtures("no_gradient")
def test_decoder_does_not_look_ahead(decoding: Decoding) -> None:
    values = torch.randn(4, 6, M, dtype=torch.float64)
    changed = torch.cat([values[:, :4], torch.randn(4, 2, M, dtype=torch.float64)], 1)
    before, after = (decoding(Padded.unpadded(v)).values[:, :4] for v in (values, changed))
    torch.testing.assert_close(before, after, **CLOSE)


@pytest.mark.usefixtures("no_gradient")
@pytest.mark.parametrize("decoding", WITH_MEMORY, indirect=True)
def test_the_memory_is_looked_at(decoding: Decoding) -> None:
    target = Padded.unpadded(torch.randn(4, 2, M, dtype=torch.float64))
    other = Decoding(decoding.decoder, lay(vectors(MEMORY_LENGTHS)))
    assert not torch.allclose(decoding(target).values, other(target).values, atol=1e-3)


# --- steps and states ------------------------------------------------------------------------


def in_steps(decoding: Decoding, target: Padded, sizes: tuple[int, ...]) -> Padded:
    """The output of decoding in chunks of these sizes, put together."""
    state = decoding.start()
    edges = [0]
    for size in sizes:
        edges.append(edges[-1] + size)
    outputs = []
    for start, end in pairwise(edges):
        here = slice(start, end)
        chunk = Padded(target.values[:, here], target.real[:, here], target.padding)
        outputs.append(decoding.decoder(chunk, state).values)
        assert state.length == end
    return target.with_values(torch.cat(outputs, 1))


@pytest.mark.usefixtures("no_gradient")
@pytest.mark.parametrize("layout", ["even", "right", "left"])
def test_cached_steps_equal_one_pass(decoding: Decoding, layout: str) -> None:
    if layout == "even":
        target = Padded.unpadded(torch.randn(4, 6, M, dtype=torch.float64))
    else:
        target = lay(vectors(LENGTHS), side=layout)
    wanted = each_row(decoding(target))
    for sizes in ((1,) * 6, (2, 2, 2), (3, 1, 2), (1, 5)):
        assert_same_rows(in_steps(decoding, target, sizes), wanted)


SELECTIONS = {
    "repeat, then reorder within and across groups": [
        [0, 0, 1, 1, 2, 2, 3, 3],
        [1, 0, 3, 3, 6, 7, 4, 4],
    ],
    "drop a sentence": [[0, 0, 1, 1, 2, 2, 3, 3], [0, 1, 4, 4, 7, 6]],
    "irregular groups": [[1, 1, 1, 0], [3, 0, 0, 2, 1], [4, 2, 1, 0]],
    "groups apart": [[0, 1, 0, 1], [3, 0, 2, 2]],
    "reorder, then keep one": [[2, 0, 3, 1], [3], [0, 0], [1]],
}


@pytest.mark.usefixtures("no_gradient")
@pytest.mark.parametrize("selections", SELECTIONS.values(), ids=SELECTIONS)
def test_selecting_rows_selects_their_future(
    decoding: Decoding, selections: list[list[int]]
) -> None:
    nothing = Padded.unpadded(torch.empty(4, 0, M, dtype=torch.float64))
    even = lay(vectors((4, 4, 4, 4)), told="none")
    ragged = lay(vectors(LENGTHS), side="left")
    for past in (nothing, even, ragged):
        assert_future_follows(decoding, past, selections)


def assert_future_follows(decoding: Decoding, past: Padded, selections: list[list[int]]) -> None:
    """After each selection a step gives what the chosen rows, read in one pass, would give."""
    state, origin = decoding.start(), list(range(4))
    if past.real.shape[1]:
        decoding.decoder(past, state)
    for chosen in selections:
        state.select(torch.tensor(chosen))
        origin = [origin[i] for i in chosen]
        step = Padded.unpadded(torch.randn(len(chosen), 1, M, dtype=torch.float64))
        found = decoding.decoder(step, state).values
        past = past.select(torch.tensor(chosen))
        past = Padded(
            torch.cat([past.values, step.values], 1), torch.cat([past.real, step.real], 1), "any"
        )
        wanted = decoding.decoder(past, decoding.start(origin)).values[:, -1:]
        torch.testing.assert_close(found, wanted, **CLOSE)


# --- recording -------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_gradient")
def test_recording_an_encoder_changes_nothing(encoder: nn.Module) -> None:
    for side in ("right", "left"):
        source = lay(vectors(LENGTHS), side=side)
        plain = encoder(source)
        recorded = record_into(encoder, on=True)
        assert_same_rows(encoder(source), each_row(plain))
        record_into(encoder, on=False)
        for (weights,) in recorded.values():
            assert_weights(weights, source.real, source.real[:, None, :].expand(-1, 6, -1))
        encoder(source)
        assert all(len(calls) == 1 for calls in recorded.values())


@pytest.mark.usefixtures("no_gradient")
@pytest.mark.parametrize("side", ["right", "left"])
def test_recording_a_decoder_changes_nothing(decoding: Decoding, side: str) -> None:
    target = lay(vectors(LENGTHS), side=side)
    plain = decoding(target)
    recorded = record_into(decoding, on=True)
    assert_same_rows(decoding(target), each_row(plain))
    not_ahead = torch.ones(6, 6, dtype=torch.bool).tril()
    for name, (weights,) in recorded.items():
        if "cross" in name:
            assert decoding.memory is not None
            may_look = decoding.memory.real[:, None, :].expand(-1, 6, -1)
        else:
            may_look = target.real[:, None, :] & not_ahead
        assert_weights(weights, target.real, may_look)


def assert_weights(weights: Tensor, real: Tensor, may_look: Tensor) -> None:
    """Weights (b, h, t, s) of real queries sum to one, and are above zero just where allowed."""
    of_real = weights.transpose(1, 2)[real]  # (n, h, s)
    torch.testing.assert_close(of_real.sum(-1), torch.ones_like(of_real[..., 0]), **CLOSE)
    assert torch.equal(of_real > 0, may_look[real][:, None].expand_as(of_real))


# --- training, saving, precision -------------------------------------------------------------


def assert_gradient_everywhere(module: nn.Module, output: Padded) -> None:
    (output.values[output.real] * torch.randn(M, dtype=torch.float64)).sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


def test_gradient_reaches_every_encoder_parameter(encoder: nn.Module) -> None:
    assert_gradient_everywhere(encoder, encoder.train()(lay(vectors(LENGTHS))))


def test_gradient_reaches_every_decoder_parameter(decoding: Decoding) -> None:
    assert_gradient_everywhere(decoding, decoding.train()(lay(vectors(LENGTHS))))


def saved_and_loaded(module: nn.Module) -> nn.Module:
    """A module of other weights that was given those of `module` by way of a safetensors file."""
    other = copy.deepcopy(module)
    for parameter in other.parameters():
        nn.init.normal_(parameter)
    other.load_state_dict(safetensors.torch.load(safetensors.torch.save(module.state_dict())))
    return other


@pytest.mark.usefixtures("no_gradient")
def test_saving_and_loading_an_encoder_changes_nothing(encoder: nn.Module) -> None:
    source = lay(vectors(LENGTHS))
    assert torch.equal(saved_and_loaded(encoder)(source).values, encoder(source).values)


@pytest.mark.usefixtures("no_gradient")
def test_saving_and_loading_a_decoder_changes_nothing(decoding: Decoding) -> None:
    target = lay(vectors(LENGTHS))
    assert torch.equal(saved_and_loaded(decoding)(target).values, decoding(target).values)


def in_dtype(padded: Padded, dtype: torch.dtype) -> Padded:
    return padded.with_values(padded.values.to(dtype))


# Width of error allowed in each precision, on outputs of about unit size.
PRECISIONS = {torch.float32: 1e-4, torch.bfloat16: 0.25}


@pytest.mark.usefixtures("no_gradient")
def test_encoder_in_other_precisions(encoder: nn.Module) -> None:
    source = lay(vectors(LENGTHS), side="left")
    exact = encoder(source).values[source.real]
    assert exact.dtype == torch.float64
    for dtype, error in PRECISIONS.items():
        found = encoder.to(dtype)(in_dtype(source, dtype)).values[source.real]
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), exact, rtol=0, atol=error)


@pytest.mark.usefixtures("no_gradient")
def test_decoder_in_other_precisions(decoding: Decoding) -> None:
    target = lay(vectors(LENGTHS), side="left")
    exact = decoding(target).values[target.real]
    assert exact.dtype == torch.float64
    for dtype, error in PRECISIONS.items():
        if decoding.memory is not None:
            decoding.memory = in_dtype(decoding.memory, dtype)
        found = decoding.to(dtype)(in_dtype(target, dtype)).values[target.real]
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), exact, rtol=0, atol=error)


# --- rows of nothing but padding -------------------------------------------------------------


def with_an_empty_row(told: str = "any") -> Padded:
    padded = lay(vectors(LENGTHS), told=told)
    real = padded.real.clone()
    real[1] = False
    return Padded(padded.values, real, padded.padding)


def assert_finite(module: nn.Module, output: Padded) -> None:
    assert output.values.isfinite().all()
    output.values[output.real].sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("recording", [False, True])
def test_empty_row_is_no_nan_in_an_encoder(encoder: nn.Module, recording: bool) -> None:
    record_into(encoder, on=recording)
    for told in ("right", "any"):
        assert_finite(encoder, encoder(with_an_empty_row(told)))


@pytest.mark.parametrize("recording", [False, True])
def test_empty_row_is_no_nan_in_a_decoder(decoding: Decoding, recording: bool) -> None:
    record_into(decoding, on=recording)
    for told in ("right", "any"):
        if decoding.memory is not None:
            decoding.memory = with_an_empty_row(told)
        assert_finite(decoding, decoding(with_an_empty_row(told)))

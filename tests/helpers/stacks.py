"""Every kind of stack, and batches to try its promises on.

A new part joins with one line in `ENCODERS` or `DECODERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, get_args

import torch
from torch import Tensor, nn

from transduce.nn.convolution import (
    BytenetDecoder,
    BytenetEncoder,
    ConvolutionDecoder,
    ConvolutionEncoder,
    TextCnnEncoder,
)
from transduce.nn.memory_network import MemoryDecoder, MemoryEncoder
from transduce.nn.recurrent import RecurrentDecoder, RecurrentEncoder
from transduce.nn.stack_configs import (
    Activation,
    AdditiveContext,
    BytenetConfig,
    ConvolutionDecoderConfig,
    ConvolutionEncoderConfig,
    DotContext,
    FixedContext,
    GeneralContext,
    MemoryConfig,
    NormOrder,
    PositionKind,
    RecurrentDecoderConfig,
    RecurrentEncoderConfig,
    SsruDecoderConfig,
    TextCnnConfig,
    TransformerConfig,
)
from transduce.nn.transformer import SsruDecoder, TransformerDecoder, TransformerEncoder
from transduce.sequence import Padded

M = 16  # d_model of every stack below
ORDERS = get_args(NormOrder)
KINDS = [  # every pair of two settings; not each triple
    (positions, ORDERS[(i + j) % len(ORDERS)], activation)
    for i, positions in enumerate(get_args(PositionKind))
    for j, activation in enumerate(get_args(Activation))
]
CROSSED = [  # the same, and whether they look at a memory
    (kind, (i // len(get_args(Activation)) + i % len(get_args(Activation)) // 2) % 2 == 0)
    for i, kind in enumerate(KINDS)
]


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
        norm="rms" if activation == "geglu" else "layer",
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


def ssru_decoder(positions: Any, cross: bool = True) -> SsruDecoder:
    config = SsruDecoderConfig(n_heads=4, d_ff=24, positions=positions, dropout=0.0)
    return SsruDecoder(config, M, cross_attention=cross)


def memory_decoder() -> MemoryDecoder:
    return MemoryDecoder(MemoryConfig(hops=2, window=3, max_age=8, dropout=0.0), M)


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
    "memory-network": lambda: MemoryEncoder(MemoryConfig(hops=2, window=3, dropout=0.0), M),
    **{named("text-cnn", *widths): partial(text_cnn_encoder, widths) for widths in WINDOWS},
}

# What makes a decoder, and whether it looks at a memory.
DECODERS: dict[str, tuple[Callable[[], nn.Module], bool]] = {
    **{
        "-".join(kind) + ("-cross" if cross else "-alone"): (
            partial(decoder, *kind, cross=cross),
            cross,
        )
        for kind, cross in CROSSED
    },
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
    "ssru": (partial(ssru_decoder, "sinusoidal-marian"), True),
    "ssru-alone": (partial(ssru_decoder, "none", cross=False), False),
    "memory-network-alone": (memory_decoder, False),
}

WITH_MEMORY = [name for name, (_, looks_at_memory) in DECODERS.items() if looks_at_memory]

# In float64 equal sums in another order differ by far less, and a leak by far more.
CLOSE = {"rtol": 0.0, "atol": 1e-10}
LENGTHS = (5, 2, 6, 1)
MEMORY_LENGTHS = (3, 7, 1, 4)


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

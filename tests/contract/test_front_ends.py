"""Promises of every front end, under every wiring that it can stand in.

A new front end joins with one line in `FRONT_ENDS`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from transduce.models.decoder_only import DecoderOnly
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.encoder_only import EncoderOnly
from transduce.nn.front_ends.front_end import FrontEnd
from transduce.nn.front_ends.text import TextFrontEnd
from transduce.nn.heads.label import LabelHead
from transduce.nn.heads.vocabulary import VocabularyHead
from transduce.nn.stack_configs import TransformerConfig
from transduce.nn.transformer import TransformerDecoder, TransformerEncoder
from transduce.sequence import Padded
from transduce.speech.model import SpeechFrontEnd, WhisperFrontEnd
from transduce.speech.model_config import SpeechFrontEndConfig
from transduce.speech.synthesis_models import FramesFrontEnd, FramesFrontEndConfig
from transduce.vision.vit import PatchFrontEnd

M, VOCABULARY, FEATURES = 16, 13, 3
THREE_LAYERS = SpeechFrontEndConfig(n_layers=3, width=3, channels=5)
STACK = TransformerConfig(n_layers=1, n_heads=2, d_ff=24, dropout=0.0)


class FrameFrontEnd(nn.Module):
    """A front end that the package does not have: frames of features, two of them to a vector."""

    def __init__(self) -> None:
        super().__init__()
        self.projection = nn.Linear(2 * FEATURES, M)

    def forward(self, frames: Padded) -> Padded:
        """(b, t, f) -> (b, t / 2, m)."""
        b, t, _ = frames.values.shape
        real = frames.real[:, ::2] & frames.real[:, 1::2]
        return Padded(self.projection(frames.values.reshape(b, t // 2, -1)), real, frames.padding)


def tokens() -> Padded:
    return Padded(torch.randint(4, VOCABULARY, (3, 6)), ends(6), "right")


def segmented() -> Padded:
    values = torch.stack([torch.randint(4, VOCABULARY, (3, 6)), torch.randint(2, (3, 6))], -1)
    return Padded(values, ends(6), "right")


def frames() -> Padded:
    return Padded(torch.randn(3, 8, FEATURES).double(), ends(8), "right")


def windows() -> Padded:
    return Padded.unpadded(torch.randn(3, 8, FEATURES).double())


def images() -> Tensor:
    return torch.randn(3, 2, 8, 8).double()


def ends(width: int) -> Tensor:
    """Which positions of three rows are real: all, all but four, and two."""
    return torch.arange(width) < torch.tensor([[width], [width - 4], [2]])


# A front end, and something that it reads.
FRONT_ENDS: dict[str, tuple[Callable[[], FrontEnd], Callable[[], Padded | Tensor]]] = {
    "text": (lambda: TextFrontEnd(VOCABULARY, M), tokens),
    "segments": (lambda: TextFrontEnd(VOCABULARY, M, n_segments=2), segmented),
    "patches": (lambda: PatchFrontEnd(8, 2, 4, M, class_token=True), images),
    "frames": (FrameFrontEnd, frames),
    "frames of a decoder": (
        lambda: FramesFrontEnd(FramesFrontEndConfig(width=6), FEATURES, M),
        frames,
    ),
    "speech": (lambda: SpeechFrontEnd(SpeechFrontEndConfig(channels=6), FEATURES, M), frames),
    "whisper": (lambda: WhisperFrontEnd(FEATURES, M), windows),
    "speech, three layers": (lambda: SpeechFrontEnd(THREE_LAYERS, FEATURES, M), frames),
}


def chosen(x: Padded | Tensor, rows: list[int]) -> Padded | Tensor:
    return x.select(rows) if isinstance(x, Padded) else x[rows]


def encoder_only(front_end: FrontEnd) -> nn.Module:
    head = LabelHead(M, 5, "mean", False, 0.0)
    return EncoderOnly(front_end, TransformerEncoder(STACK, M), head)


def encoder_decoder(front_end: FrontEnd) -> nn.Module:
    target, decoder = TextFrontEnd(VOCABULARY, M), TransformerDecoder(STACK, M)
    head = VocabularyHead(M, VOCABULARY)
    return EncoderDecoder(front_end, TransformerEncoder(STACK, M), target, decoder, head)


def decoder_only(front_end: FrontEnd) -> nn.Module:
    decoder = TransformerDecoder(STACK, M, cross_attention=False)
    return DecoderOnly(front_end, decoder, VocabularyHead(M, VOCABULARY))


WIRINGS = {
    "encoder only": encoder_only,
    "encoder-decoder": encoder_decoder,
    "decoder": decoder_only,
}


@pytest.fixture(params=FRONT_ENDS)
def front_end(request: pytest.FixtureRequest) -> tuple[FrontEnd, Padded | Tensor]:
    torch.manual_seed(1)
    build, read = FRONT_ENDS[request.param]
    return build().double(), read()  # type: ignore[attr-defined]


def scores(model: nn.Module, x: Padded | Tensor) -> Tensor:
    """Output of a model of any wiring for each row of x: (b, …)."""
    if isinstance(model, EncoderDecoder):
        n = len(x.values) if isinstance(x, Padded) else len(x)
        return model(x, Padded.unpadded(torch.full((n, 4), 5)))  # type: ignore[no-any-return]
    return model(x)  # type: ignore[no-any-return]


def test_it_gives_one_vector_for_each_position(front_end: tuple[FrontEnd, Padded | Tensor]) -> None:
    result = front_end[0](front_end[1])
    assert result.values.shape == (*result.real.shape, M)
    assert result.real.any(1).all()


@pytest.mark.parametrize("wiring", WIRINGS)
def test_it_stands_in_every_wiring(
    wiring: str, front_end: tuple[FrontEnd, Padded | Tensor]
) -> None:
    part, x = front_end
    model = WIRINGS[wiring](part).double().eval()
    result = scores(model, x)
    turned = scores(model, chosen(x, [2, 0, 1]))
    torch.testing.assert_close(turned, result[[2, 0, 1]], rtol=0, atol=1e-9)
    result.logsumexp(-1).sum().backward()
    assert all(parameter.grad is not None for parameter in model.front_end.parameters())


@pytest.mark.parametrize("wiring", ["encoder only", "encoder-decoder"])
def test_padding_changes_nothing(wiring: str, front_end: tuple[FrontEnd, Padded | Tensor]) -> None:
    part, x = front_end
    if not isinstance(x, Padded):
        pytest.skip("images are not padded")
    model = WIRINGS[wiring](part).double().eval()
    result = scores(model, x)
    for i, real in enumerate(x.real):
        alone = scores(model, Padded.unpadded(x.values[i : i + 1, real]))
        torch.testing.assert_close(result[i : i + 1], alone, rtol=0, atol=1e-9)

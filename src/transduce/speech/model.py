"""Encoder-decoder over frames of speech with a CTC head over its memory, in PyTorch and in the
engine."""

import itertools
from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.engine.inference import Weights
from transduce.engine.model import NativeDecoder, NativeState
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.stacks import Decoder, Encoder
from transduce.nn.convolution import initialise_gated
from transduce.nn.front_ends.front_end import FrontEnd
from transduce.nn.front_ends.text import TextFrontEnd
from transduce.nn.heads.vocabulary import VocabularyHead
from transduce.nn.initialise import initialise, matrix_
from transduce.nn.precision import FloatWeight, Precision
from transduce.nn.transformer import TransformerDecoder, TransformerEncoder
from transduce.sequence import Padded
from transduce.speech.engine import EngineSpeech
from transduce.speech.model_config import (
    FrontEndConfig,
    SpeechConfig,
    SpeechFrontEndConfig,
    WhisperFrontEndConfig,
)


def side_by_side(frames: Padded, config: SpeechFrontEndConfig) -> tuple[Padded, Padded]:
    """Recordings (b, t, bins) in one row, each from a whole position on, with zeros between them;
    and the places (b, t') of their positions in it."""
    counts = -(-frames.lengths // config.stride)
    ends = (counts + config.gap).cumsum(0)
    starts, columns = ends - counts - config.gap, torch.arange(int(counts.max()))
    places = Padded(starts[:, None] + columns, columns < counts[:, None], "right")
    at = starts[:, None] * config.stride + torch.arange(frames.real.shape[1])
    values = frames.values.new_zeros(int(ends[-1]) * config.stride, frames.values.shape[2])
    real = torch.zeros(len(values), dtype=torch.bool)
    values[at[frames.real]], real[at[frames.real]] = frames.values[frames.real], True
    return Padded(values[None], real[None], "right"), places


class SpeechFrontEnd(nn.Module):
    """Convolutions of stride 2, each GLU(conv(x)), the last of the width of the model.  Padding is
    set to zero before each, so that a row gives the same vectors in any batch."""

    def __init__(self, config: SpeechFrontEndConfig, bins: int, d_model: int) -> None:
        """bins: features of a frame."""
        super().__init__()
        widths = [bins, *[config.channels] * (config.n_layers - 1), d_model]
        self.convolutions = nn.ModuleList(
            nn.Conv1d(before, 2 * after, config.width, 2, config.width // 2)
            for before, after in itertools.pairwise(widths)
        )
        for convolution in self.convolutions:
            initialise_gated(cast(nn.Conv1d, convolution))

    def forward(self, frames: Padded) -> Padded:
        """Frames (b, t, bins), padded on the right -> vectors (b, t', m), t' = t halved n times."""
        assert frames.padding != "any", "recordings begin at whole positions"
        values, real = frames.values.transpose(1, 2), frames.real
        for convolution in self.convolutions:
            if frames.padding != "none":
                values = values.masked_fill(~real[:, None], 0.0)
            values = F.glu(convolution(values), 1)
            real = real[:, ::2]
        return Padded(values.transpose(1, 2), real, frames.padding)


class WhisperFrontEnd(nn.Module):
    """Convolutions of strides 1 and 2 before GELU, over windows of 30 s: nothing is padding."""

    def __init__(self, bins: int, d_model: int) -> None:
        """bins: features of a frame."""
        super().__init__()
        self.first = nn.Conv1d(bins, d_model, 3, padding=1)
        self.second = nn.Conv1d(d_model, d_model, 3, 2, padding=1)

    def forward(self, frames: Padded) -> Padded:
        """Frames (b, t, bins) -> vectors (b, t / 2, m)."""
        assert frames.padding == "none", "Whisper reads windows of one length"
        values = F.gelu(self.first(frames.values.transpose(1, 2)))
        return Padded.unpadded(F.gelu(self.second(values)).transpose(1, 2))


class SpeechModel(EncoderDecoder):
    """Encoder-decoder from frames to text, with a CTC head over the memory, whose blank is PAD."""

    def __init__(
        self,
        front_end: FrontEnd,
        encoder: Encoder,
        target_front_end: FrontEnd,
        decoder: Decoder,
        head: VocabularyHead,
        ctc: VocabularyHead | None,
    ) -> None:
        super().__init__(front_end, encoder, target_front_end, decoder, head)
        self.ctc = ctc

    def ctc_log_probs(self, memory: Padded) -> Padded:
        """Memory (b, t, m) -> log-probabilities of CTC (b, t, v), in float32 or wider."""
        assert self.ctc is not None, "a model without a CTC head"
        logits: Tensor = self.ctc(memory.values)
        wide = logits if logits.element_size() >= 4 else logits.float()
        return memory.with_values(wide.log_softmax(-1))


def build_speech(
    config: SpeechConfig, bins: int, vocabulary_size: int, ctc_size: int | None = None
) -> SpeechModel:
    """A freshly initialised model, whose output matrix is the target embedding.  bins: features of
    a frame.  ctc_size: vocabulary of CTC, by default the decoder's.

    config: of the model.  vocabulary_size: of the decoder.
    """
    d_model = config.d_model
    target = TextFrontEnd(vocabulary_size, d_model, config.scale_embeddings)
    model = SpeechModel(
        _front_end(config.front_end, bins, d_model),
        TransformerEncoder(config.encoder, d_model),
        target,
        TransformerDecoder(config.decoder, d_model),
        VocabularyHead(d_model, vocabulary_size, config.output_bias),
        VocabularyHead(d_model, ctc_size or vocabulary_size, bias=True) if config.ctc else None,
    )
    initialise(model, d_model)
    if isinstance(model.ctc, nn.Module):
        matrix_(model.ctc.weight, "xavier")
    model.head.weight = target.embedding.weight
    return model


def _front_end(config: FrontEndConfig, bins: int, d_model: int) -> FrontEnd:
    match config:
        case SpeechFrontEndConfig():
            return SpeechFrontEnd(config, bins, d_model)
        case WhisperFrontEndConfig():
            return WhisperFrontEnd(bins, d_model)


class NativeSpeech(EngineSpeech, NativeDecoder):
    """A speech model in the engine; its CTC head is PyTorch's."""

    device = torch.device("cpu")

    def __init__(
        self,
        config: SpeechConfig,
        sizes: tuple[int, int],
        weights: Weights,
        precision: Precision = "float32",
        threads: Callable[[], int] = torch.get_num_threads,
    ) -> None:
        """As in `EngineSpeech`."""
        ctc = [weights.get(f"ctc.{kind}") for kind in ("weight", "bias")]
        self.ctc = [_tensor(weight) for weight in ctc if weight is not None] or None
        engine = {name: weight for name, weight in weights.items() if not name.startswith("ctc.")}
        super().__init__(config, sizes, engine, precision, threads)

    def encode(self, frames: Padded) -> Padded:
        """Frames (b, t, f) -> memory (b, t', m)."""
        lengths = frames.lengths.to("cpu", torch.int32).numpy()
        rows = frames.values[frames.real].float().contiguous()
        memory = torch.from_numpy(self.memory_of(rows.numpy(), lengths))
        counts = torch.from_numpy(self.positions(lengths.tolist()))
        real = torch.arange(int(counts.max())) < counts[:, None]
        values = memory.new_zeros(*real.shape, self.shape.width)
        values[real] = memory
        return Padded(values, real, "none" if bool(real.all()) else "right")

    def over(self, memory: Padded) -> NativeState:
        """Initial state over a memory (b, t, m)."""
        rows, lengths = memory.values[memory.real].contiguous(), memory.lengths.to(torch.int32)
        return NativeState(self, self.state_over(rows.numpy(), lengths.numpy()), lengths.tolist())

    def ctc_log_probs(self, memory: Padded) -> Padded:
        """Memory (b, t, m) -> log-probabilities of CTC (b, t, v)."""
        assert self.ctc is not None, "a model without a CTC head"
        return memory.with_values(F.linear(memory.values, *self.ctc).log_softmax(-1))


def _tensor(weight: FloatWeight) -> Tensor:
    return torch.frombuffer(weight.read(), dtype=torch.float32).view(weight.shape).clone()

"""Encoder-decoder over frames of speech, with a CTC head over its memory."""

from __future__ import annotations

from torch import Tensor, nn

from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.speech_config import FrontEndConfig, SpeechConfig
from transduce.models.stacks import Decoder, Encoder
from transduce.nn.front_ends.front_end import FrontEnd
from transduce.nn.front_ends.speech import SpeechFrontEnd, WhisperFrontEnd
from transduce.nn.front_ends.speech_config import SpeechFrontEndConfig, WhisperFrontEndConfig
from transduce.nn.front_ends.text import TextFrontEnd
from transduce.nn.heads.vocabulary import VocabularyHead
from transduce.nn.initialise import initialise, matrix_
from transduce.nn.transformer import TransformerDecoder, TransformerEncoder
from transduce.sequence import Padded


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
    a frame.  ctc_size: vocabulary of CTC, by default the decoder's."""
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

"""Models that the engine supports, and their shapes."""

from __future__ import annotations

from collections.abc import Iterator

from transduce.engine.pair_shape import unsupported_settings
from transduce.errors import SettingError
from transduce.models.decoder_only import DecoderOnly, DecoderOnlyConfig
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.encoder_decoder_config import EncoderDecoderConfig
from transduce.models.vision import VisionConfig
from transduce.nn.front_ends.front_end import FrontEnd
from transduce.nn.front_ends.text import TextFrontEnd


def unsupported(config: object) -> str | None:
    """The setting that rules the engine out for a model, or None if it supports the model."""
    return next(_unsupported(config), None)


def _unsupported(config: object) -> Iterator[str]:
    if isinstance(config, DecoderOnlyConfig) and config.decoder.kind == "ssru":
        yield "model.decoder.kind = 'ssru' without an encoder"
    if isinstance(config, EncoderDecoderConfig | DecoderOnlyConfig | VisionConfig):
        yield from unsupported_settings(config)
    else:
        yield "models other than encoder-decoders and decoders of text"


def vocabulary_sizes(model: EncoderDecoder | DecoderOnly) -> tuple[int, int]:
    """Sizes of the source vocabulary, 0 for a decoder alone, and of the target vocabulary.

    Raises SettingError for a front end of another class, such as a script's own.
    """
    source = _size(model.front_end)
    if isinstance(model, EncoderDecoder):
        return source, _size(model.target_front_end)
    return 0, source


def _size(front_end: FrontEnd) -> int:
    if not isinstance(front_end, TextFrontEnd) or front_end.segments is not None:
        raise SettingError(
            f"the native engine does not support the front end {type(front_end).__name__}"
        )
    return front_end.embedding.num_embeddings

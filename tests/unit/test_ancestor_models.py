"""Recurrent and convolutional models: states, precision, search, and that they learn."""

import itertools

import pytest
import torch
from torch import Tensor, nn

from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.options import DecodingOptions
from transduce.decoding.search import SearchRequest, search
from transduce.models.config import EncoderDecoderConfig
from transduce.models.encoder_decoder import EncoderDecoder, build_encoder_decoder
from transduce.models.stacks import build_decoder
from transduce.nn.attention import record_into
from transduce.nn.stack_configs import (
    AdditiveContext,
    BytenetConfig,
    ContextConfig,
    ConvolutionDecoderConfig,
    ConvolutionEncoderConfig,
    DecoderConfig,
    DotContext,
    EncoderConfig,
    FixedContext,
    GeneralContext,
    RecurrentDecoderConfig,
    RecurrentEncoderConfig,
    cross_attention_heads,
)
from transduce.sequence import Padded

BOS, EOS = 1, 2
SIZE = 7
CONTEXTS: tuple[ContextConfig, ...] = (
    FixedContext(),
    DotContext(),
    GeneralContext(),
    AdditiveContext(width=5),
    GeneralContext(input_feeding="attentional"),
    AdditiveContext(input_feeding="context"),
)
DECODERS: tuple[DecoderConfig, ...] = (
    *(RecurrentDecoderConfig(cell="gru", context=c, dropout=0.0) for c in CONTEXTS),
    ConvolutionDecoderConfig(n_layers=2, dropout=0.0),
    BytenetConfig(n_layers=2, dropout=0.0),
)
of_each_decoder = pytest.mark.parametrize("decoder", DECODERS, ids=str)
of_each_context = pytest.mark.parametrize("context", CONTEXTS, ids=str)


def model_of(decoder: DecoderConfig) -> EncoderDecoder:
    config = EncoderDecoderConfig(
        d_model=16, encoder=RecurrentEncoderConfig(dropout=0.0), decoder=decoder
    )
    torch.manual_seed(3)
    return build_encoder_decoder(config, SIZE, SIZE, joint=True)


# --- states ----------------------------------------------------------------------------------


@of_each_context
def test_hypotheses_of_a_sentence_share_its_memory(context: ContextConfig) -> None:
    decoder = build_decoder(RecurrentDecoderConfig(context=context), 8).double().eval()
    memory = Padded.unpadded(torch.randn(2, 4, 8, dtype=torch.float64))
    target = Padded.unpadded(torch.randn(6, 3, 8, dtype=torch.float64))
    state = decoder.start(memory)
    result = decoder(target, state).values  # six hypotheses of two sentences, from the start on
    each = decoder.start(memory.select(torch.tensor([0, 0, 0, 1, 1, 1])))
    torch.testing.assert_close(result, decoder(target, each).values, rtol=0, atol=1e-12)
    assert all(layer.key.shape[0] == 2 for layer in state.memory)
    state.select(torch.tensor([4, 4, 5]))
    assert all(layer.key.shape[0] == 1 for layer in state.memory)


@of_each_decoder
def test_recorded_cross_attention(decoder: DecoderConfig) -> None:
    model = model_of(decoder).eval()
    source, target = Padded.from_rows([[3, 4, 2], [5, 2]]), Padded.from_rows([[1, 4], [1, 5]])
    recorded = record_into(model, on=True)
    model(source, target)
    assert len(recorded) == cross_attention_heads(decoder)[0]
    for (weights,) in recorded.values():
        assert weights.shape == (2, 1, 2, 3)
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 1, 2))
        assert not weights[1, 0, :, 2].any()


@of_each_decoder
def test_narrow_training_is_close_to_wide(decoder: DecoderConfig) -> None:
    model = model_of(decoder)
    source, target = Padded.from_rows([[3, 4, 2], [5, 2]]), Padded.from_rows([[1, 4], [1, 5]])
    wide = model(source, target)
    with torch.autocast("cpu", torch.bfloat16):
        narrow = model(source, target)
    narrow.float().sum().backward()
    torch.testing.assert_close(narrow.float(), wide, rtol=0, atol=0.1)


# --- search ----------------------------------------------------------------------------------

SOURCES = [[3, 4, 5, EOS], [6, EOS], [5, 5, 3, 6, 4, EOS]]


@torch.no_grad()
def find(
    model: EncoderDecoder, sources: list[list[int]], options: DecodingOptions, longest: int
) -> list[list[Hypothesis]]:
    return search(
        SearchRequest(
            model.step,
            model.start(Padded.from_rows(sources)),
            Padded.unpadded(torch.full((len(sources), 1), BOS)),
            torch.full((len(sources),), longest),
            EOS,
            [BOS, 0],
            options,
        )
    )


def sharp(model: EncoderDecoder) -> EncoderDecoder:
    """In float64, with opinions: differences that no order of sums can turn round."""
    with torch.no_grad():
        model.target_front_end.embedding.weight.mul_(4)
    return model.double().eval()


def brute_force(model: EncoderDecoder, source: list[int], longest: int) -> tuple[list[int], float]:
    """The likeliest sentence of at most so many words, each one read from the start."""
    words = range(3, SIZE)
    sentences = [
        list(sentence)
        for length in range(longest + 1)
        for sentence in itertools.product(words, repeat=length)
    ]
    log_probs = [log_prob_of(model, source, sentence) for sentence in sentences]
    best = max(range(len(sentences)), key=log_probs.__getitem__)
    return sentences[best], log_probs[best]


@torch.no_grad()
def log_prob_of(model: EncoderDecoder, source: list[int], sentence: list[int]) -> float:
    logits = model(Padded.from_rows([source]), Padded.from_rows([[BOS, *sentence]]))
    expected = torch.tensor([*sentence, EOS])[:, None]
    return logits[0].log_softmax(1).gather(1, expected).sum().item()


@of_each_decoder
def test_a_wide_beam_finds_what_brute_force_finds(decoder: DecoderConfig) -> None:
    model = sharp(model_of(decoder))
    options = DecodingOptions(beam_size=64, length_penalty="none", stop="exact")
    for source, (result,) in zip(SOURCES, find(model, SOURCES, options, 3), strict=True):
        tokens, log_prob = brute_force(model, source, 3)
        assert result.tokens == tokens
        assert result.log_prob == pytest.approx(log_prob, abs=1e-9)


@of_each_decoder
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_batch_is_what_its_sentences_are_alone(decoder: DecoderConfig, beam_size: int) -> None:
    model = sharp(model_of(decoder))
    options = DecodingOptions(beam_size=beam_size)
    together = find(model, SOURCES, options, 8)
    for source, (result,) in zip(SOURCES, together, strict=True):
        ((alone,),) = find(model, [source], options, 8)
        assert result.tokens == alone.tokens
        assert result.log_prob == pytest.approx(alone.log_prob, abs=1e-9)
        assert result.log_prob == pytest.approx(log_prob_of(model, source, result.tokens), abs=1e-9)


# --- learning --------------------------------------------------------------------------------


def reversals(generator: torch.Generator) -> tuple[Padded, Padded, Tensor]:
    """Source, target in and target out of rows to be written backwards."""
    lengths = torch.randint(2, 7, (32,), generator=generator).tolist()
    rows = [torch.randint(3, 11, (length,), generator=generator).tolist() for length in lengths]
    backwards = [row[::-1] for row in rows]
    expected = Padded.from_rows([[*row, EOS] for row in backwards], padding=-100)
    source = Padded.from_rows([[*row, EOS] for row in rows])
    return source, Padded.from_rows([[BOS, *row] for row in backwards]), expected.values


def recurrent(context: ContextConfig) -> DecoderConfig:
    return RecurrentDecoderConfig(context=context, dropout=0.0)


GRU = RecurrentEncoderConfig(cell="gru", dropout=0.0)
CONVOLUTION = ConvolutionEncoderConfig(n_layers=2, positions="sinusoidal", dropout=0.0)
LEARNERS: dict[str, tuple[EncoderConfig, DecoderConfig]] = {
    "dot": (RecurrentEncoderConfig(dropout=0.0), recurrent(DotContext())),
    "additive": (GRU, recurrent(AdditiveContext())),
    "bahdanau": (GRU, recurrent(AdditiveContext(input_feeding="context"))),
    "luong": (GRU, recurrent(GeneralContext(input_feeding="attentional"))),
    "convolution": (CONVOLUTION, recurrent(GeneralContext())),
    "convs2s": (CONVOLUTION, ConvolutionDecoderConfig(n_layers=2, dropout=0.0)),
    "bytenet": (BytenetConfig(n_layers=4, dropout=0.0), BytenetConfig(n_layers=4, dropout=0.0)),
}


@pytest.mark.system
@pytest.mark.parametrize("name", LEARNERS)
def test_learns_to_reverse_in_a_moment(name: str) -> None:
    encoder, decoder = LEARNERS[name]
    config = EncoderDecoderConfig(d_model=48, encoder=encoder, decoder=decoder)
    torch.manual_seed(1)
    model = build_encoder_decoder(config, 11, 11, joint=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(150):
        source, target, expected = reversals(generator)
        loss = nn.functional.cross_entropy(model(source, target).transpose(1, 2), expected)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    enough = 0.4 if name == "bytenet" else 0.15  # attention shows the way, without it takes longer
    assert sum(losses[-10:]) / 10 < enough * losses[0]

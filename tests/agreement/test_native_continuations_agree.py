"""The native engine behind a language model: logits, outputs and scores of the PyTorch model."""

from __future__ import annotations

import dataclasses
import random
import resource
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from helpers.native import INSTRUCTIONS, needs_native, odd_stack
from helpers.predictors import generator_of, native_search, natively
from helpers.stacks import KINDS
from transduce.decoding.backend import Piece
from transduce.decoding.constraints import OutputConstraints
from transduce.decoding.options import DecodingOptions
from transduce.engine.model import NativeModel
from transduce.errors import DataError, TransduceError
from transduce.models.decoder_only import DecoderOnly, DecoderOnlyConfig, build_decoder_only
from transduce.nn.precision import Precision
from transduce.nn.stack_configs import Activation, NormOrder, PositionKind
from transduce.sequence import Padded
from transduce.tasks.language_model.generator import Continuation, Generator
from transduce.text import EOS, train_tokenizer
from transduce.text.tokenizer import CharactersConfig

pytestmark = needs_native

CHARACTERS = train_tokenizer(CharactersConfig(), ["abcdefgh \n."])
SIZE = CHARACTERS.size
PROMPTS = ["", "a", "abcdefg", "hh ab", "c\nd", "abcdefgabcdefgab"]
GPT2 = ("learned", "pre", "gelu-tanh")


def config(
    positions: PositionKind, order: NormOrder, activation: Activation, **changes: Any
) -> DecoderOnlyConfig:
    settings = {
        "d_model": 18,
        "tie": activation != "relu",
        "output_bias": order == "post",
        "scale_embeddings": activation != "silu",
    }
    return DecoderOnlyConfig(
        decoder=odd_stack(positions, order, activation), **{**settings, **changes}
    )


def built(config: DecoderOnlyConfig) -> DecoderOnly:
    torch.manual_seed(0)
    model = build_decoder_only(config, SIZE).eval()
    with torch.no_grad():
        model.front_end.embedding.weight.mul_(3)
        for parameter in model.parameters():  # biases and norms that do something
            parameter.add_(0.03 * torch.randn(parameter.shape))
    return model


@torch.inference_mode()
def stepped(model: Any) -> list[Tensor]:
    """Logits after prompts of unequal lengths, and of hypotheses that change places."""
    torch.manual_seed(1)
    state = model.start()
    prompts = Padded.left_padded([[2, 5, 6, 7, 8], [2], [2, 9, 4], [2, 4, 4, 4, 9, 8, 7, 6, 5]])
    result = [model.last_logits(prompts, state)]
    for rows, t in (([0, 0, 2, 2, 1, 1], 1), ([1, 0, 0, 5], 3), ([3, 2], 1)):
        state.select(torch.tensor(rows))
        result.append(model.step(Padded.unpadded(torch.randint(0, SIZE, (len(rows), t))), state))
    return result


def largest_difference(config: DecoderOnlyConfig, instructions: str | None = None) -> float:
    model = built(config)
    pairs = zip(
        stepped(model), stepped(NativeModel(model, config, instructions=instructions)), strict=True
    )
    return max(float((a - b).abs().max()) for a, b in pairs)


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
def test_every_kind_of_stack(kind: tuple[Any, Any, Any]) -> None:
    assert largest_difference(config(*kind)) < 1e-4


@pytest.mark.parametrize("instructions", INSTRUCTIONS)
def test_every_instruction_set(instructions: str) -> None:
    assert largest_difference(config(*GPT2), instructions) < 1e-4


@pytest.mark.parametrize("precision", get_args(Precision))
@torch.inference_mode()
def test_a_prompt_in_one_pass_is_the_same_to_the_bit_as_token_by_token(
    precision: Precision,
) -> None:
    shape = config("rotary", "pre", "swiglu", d_model=72)
    native = NativeModel(built(shape), shape, precision)
    ids = torch.randint(4, SIZE, (3, 29))
    whole = native.step(Padded.unpadded(ids), native.start())
    for size in (1, 5, 14):
        state = native.start()
        parts = [native.step(Padded.unpadded(part), state) for part in ids.split(size, 1)]
        assert torch.equal(torch.cat(parts, 1), whole), size


def test_beyond_learned_positions_is_the_same_error() -> None:
    shape = config(*GPT2)
    model = built(shape)
    messages = []
    for one in (model, NativeModel(model, shape)):
        state: Any = one.start()
        one.step(Padded.unpadded(torch.full((1, 32), 5)), state)
        with pytest.raises(DataError, match="more than 32 tokens") as error:
            one.step(Padded.unpadded(torch.full((1, 1), 5)), state)
        messages.append(str(error.value))
    assert messages[0] == messages[1]


# --- outputs -------------------------------------------------------------------------------------


def pair(
    shape: DecoderOnlyConfig, window: int = 24, precision: Precision = "float32"
) -> tuple[Generator, Generator]:
    ours = generator_of(built(shape), CHARACTERS, DecodingOptions(max_tokens=20), window)
    return ours, natively(ours, shape, precision)


PLAIN: list[dict[str, Any]] = [
    {"beam_size": 1},
    {"beam_size": 1, "max_tokens": 1},
    {"beam_size": 4, "n_best": 4},
    {"beam_size": 4, "n_best": 2, "stop": "exact", "length_penalty": "mean"},
    {"beam_size": 3, "stop": "present", "min_length": 6},
    {"beam_size": 3, "n_best": 3, "max_tokens": 2, "free_end": True, "length_penalty": "none"},
    {"beam_size": 2, "min_length": 60, "max_tokens": 60},
    {"beam_size": 30, "n_best": 30, "max_tokens": 3},
    {"beam_size": 4, "n_best": 4, "batch_tokens": 1},
    {"method": "sample", "n_best": 3, "seed": 4},
    {"method": "sample", "top_k": 4, "max_tokens": 60},
    {"method": "sample", "n_best": 2, "top_p": 0.8, "min_length": 12, "temperature": 0.7},
    {"method": "sample", "n_best": 4, "max_tokens": 2, "free_end": True, "min_p": 0.1},
]
OTHERS: list[dict[str, Any]] = [
    {"method": "sample", "stop_strings": ("a", "d ")},
    {"method": "sample", "no_repeat_ngram": 2, "n_best": 2},
    {"beam_size": 3, "stop_strings": ("a", "d ")},
    {"beam_size": 3, "no_repeat_ngram": 2, "n_best": 2},
    {"beam_size": 3, "repetition_penalty": 1.5},
    {"beam_size": 4, "beam_groups": 2, "n_best": 4},
    {"beam_size": 3, "prefix": "ab", "avoid": ("c",)},
    {"beam_size": 3, "constraints": ("fed",)},
]


def assert_same(ours: list[Continuation], theirs: list[Continuation]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        for a, b in zip((one, *one.others), (other, *other.others), strict=True):
            assert (a.continuation, a.tokens) == (b.continuation, b.tokens)
            assert b.log_prob == pytest.approx(a.log_prob, abs=1e-4)
            assert b.score == pytest.approx(a.score, abs=1e-4)


@pytest.mark.parametrize("options", PLAIN + OTHERS, ids=str)
@pytest.mark.parametrize("kind", [GPT2, ("rotary", "pre", "swiglu")], ids="-".join)
def test_every_option(kind: tuple[Any, Any, Any], options: dict[str, Any]) -> None:
    ours, native = pair(config(*kind))
    asked = dataclasses.replace(ours.options, **options)
    assert_same(ours.generate(PROMPTS, asked), native.generate(PROMPTS, asked))


def test_plain_options_alone_are_searched_for_in_the_engine() -> None:
    search = native_search(pair(config(*GPT2))[1])
    for options in PLAIN:
        assert search.unsupported(DecodingOptions(**options)) is None
    for options in OTHERS:
        assert search.unsupported(DecodingOptions(**options)) in options


@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi"])
@pytest.mark.parametrize("window", [2, 7, 32])
def test_every_window(positions: Any, window: int) -> None:
    ours, native = pair(config(positions, "pre", "gelu-tanh"), window)
    each: list[dict[str, Any]] = [
        {"beam_size": 1},
        {"beam_size": 3, "n_best": 3},
        {"method": "sample", "n_best": 2},
    ]
    for options in each:
        asked = DecodingOptions(min_length=35, max_tokens=40, **options)
        assert_same(ours.generate(PROMPTS, asked), native.generate(PROMPTS, asked))


@pytest.mark.parametrize("precision", get_args(Precision))
@pytest.mark.parametrize(
    "options",
    [{"beam_size": 1}, {"beam_size": 4, "n_best": 4}, {"method": "sample", "n_best": 2}],
    ids=str,
)
def test_scores_are_the_same_to_the_bit_in_every_batch(
    precision: Precision, options: dict[str, Any]
) -> None:
    native = pair(config("rotary", "pre", "gelu", d_model=72), 16, precision)[1]
    chance = random.Random(0)
    prompts = ["".join(chance.choices("abcdefgh ", k=chance.randrange(20))) for _ in range(24)]
    asked = DecodingOptions(max_tokens=20, **options)

    def bits(first: int, last: int, batch_tokens: int = 4096) -> list[Any]:
        own = dataclasses.replace(asked, batch_tokens=batch_tokens)
        continuations = native.generate(prompts[first:last], own, first)
        return [
            [(c.tokens, c.log_prob, c.score) for c in (one, *one.others)] for one in continuations
        ]

    together = bits(0, 24)
    for size in (1, 5):
        parts = [bits(first, min(first + size, 24)) for first in range(0, 24, size)]
        assert [one for part in parts for one in part] == together
    assert bits(0, 24, batch_tokens=90) == together


def test_a_long_text_needs_no_more_memory_than_its_window() -> None:
    shape = config("rotary", "pre", "relu", d_model=64)
    search = native_search(pair(shape, 8)[1])
    before = 0
    for tokens in (100, 12_000):  # 900 bytes of keys and values each
        options = DecodingOptions(beam_size=1, max_tokens=tokens, min_length=tokens)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        piece = Piece(0, None, 8, tokens, 0, OutputConstraints(), prompt=(2, 5))
        (decoded,) = search.search([piece], options)
        assert len(decoded.hypotheses[0].tokens) == tokens
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 5_000  # KiB


def test_threads_change_nothing() -> None:
    native = pair(config(*GPT2))[1]
    options = DecodingOptions(beam_size=3, n_best=3, max_tokens=20)
    alone, before = native.generate(PROMPTS, options), torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        assert native.generate(PROMPTS, options) == alone
    finally:
        torch.set_num_threads(before)


def test_a_cancelled_prompt_leaves_and_others_do_not_notice() -> None:
    native = pair(config(*GPT2))[1]
    options = DecodingOptions(beam_size=2, min_length=20, max_tokens=20)
    asked: list[int] = []

    def cancelled(prompt: int) -> bool:
        asked.append(prompt)
        return prompt == 1 and asked.count(1) > 3

    result = native.attempt(PROMPTS, options, cancelled=cancelled)
    right = native.generate(PROMPTS, options)
    assert isinstance(result[1], TransduceError) and asked.count(1) == 4
    assert [result[i] for i in (0, 2, 3, 4, 5)] == [right[i] for i in (0, 2, 3, 4, 5)]


def test_what_must_not_come_does_not_however_likely() -> None:
    shape = config("rotary", "post", "relu")
    ours, native = pair(shape)
    with torch.no_grad():
        ours.model.head.bias[[0, 1, 2]] = 8.0
    native = natively(ours, shape)
    options = DecodingOptions(beam_size=3, n_best=3, max_tokens=20)
    continuations = native.generate(PROMPTS, options)
    assert_same(ours.generate(PROMPTS, options), continuations)
    special = set(CHARACTERS.tokens([0, 1, 2, EOS]))
    assert not special & {token for one in continuations for token in one.tokens}

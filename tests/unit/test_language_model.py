"""The language model: its loss, what it measures, how it goes on from prompts."""

from __future__ import annotations

import dataclasses
import functools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from helpers.native import EACH_ENGINE
from helpers.predictors import generator_of, natively
from transduce.data.documents import EncodedDocuments, coding_of_texts
from transduce.data.packing import PackedBatches
from transduce.data.ragged_rows import Side
from transduce.decoding.options import DecodingOptions
from transduce.decoding.window import WindowedState
from transduce.models.decoder_only import DecoderOnly, DecoderOnlyConfig, build_decoder_only
from transduce.nn.stack_configs import (
    BytenetConfig,
    ConvolutionDecoderConfig,
    LanguageDecoderConfig,
    MemoryConfig,
    RecurrentDecoderConfig,
    TransformerConfig,
)
from transduce.sequence import Padded
from transduce.tasks.language_model.generator import ContinuationText, Generator
from transduce.tasks.language_model.task import packed_loss, text_scores
from transduce.text import BOS, EOS, SubwordConfig, Tokenizer, train_tokenizer
from transduce.text.tokenizer import CharactersConfig

LETTERS = "abcdefgh \n"
CHARACTERS = train_tokenizer(CharactersConfig(), [LETTERS + "."])


STACKS: dict[str, LanguageDecoderConfig] = {
    "lstm": RecurrentDecoderConfig(cell="lstm", n_layers=2, dropout=0.0),
    "gru": RecurrentDecoderConfig(cell="gru", dropout=0.0),
    "convolution": ConvolutionDecoderConfig(n_layers=2, dropout=0.0),
    "bytenet": BytenetConfig(n_layers=3, dropout=0.0),
    "memory-network": MemoryConfig(hops=2, window=3, max_age=8, dropout=0.0),
}
"""Stacks besides Transformers, which are named by their positions; the engine has none of them."""


def configuration(kind: Any) -> DecoderOnlyConfig:
    transformer = TransformerConfig(n_layers=2, n_heads=2, d_ff=32, norm_order="pre", dropout=0.0)
    stack = STACKS.get(kind) or dataclasses.replace(transformer, positions=kind)
    return DecoderOnlyConfig(d_model=16, decoder=stack)


def build(kind: Any = "rotary", size: int = CHARACTERS.size, seed: int = 0) -> DecoderOnly:
    """In float64, with opinions."""
    torch.manual_seed(seed)
    model = build_decoder_only(configuration(kind), size)
    with torch.no_grad():
        model.front_end.embedding.weight.mul_(3)
    return model.double().eval()


def generator_on(
    engine: Any, positions: Any = "rotary", window: int = 64, ends: bool = True, **options: Any
) -> Generator:
    """ends: False for a model to which an end of text is like a beginning, unlikely."""
    settings = DecodingOptions(**{"method": "sample", "max_tokens": 12, **options})
    made = generator_of(build(positions), CHARACTERS, settings, window)
    if not ends:
        with torch.no_grad():
            made.model.head.weight[EOS] = 0
    if engine == "native":
        if positions in STACKS:
            pytest.skip("the native engine has Transformers only")
        made = natively(made, configuration(positions))
    return made


Make = Callable[..., Generator]


@pytest.fixture(params=EACH_ENGINE)
def generator(request: pytest.FixtureRequest) -> Make:
    return functools.partial(generator_on, request.param)


def some_texts(lengths: Sequence[int]) -> list[str]:
    chance = random.Random(3)
    return ["".join(chance.choices("abcdefgh", k=n)) for n in lengths]


def encoded(texts: Sequence[str]) -> EncodedDocuments:
    coding = coding_of_texts(Side(CHARACTERS.encode_batch, CHARACTERS.size))
    return EncodedDocuments.of_rows(*coding.encode(texts))


def token_losses(model: DecoderOnly, ids: list[int]) -> Tensor:
    """(t,) of one document by itself: BOS and ids, each followed by the next, EOS at the end."""
    logits = model(Padded.unpadded(torch.tensor([[BOS, *ids]])))[0]
    return -logits.log_softmax(-1)[torch.arange(len(ids) + 1), torch.tensor([*ids, EOS])]


# --- loss ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("positions", ["rotary", "learned", "sinusoidal", "alibi", "none", *STACKS])
@torch.no_grad()
def test_packed_documents_have_the_losses_that_they_have_alone(positions: Any) -> None:
    texts = some_texts([3, 9, 1, 15, 4, 4, 7, 2])
    model = build(positions)
    data = encoded(texts)
    known = {i: token_losses(model, CHARACTERS.encode(text)) for i, text in enumerate(texts)}
    batches = PackedBatches(data, 16, 32, 0)
    observed = 0.0
    for batch in batches.in_order():
        assert batch.inputs.packed is not None
        total = sum(known[i].sum() for i in batch.documents.tolist())
        result = packed_loss(model, batch)
        torch.testing.assert_close(result.nll, total, rtol=0, atol=1e-10)
        assert result.tokens == sum(len(known[i]) for i in batch.documents.tolist())
        observed += result.nll.item()
    assert observed == pytest.approx(sum(loss.sum().item() for loss in known.values()), abs=1e-10)


@torch.no_grad()
def test_scores_by_hand() -> None:
    texts = ["abc", "dä"]  # ä is unknown, and two bytes
    model = build()
    total = sum(token_losses(model, CHARACTERS.encode(text)).sum().item() for text in texts)
    data = encoded(texts)
    scores = text_scores(model, PackedBatches(data, 16, 16, 0))
    assert scores["loss"] == pytest.approx(total / 7)
    assert scores["perplexity"] == pytest.approx(math.exp(total / 7))
    assert scores["bits_per_byte"] == pytest.approx(total / math.log(2) / 6)


@torch.no_grad()
def test_windows_side_by_side_and_sliding() -> None:
    (text,) = some_texts([29])
    ids = [BOS, *CHARACTERS.encode(text), EOS]
    model = build()
    batches = PackedBatches(encoded([text]), 8, 16, 0)
    for stride in (0, 1, 3, 8):
        total = 0.0
        for i in range(30):  # the prediction of ids[i + 1]
            if i < 8:
                begin = 0
            elif stride in (0, 8):
                begin = i // 8 * 8
            else:
                begin = -(-(i - 7) // stride) * stride
            logits = model(Padded.unpadded(torch.tensor([ids[begin : i + 1]])))[0, -1]
            total -= logits.log_softmax(0)[ids[i + 1]].item()
        assert text_scores(model, batches, stride)["loss"] == pytest.approx(total / 30)


# --- generation ----------------------------------------------------------------------------------

PROMPTS = ["", "a", "abcdefg", "hh ab", "c\nd", "abcdefgabcdefgab"]
WAYS: list[dict[str, Any]] = [
    {"method": "beam", "beam_size": 1},
    {"method": "beam", "beam_size": 3},
    {"method": "sample", "seed": 3},
    {"method": "sample", "n_best": 2, "top_p": 0.9},
    {"method": "sample", "stop_strings": ("a", "d ")},
]


def bare(continuation: Any) -> Any:
    return continuation.continuation, continuation.tokens


@pytest.mark.parametrize(
    ("positions", "way", "window"),
    [
        (positions, way, (64, 10)[(i + j) % 2])  # every pair of two
        for i, positions in enumerate(("rotary", "learned", "sinusoidal", "alibi", "lstm"))
        for j, way in enumerate(WAYS)
    ],
    ids=str,
)
def test_prompts_go_on_together_as_alone(
    generator: Make, positions: Any, way: dict[str, Any], window: int
) -> None:
    model = generator(positions, window, **way)
    together = model.generate(PROMPTS, first=5)
    for i, prompt in enumerate(PROMPTS):
        (alone,) = model.generate([prompt], first=5 + i)
        assert bare(alone) == bare(together[i])
        assert alone.log_prob == pytest.approx(together[i].log_prob)
        assert [bare(o) for o in alone.others] == [bare(o) for o in together[i].others]


def recomputed(model: DecoderOnly, ids: list[int], window: int, count: int) -> list[int]:
    """Greedy search that reads all that it may from the start at every step."""
    ids = list(ids)
    held = 0
    result: list[int] = []
    while len(result) < count:
        if len(ids) - held > window:
            held = len(ids) - int(0.75 * window)
        logits = model(Padded.unpadded(torch.tensor([ids[held:]])))[0, -1]
        logits[[0, 1, BOS]] = -math.inf
        token = int(logits.argmax())
        if token == EOS:
            break
        result.append(token)
        ids.append(token)
    return result


@pytest.mark.parametrize(
    ("positions", "window"),
    [
        *((kind, 12) for kind in ("rotary", "learned", "alibi", *STACKS)),
        ("rotary", 64),
        ("gru", 64),
    ],
)
@torch.no_grad()
def test_the_cache_changes_nothing(generator: Make, positions: Any, window: int) -> None:
    model = generator(positions, window, ends=False, method="beam", beam_size=1, max_tokens=40)
    for prompt in PROMPTS:
        ids = [BOS, *CHARACTERS.encode(prompt)]
        pieces = list(model.pieces(ids, model.options, 0, 0))
        ((best,),) = (decoded.hypotheses for decoded in model.backend.search(pieces, model.options))
        known = recomputed(model.model, ids, window, 40)
        assert best.tokens == known
        assert not best.finished or len(known) < 40


@torch.no_grad()
def test_the_window_follows_its_rows() -> None:
    """Rows chosen as beam search does, and cut each at its own time."""
    model = build()
    chance = torch.Generator().manual_seed(1)
    rows: list[list[int]] = [[BOS, 4, 5, 6, 7], [BOS]]
    held = [list(row) for row in rows]
    state = WindowedState(model, 8)
    fed = Padded.left_padded(rows)
    for _ in range(20):
        logits = state.step(fed)
        for i, row in enumerate(held):
            alone = model(Padded.unpadded(torch.tensor([row])))[0, -1]
            torch.testing.assert_close(logits[i, 0], alone)
        chosen = torch.randint(len(held), (3,), generator=chance)
        state.select(chosen)
        new = torch.randint(4, 9, (3,), generator=chance)
        held = [[*held[i], int(token)] for i, token in zip(chosen.tolist(), new, strict=True)]
        held = [row[-6:] if len(row) > 8 else row for row in held]
        fed = Padded.unpadded(new[:, None])


def test_where_a_continuation_ends(generator: Make) -> None:
    model = generator(seed=2, max_tokens=40, min_length=40)
    (free,) = model.generate(["a"])
    assert len(free.tokens) == 40
    stop = free.continuation[5:8]
    at = free.continuation.find(stop)
    (stopped,) = model.generate(
        ["a"], dataclasses.replace(model.options, stop_strings=("zz", stop))
    )
    assert stopped.continuation == free.continuation[:at]
    assert len(stopped.tokens) == at + 3
    (short,) = model.generate(["a"], dataclasses.replace(model.options, max_tokens=7))
    assert short.continuation == free.continuation[:7] and len(short.tokens) == 7
    assert short.log_prob > free.log_prob
    assert (free.finished, stopped.finished, short.finished) == (False, True, False)
    assert short.fields()["finished"] is False and "finished" not in stopped.fields()


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_stream_is_the_text_in_parts(generator: Make, way: dict[str, Any]) -> None:
    model = generator(**way)
    for i, prompt in enumerate(PROMPTS):
        options = dataclasses.replace(model.options, n_best=1)
        (whole,) = model.generate([prompt], options, first=i)
        parts = list(model.stream(prompt, number=i))
        assert "".join(parts) == whole.continuation
        if way == WAYS[2] and len(whole.continuation) > 3:
            assert len(parts) > 3, "it comes as it grows"


def test_one_line_and_exact(generator: Make) -> None:
    model = generator(temperature=5.0, max_tokens=50, min_length=50)
    answers = model.predict([(prompt,) for prompt in PROMPTS])
    assert any("\n" in one.continuation for one in answers)
    for one in answers:
        assert one.text == " ".join(one.continuation.splitlines())
        fields = {"continuation", "score", "log_prob", "tokens"}
        assert set(one.fields()) == fields | (set() if one.finished else {"finished"})


@pytest.mark.parametrize("method", ["beam", "sample"])
def test_what_a_continuation_must_hold_and_must_not(generator: Make, method: Any) -> None:
    letters = sorted(CHARACTERS.units)[-4:]
    held, avoided, prefix = "".join(letters[:2]), letters[2], letters[3] * 2
    model = generator(
        method=method, max_tokens=9, prefix=prefix, constraints=(held,), avoid=(avoided,)
    )
    for result in model.generate(some_texts([3, 0, 7])):
        assert result.continuation.startswith(prefix)
        assert held in result.continuation and avoided not in result.continuation


def test_a_prefix_is_whole_and_what_is_lacking_is_said(
    generator: Make, caplog: pytest.LogCaptureFixture
) -> None:
    letters = sorted(CHARACTERS.units)[-4:]
    held = "".join(letters)
    model = generator(prefix=held, max_tokens=2)
    (continuation,) = model.generate(["a"])
    assert continuation.continuation == held and not caplog.records
    model = generator(constraints=(held,), max_tokens=3)
    model.generate(["a", "b"], first=4)
    lacking = [record.getMessage() for record in caplog.records]
    assert lacking == [
        f"prompt {i}: the continuation does not meet its constraints: they do not fit; "
        "raise max_tokens"
        for i in (5, 6)
    ]
    list(model.stream("a"))
    assert len(caplog.records) == 3


def test_a_prompt_that_is_too_long_is_said(
    generator: Make, caplog: pytest.LogCaptureFixture
) -> None:
    model = generator("learned", window=10)
    model.generate(["ab", "abcdefgh" * 3], first=4)
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "prompt 6 has 25 tokens, more than the model's context of 10"
    )
    list(model.stream("abcdefgh" * 3))
    assert caplog.records[-1].getMessage().startswith("prompt 1 has 25 tokens")


# --- wording -------------------------------------------------------------------------------------


def subwords() -> Tokenizer:
    lines = ["the cat sat on the mat", "the dog sat on the log", "a cat and a dog"] * 5
    return train_tokenizer(SubwordConfig(size=300), lines)


@pytest.mark.parametrize("prompt", ["", "the", "the cat\n", " the"])
@pytest.mark.parametrize("text", [" cat sat 猫が座る。 on", "猫", "\n\nthe mat  ", "s 🐈🐈"])
def test_never_half_a_character(prompt: str, text: str) -> None:
    tokenizer = subwords()
    before = [BOS, *tokenizer.encode(prompt)]
    whole = tokenizer.encode(prompt + text)
    shared = tokenizer.encode(prompt)
    if whole[: len(shared)] != shared:
        pytest.skip("the text joins the last piece of the prompt")
    ids = whole[len(shared) :]
    continuation_text = ContinuationText(tokenizer, before, ())
    written = ""
    for n in range(len(ids) + 1):
        stable = continuation_text.stable(ids[:n])
        assert stable.startswith(written) and text.startswith(stable)
        written = stable
    assert continuation_text.exact(ids) == text == written


def test_what_may_begin_a_stop_is_held_back() -> None:
    continuation_text = ContinuationText(CHARACTERS, [BOS], ("abc", "h"))

    def stable(text: str) -> str:
        return continuation_text.stable(CHARACTERS.encode(text))

    assert [stable(t) for t in ("d", "da", "dab", "dabd", "dabc", "dabcd")] == [
        "d", "d", "d", "dabd", "d", "d",
    ]  # fmt: skip
    assert stable("ahabc") == "a"
    assert continuation_text.stopped(CHARACTERS.encode("dddddddabc"))
    assert not continuation_text.stopped(CHARACTERS.encode("abdddddddab"))
    assert not ContinuationText(CHARACTERS, CHARACTERS.encode("ab"), ("abc",)).stopped(
        CHARACTERS.encode("c")
    ), "the prompt does not count"

"""Synthesis by durations: model, search, loss, speaking, words, explanation."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import transduce
from helpers.tunes import durations_recipe, write_tunes
from transduce import SettingError
from transduce.loading import Run
from transduce.sequence import Padded
from transduce.settings.sections import apply_overrides
from transduce.speech.recipe import read_recordings_of
from transduce.speech.spoken import MOST_CHARACTERS, Pronouncer, blocks_of, words_of_text
from transduce.speech.synthesis import DurationTraining, fitting
from transduce.speech.synthesis_models import (
    MonotonicSynthesis,
    MonotonicSynthesisConfig,
    frames_by_durations,
    scores_of,
)
from transduce.speech.synthesiser import BATCH_TOKENS, Synthesiser, SynthesisRecipe
from transduce.text import SymbolsConfig
from transduce.text.build import train_tokenizer

BINS = 6
CONFIG = MonotonicSynthesisConfig(d_model=16, encoder_layers=2, decoder_layers=2, dropout=0.0)
TEXTS = [[5, 6, 7, 2], [8, 2]]


@pytest.fixture(scope="module")
def model() -> MonotonicSynthesis:
    torch.manual_seed(1)
    return MonotonicSynthesis(CONFIG, BINS, 20).double().eval()


def settings(train: dict[str, Any], /, *overrides: str) -> dict[str, Any]:
    return apply_overrides(durations_recipe(train, 120, 2), overrides)


@pytest.fixture(scope="module")
def tunes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return write_tunes(tmp_path_factory.mktemp("tunes"), 120)


@pytest.fixture(scope="module")
def run(tunes: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Run:
    path, _ = transduce.train(settings(tunes), tmp_path_factory.mktemp("runs") / "run")
    return transduce.load(path, "cpu")


def training_of(run: Run) -> DurationTraining:
    synthesiser: Any = run.predictor
    recipe = synthesiser.recipe
    parts = ("train", "valid")
    data = {p: read_recordings_of(recipe.data, recipe.audio, p, synthesiser.cache) for p in parts}  # type: ignore[arg-type]
    return DurationTraining(synthesiser, data)  # type: ignore[arg-type]


def test_padding_changes_nothing(model: MonotonicSynthesis) -> None:
    together = frames_by_durations(model, Padded.from_rows(TEXTS), 1.0)
    for ids, spoken in zip(TEXTS, together, strict=True):
        (alone,) = frames_by_durations(model, Padded.from_rows([ids]), 1.0)
        assert spoken.attention.shape == alone.attention.shape
        torch.testing.assert_close(spoken.frames, alone.frames)


def test_every_token_spans_its_steps(model: MonotonicSynthesis) -> None:
    text = Padded.from_rows(TEXTS)
    durations = torch.tensor([[1, 3, 0, 2], [4, 1, 0, 0]])
    frames = model(text, durations)
    assert frames.lengths.tolist() == [12, 10] and frames.values.shape == (2, 12, BINS)
    predicted = model.steps(model.encode(text).log_durations, text, 1.0)
    assert (predicted > 0).equal(text.real)
    slow = model.steps(torch.full((1, 3), 2.0), Padded.from_rows([[1, 2, 3]]), 0.5)
    assert slow.tolist() == [[15, 15, 14]]  # e² = 7.4 steps each, twice; the sum is rounded


def test_a_gradient_reaches_every_parameter(model: MonotonicSynthesis) -> None:
    outputs = model.encode(Padded.from_rows(TEXTS))
    frames = model.decode(outputs.hidden, torch.tensor([[1, 3, 1, 2], [4, 1, 0, 0]]))
    sums = [frames.values.sum(), outputs.means.square().sum(), outputs.log_durations.sum()]
    sum(sums).backward()  # type: ignore[union-attr]
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())
    model.zero_grad()


def test_scores_find_the_means_in_the_frames(model: MonotonicSynthesis) -> None:
    """Frames that are means of tokens are nearest to these; even pace pulls to the diagonal."""
    outputs = model.encode(Padded.from_rows(TEXTS[:1]))
    groups = outputs.means[:, [0, 0, 1, 2, 2, 2, 3]].detach() * 1.0
    scores = scores_of(outputs, groups, torch.tensor([7]), 0.0)
    assert scores[0].argmax(0).tolist() == [0, 0, 1, 2, 2, 2, 3]
    paced = scores_of(outputs, groups, torch.tensor([7]), 1e6)
    assert paced[0].argmax(0).tolist() == [0, 1, 1, 2, 2, 3, 3]


def test_the_loss_of_a_batch_is_the_sum_of_its_halves(run: Run) -> None:
    task = training_of(run)
    task.model.eval()
    batch = max(task.batches.in_order(), key=lambda one: len(one.rows))
    halves = batch.halves()
    assert halves is not None
    with torch.no_grad():
        whole, parts = task.loss(batch), [task.loss(half) for half in halves]
    assert whole.tokens == sum(part.tokens for part in parts)
    for name in ("total", "nll"):
        added = sum(float(getattr(part, name)) for part in parts)
        assert float(getattr(whole, name)) == pytest.approx(added, rel=1e-4)


def test_it_speaks_each_letter_for_its_time(run: Run) -> None:
    """A letter of the tunes lasts 0.1 s, and speech is as long as its recording."""
    speech = run.speak("abc de")
    assert speech.stopped and speech.reached and speech.coverage == 100 == speech.monotony
    assert [word.text for word in speech.words] == ["abc", "de"]
    assert speech.words[0].start == 0 and speech.words[0].end <= speech.words[1].start
    assert speech.words[1].end <= speech.seconds + 0.03
    assert speech.fields()["words"][0]["word"] == "abc"
    scores = run.evaluate("valid").other_scores
    assert 85 < scores["length-ratio"] < 115 and scores["failures"] == 0


def test_speed_divides_durations(run: Run) -> None:
    usual = run.speak("abcde").seconds
    assert run.speak("abcde", speed=0.5).seconds == pytest.approx(2 * usual, rel=0.3)
    assert run.speak("abcde").seconds == usual, "of that call alone"


def test_long_texts_are_spoken_block_by_block(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text is the speech of its blocks, with the times of all its words; no block is long."""
    sizes: list[int] = []
    decode = Synthesiser.decode

    def counted(self: Synthesiser, rows: Any, speakers: Any) -> Any:
        sizes.append(sum(map(len, rows)))
        return decode(self, rows, speakers)

    monkeypatch.setattr(Synthesiser, "decode", counted)
    text = "abc de, ba. " * 1000 + "e" * 1000
    speech = run.speak(text)
    assert sum(sizes) <= 1.1 * len(text) and max(sizes) <= BATCH_TOKENS
    assert speech.stopped and speech.reached and speech.coverage == speech.monotony == 100
    assert "".join(word.text for word in speech.words) == text.replace(" ", "")
    times = [time for word in speech.words for time in word[1:]]
    assert times == sorted(times) and times[-1] == pytest.approx(speech.seconds, abs=0.2)
    blocks = list(blocks_of(text))
    assert max(map(len, blocks)) <= MOST_CHARACTERS and blocks[0].endswith("ba.")
    last = run.speak(blocks[-1])
    torch.testing.assert_close(speech.frames[-len(last.frames) :], last.frames)
    assert speech.words[-1].end - speech.words[-1].start == pytest.approx(last.words[-1].end)


def test_blocks_end_after_sentences_clauses_or_words() -> None:
    half = "a" * (MOST_CHARACTERS // 2)
    for end in (". ", ", ", " ", "。"):
        text = f"{half} ab{end}cd {half}"
        expected = [f"{half} ab{end}".strip(), f"cd {half}"]
        assert list(blocks_of(text)) == (expected if end != " " else [f"{half} ab cd", half])
    assert list(blocks_of(" \n")) == [] and list(blocks_of("a  b\n")) == ["a b"]
    assert list(map(len, blocks_of(half * 5))) == [MOST_CHARACTERS, MOST_CHARACTERS, len(half)]


def test_words_of_sounds() -> None:
    """Words that a run turns into sounds have the places of their sounds, without the borders."""
    text = '"Ab, cab!  ab'
    symbols = '" | AH B , | K AE B ! | AH B'
    tokenizer = train_tokenizer(SymbolsConfig(), [symbols])
    ids = tokenizer.encode(symbols)
    pronouncer = Pronouncer(None)  # type: ignore[arg-type]
    assert list(words_of_text(tokenizer, pronouncer, text, ids)) == [
        ('"', 0, 1),
        ("Ab,", 2, 5),
        ("cab!", 6, 10),
        ("ab", 11, 13),
    ]


def test_recordings_without_room_are_left_out(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    synthesiser: Any = run.predictor
    recipe = synthesiser.recipe
    data = read_recordings_of(recipe.data, recipe.audio, "valid", synthesiser.cache)
    assert len(fitting(synthesiser, data)) == len(data)
    long = Synthesiser.ids
    try:
        Synthesiser.ids = lambda self, texts: [row * 99 for row in long(self, texts)]  # type: ignore[method-assign]
        assert not len(fitting(synthesiser, data))
    finally:
        Synthesiser.ids = long  # type: ignore[method-assign]


def test_an_explanation_shows_durations(run: Run) -> None:
    speech, shown = run.speak("abca"), run.explain("abca")
    assert list(shown.sequences["source"]) == ["a", "b", "c", "a", "</s>"]
    (durations,) = shown.attention
    assert durations.weights[0].argmax(1).tolist() == speech.attended.tolist()
    assert shown.answer == speech.text and "durations" in shown.page()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.width=4", "must be odd"),
        ("model.kind=other", "'monotonic', 'attention'"),
        ("model.postnet.width=3", "model.postnet"),
        ("training.compile=true", "compile cannot be combined with a search for durations"),
    ],
)
def test_mistakes_in_a_recipe(tunes: dict[str, Any], override: str, message: str) -> None:
    with pytest.raises(SettingError, match="^[^\n]*" + message):
        SynthesisRecipe.parse(settings(tunes, override), "recipe")

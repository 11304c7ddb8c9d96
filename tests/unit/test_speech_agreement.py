"""Words while one speaks: certain ones are shown, and none is taken back."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import transduce
from helpers.audio import Samples, encoded, noise, saved
from helpers.tunes import RATE, tune
from transduce.cli.main import main
from transduce.decoding.options import DecodingOptions
from transduce.errors import SettingError
from transduce.metrics.error_rates import edit_distance
from transduce.speech.agreement import AgreedWords, OpenSpeech, parts_of
from transduce.speech.segments import Segment, written

OPEN = Segment(0.0, 1.0, "", partial=True)


def shown(*drafts: str) -> tuple[AgreedWords, list[str]]:
    words = AgreedWords()
    return words, [words.text for draft in drafts if words.add(draft)]


def test_words_of_two_texts_in_a_row_are_certain() -> None:
    drafts = ("so the", "So, the bread", "so the bed is", "so the bed is on", "no")
    words, certain = shown(*drafts)
    assert certain == ["So, the", "So, the bed is"]
    final = words.completed([Segment(0, 2, "So the bread is on the table.")], OPEN)
    assert [segment.text for segment in final] == ["So, the bed is on the table."]
    assert words.text == ""


def test_a_text_is_completed_over_its_segments() -> None:
    words, _ = shown("one two three four", "one two three four")
    dropped = Segment(0, 1, "", guard="made-up", dropped="x")
    segments = [dropped, Segment(1, 2, "One two."), Segment(2, 3, "Three four five."), dropped]
    final = [*words.completed(segments, OPEN)]
    assert [segment.text for segment in final] == ["", "one two three four", "five.", ""]
    words, _ = shown("one two", "one two")
    (only,) = words.completed([], OPEN)
    assert only.text == "one two" and not only.partial
    assert [*AgreedWords().completed(segments, OPEN)] == segments


def test_certain_words_after_a_cut_stay_for_the_next_piece() -> None:
    draft = "Agent login, please enter your number"
    words, _ = shown(draft, draft + " now")
    (final,) = words.completed([Segment(0, 2, "Agent log in.")], OPEN, is_cut=True)
    assert final.text == "Agent login," and words.text == "please enter your number"
    (final,) = words.completed([Segment(2, 4, "please enter your number now.")], OPEN)
    assert final.text == "please enter your number now." and words.text == ""
    words, _ = shown("one two", "one two")
    (only,) = words.completed([], OPEN, is_cut=True)
    assert only.text == "one two" and words.text == ""


def test_scripts_without_blanks() -> None:
    assert shown("你好吗", "你好啊")[1] == ["你好"]
    assert parts_of(" a b") == [" a", " b"] and parts_of("") == []


def test_a_line_grows() -> None:
    segments = [replace(OPEN, text="so"), replace(OPEN, text="so the"), Segment(0, 2, "so the end")]
    assert [*written(segments, "txt", "")] == ["so", " the", " end\n"]
    records = [json.loads(line) for line in written(segments, "jsonl", "")]
    assert [record.get("partial", False) for record in records] == [True, True, False]


def test_a_recording_while_it_is_spoken(tunes_path: Path, tmp_path: Path) -> None:
    transcriber = transduce.load(tunes_path, "cpu").transcriber(DecodingOptions(beam_size=1))
    quiet = noise(1, RATE, 3, 0.003)
    tunes = [tune(text * 4, seed) for seed, text in enumerate(("abe", "dca"))]
    samples = np.concatenate([quiet, tunes[0], quiet, tunes[1], quiet])
    read = 0

    def blocks() -> Iterator[Samples]:
        nonlocal read
        for read in range(0, len(samples), 400):
            yield samples[read : read + 400]

    certain, places, finals = "", list[int](), list[Segment]()
    for segment in transcriber.transcribe_open(blocks()):
        assert segment.text.startswith(certain), "no word is taken back"
        certain = segment.text if segment.partial else ""
        finals += [] if segment.partial else [segment]
        places += [read] if segment.partial else []
    assert len(finals) == 2 and all(segment.words or segment.text for segment in finals)
    assert places == sorted(places)
    file = saved(tmp_path / "a.wav", encoded(samples, RATE))
    assert main(["transcribe", str(tunes_path), str(file), "--partial"]) == 2


def test_parts_of_a_recording_with_the_state_between(tunes_path: Path) -> None:
    """As of the whole, with 5 s before what is done."""
    transcriber = transduce.load(tunes_path, "cpu").transcriber(DecodingOptions(beam_size=1))
    quiet = noise(1.5, RATE, 3, 0.003)
    parts = [quiet]
    for seed, text in enumerate(("abe", "dca", "bad", "ec")):
        parts += [tune(text * 4, seed), quiet]
    samples = np.concatenate(parts)
    whole = [segment.text for segment in transcriber.transcribe([samples], live=True)]
    state, first, lines, before = OpenSpeech(), 0, list[str](), ""
    for end in (*range(RATE, len(samples), RATE), len(samples)):
        last = end == len(samples)
        segments, state = transcriber.transcribe_so_far(samples[first:end], state, last)
        texts = [segment.text for segment in segments]
        assert all(not segment.partial for segment in segments)
        assert (texts[0] if texts else state.text).startswith(before), "no word is taken back"
        before, lines = state.text, lines + texts
        dropped = max(0, int(state.done - 5))
        first += dropped * RATE
        state = OpenSpeech.parse(
            json.loads(json.dumps(state._replace(done=state.done - dropped)._asdict()))
        )
    assert first > 0 and before == "" and not state.goes_on
    assert len(lines) == len(whole) == 4
    assert edit_distance("".join(lines), "".join(whole)) <= len("".join(whole)) / 4


def test_a_sound_that_was_no_speech_keeps_its_certain_words(tunes_path: Path) -> None:
    transcriber = transduce.load(tunes_path, "cpu").transcriber(DecodingOptions(beam_size=1))
    state = OpenSpeech(1.0, True, ("so", " it"), ("so", " it", " is"))
    segments, state = transcriber.transcribe_so_far(noise(4, RATE, 3, 0.003), state)
    assert [segment.text for segment in segments] == ["so it"]
    assert state.certain == state.before == () and not state.goes_on and state.done > 2


@pytest.mark.parametrize("step", [RATE, 6 * RATE])
@pytest.mark.parametrize("is_followed", [True, False])
def test_certain_words_of_steady_noise_are_a_line_of_their_own(
    tunes_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, is_followed: bool
) -> None:
    """While blocks come, and by parts, of which one may hold the end of the noise and all after it.
    The noise has its text by construction."""
    transcriber = transduce.load(tunes_path, "cpu").transcriber(DecodingOptions(beam_size=1))
    monkeypatch.setattr(
        transcriber, "_draft", lambda piece, *_: "so it" if 3 < piece.start < 5 else ""
    )
    steady = [noise(4, RATE, 3, 0.0003), noise(5, RATE, 4, 0.01)]
    spoken = [noise(1, RATE, 5, 0.0003), tune("abe" * 4, 0), noise(1, RATE, 6, 0.0003)]
    samples = np.concatenate(steady + spoken if is_followed else steady)
    whole = [segment.text for segment in transcriber.transcribe([samples], live=True)]
    assert len(whole) == is_followed

    blocks = [samples[first : first + 1000] for first in range(0, len(samples), 1000)]
    segments = [*transcriber.transcribe_open(blocks)]
    assert [segment.text for segment in segments] == ["so it", "so it", *whole]
    assert [segment.partial for segment in segments] == [True, False, *([False] * is_followed)]

    state, lines = OpenSpeech(), list[str]()
    for end in (6 * RATE, 7 * RATE, *range(8 * RATE, len(samples), step), len(samples)):
        assert end <= 7 * RATE or lines or state.text == "so it"
        finals, state = transcriber.transcribe_so_far(samples[:end], state, end == len(samples))
        lines += [segment.text for segment in finals]
    assert lines[0] == "so it" and len(lines) == 1 + len(whole)
    assert not any("so" in line for line in lines[1:])
    assert state.certain == state.before == () and not state.goes_on


def test_certain_words_outlast_the_end_of_their_sound(tunes_path: Path) -> None:
    transcriber = transduce.load(tunes_path, "cpu").transcriber(DecodingOptions(beam_size=1))
    for seconds, done in ((0, 0.0), (0, 1.0), (0.2, 0.0), (1.2, 1.0)):
        state = OpenSpeech(done, True, ("so", " it"), ("so", " it", " is"))
        sound = noise(2, RATE, 3, 0.003)[: round(seconds * RATE)]
        segments, state = transcriber.transcribe_so_far(sound, state, last=True)
        assert [segment.text for segment in segments] == ["so it"]
        assert state.certain == () and not state.goes_on


@pytest.mark.parametrize(
    "fields",
    [[], {"done": -1}, {"done": True}, {"done": 1e999}, {"certain": "a"}, {"certain": [1]},
     {"before": ["a"] * 501}, {"goes_on": 1}, {"x": 1}, {"language": None}],
)  # fmt: skip
def test_a_state_is_one_of_an_answer(fields: object) -> None:
    with pytest.raises(SettingError, match="state is not one of an answer"):
        OpenSpeech.parse(fields)
    assert OpenSpeech.parse({"done": 1}).done == 1


@pytest.mark.parametrize("form", ["srt", "json"])
def test_partial_words_have_two_formats(tunes_path: Path, form: str) -> None:
    assert main(["transcribe", str(tunes_path), "--partial", "--format", form]) == 2

"""Warnings about blank and cut-off outputs at the end of `transduce translate`."""

import logging

import pytest

from transduce.cli.doubts import doubting
from transduce.tasks.translation.text_translator import Candidate, Translation


def output(text: str, finished: bool = True) -> Translation:
    candidate = Candidate(text, (), 0.0, 0.0, finished=finished)
    return Translation(text, candidates=(candidate,))


def test_blank_and_cut_off_outputs_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    outputs = [output(""), output(""), output("a"), output("b", finished=False), Translation("")]
    with caplog.at_level(logging.WARNING), doubting("runs/x") as doubts:
        assert list(doubts.seen(["1", "2", "3", "4", " "], outputs)) == outputs
    first, second = (record.getMessage() for record in caplog.records)
    assert first == "runs/x: 2 of 4 outputs are blank"
    assert second.startswith("runs/x: 1 of 4 outputs ended at their greatest length")
    assert output("b", finished=False).fields()["finished"] is False
    assert "finished" not in output("b").fields()


def test_a_run_that_has_hardly_learnt_is_called_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), doubting("runs/x") as doubts:
        list(doubts.seen(["1", "2", "3"], [output("")] * 2 + [output("a")]))
    assert "hardly learnt" in caplog.text


def test_sound_outputs_are_passed_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), doubting("runs/x") as doubts:
        list(doubts.seen(["1", ""], [output("a"), Translation("")]))
    assert not caplog.records

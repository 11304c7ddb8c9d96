"""Promises of a model that speaks: the same as of the other wirings, over frames."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch

from transduce.nn.stack_configs import TransformerConfig
from transduce.sequence import Padded
from transduce.speech.synthesis_models import (
    DropoutMasks,
    FramesFrontEndConfig,
    PostnetConfig,
    SynthesisConfig,
    SynthesisModel,
    frames_read,
)

BINS, VOCABULARY, STEPS, K = 5, 11, 6, 3
CLOSE = {"rtol": 0.0, "atol": 1e-9}
STACK = TransformerConfig(n_layers=2, n_heads=2, d_ff=24, norm_order="pre", dropout=0.0)
CONFIG = SynthesisConfig(
    d_model=16,
    frames_per_step=K,
    front_end=FramesFrontEndConfig(width=8, dropout=0.0),
    encoder=STACK,
    decoder=STACK,
    postnet=PostnetConfig(n_layers=3, channels=6),
)
TEXTS = Padded.from_rows([[4, 5, 6, 7, 3], [8, 3], [9, 9, 10, 3]])


@pytest.fixture
def model() -> SynthesisModel:
    torch.manual_seed(2)
    return SynthesisModel(CONFIG, BINS, VOCABULARY).double().eval()


def frames(lengths: tuple[int, ...] = (STEPS, STEPS, STEPS)) -> Padded:
    """Frames (3, t·k, bins) of so many steps each."""
    torch.manual_seed(3)
    real = torch.arange(max(lengths) * K) < K * torch.tensor(lengths)[:, None]
    padding = "none" if bool(real.all()) else "right"
    return Padded(torch.randn(*real.shape, BINS).double(), real, padding)  # type: ignore[arg-type]


def test_what_is_read_is_the_last_frame_of_the_step_before() -> None:
    given = frames()
    read = frames_read(given, K)
    assert read.values.shape == (3, STEPS, BINS)
    assert not read.values[:, 0].any()
    assert read.values[:, 1:].equal(given.values[:, K - 1 : -1 : K])


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_cached_steps_equal_one_pass(model: SynthesisModel, dropout: float) -> None:
    read = frames_read(frames(), K)
    masks = DropoutMasks(1, [[0], [1], [2]], sum(model.target_front_end.widths), dropout)
    drawn = [masks.draw([0, 1, 2]) for _ in range(STEPS)]
    together = None if drawn[0] is None else torch.cat(drawn, 1)  # type: ignore[arg-type]
    whole = model.step(read, model.start(TEXTS), together)
    state = model.start(TEXTS)
    for i, kept in enumerate(drawn):
        now = Padded.unpadded(read.values[:, i : i + 1])
        result, weights = model.step_attended(now, state, kept)
        torch.testing.assert_close(result.frames, whole.frames[:, i * K : (i + 1) * K], **CLOSE)
        torch.testing.assert_close(result.stop[:, 0], whole.stop[:, i], **CLOSE)
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]), **CLOSE)


def test_select_reorders_all_that_follows(model: SynthesisModel) -> None:
    rows, read = torch.tensor([2, 0]), frames_read(frames(), K).values
    state, chosen = model.start(TEXTS), model.start(TEXTS)
    for one in (state, chosen):
        model.step(Padded.unpadded(read[:, :3]), one)
    chosen.select(rows)
    for i in range(3, STEPS):
        expected = model.step(Padded.unpadded(read[:, i : i + 1]), state)
        result = model.step(Padded.unpadded(read[rows, i : i + 1]), chosen)
        torch.testing.assert_close(result.frames, expected.frames[rows], **CLOSE)
        torch.testing.assert_close(result.stop, expected.stop[rows], **CLOSE)


def test_padding_changes_nothing(model: SynthesisModel) -> None:
    batch = frames((6, 2, 4))
    batch = batch.with_values(batch.values.masked_fill(~batch.real[..., None], 1e3))
    result = model(TEXTS, frames_read(batch, K))
    better = model.postnet(batch)
    for i, n in enumerate((6, 2, 4)):
        text = Padded.unpadded(TEXTS.values[i : i + 1, TEXTS.real[i]])
        alone = Padded.unpadded(batch.values[i : i + 1, : n * K])
        expected = model(text, frames_read(alone, K))
        torch.testing.assert_close(result.frames[i : i + 1, : n * K], expected.frames, **CLOSE)
        torch.testing.assert_close(better[i : i + 1, : n * K], model.postnet(alone), **CLOSE)


def test_a_gradient_reaches_every_parameter(model: SynthesisModel) -> None:
    result = model(TEXTS, frames_read(frames(), K))
    better = model.postnet(Padded.unpadded(result.frames))
    (better.square().sum() + result.stop.square().sum()).backward()
    missing = [name for name, one in model.named_parameters() if one.grad is None]
    assert missing == []


def test_saving_and_loading_change_nothing(model: SynthesisModel, tmp_path: Path) -> None:
    other = SynthesisModel(CONFIG, BINS, VOCABULARY).double().eval()
    safetensors.torch.save_model(model, str(tmp_path / "weights"))
    safetensors.torch.load_model(other, str(tmp_path / "weights"))
    read = frames_read(frames(), K)
    assert model(TEXTS, read).frames.equal(other(TEXTS, read).frames)

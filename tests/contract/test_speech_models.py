"""Promises of a speech model, alone and scored together with CTC."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from transduce.nn.stack_configs import TransformerConfig
from transduce.sequence import Padded
from transduce.speech.ctc import JointModel
from transduce.speech.model import SpeechModel, build_speech
from transduce.speech.model_config import SpeechConfig, SpeechFrontEndConfig

BINS, VOCABULARY = 5, 11
CLOSE = {"rtol": 0.0, "atol": 1e-9}
STACK = TransformerConfig(n_layers=2, n_heads=2, d_ff=24, norm_order="pre", dropout=0.0)
CONFIG = SpeechConfig(
    d_model=16, front_end=SpeechFrontEndConfig(channels=6), encoder=STACK, decoder=STACK
)
MODELS: dict[str, Callable[[SpeechModel], Any]] = {
    "decoder": lambda model: model,
    "decoder and CTC": lambda model: JointModel(model, 0.5),
}


@pytest.fixture
def model() -> SpeechModel:
    torch.manual_seed(2)
    return build_speech(CONFIG, BINS, VOCABULARY).double().eval()


@pytest.fixture(params=MODELS)
def scored(request: pytest.FixtureRequest, model: SpeechModel) -> Any:
    return MODELS[request.param](model)


def frames(lengths: tuple[int, ...] = (40, 25, 33)) -> Padded:
    torch.manual_seed(3)
    real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return Padded(torch.randn(*real.shape, BINS).double(), real, "right")


TARGET = torch.tensor([[2, 4, 5, 5, 6], [2, 7, 4, 8, 9], [2, 10, 10, 1, 4]])


def scores(scored: Any, target: Tensor, state: Any) -> Tensor:
    """Log-probabilities (r, v) of the token after `target`, CTC's part included."""
    result = scored.step(Padded.unpadded(target), state)[:, -1].log_softmax(-1)
    return (
        result if isinstance(scored, SpeechModel) else result + scored.hooks([]).token_bonus(state)
    )


def test_cached_steps_equal_one_pass(scored: Any) -> None:
    whole = scores(scored, TARGET, scored.start(frames()))
    state = scored.start(frames())
    for column in range(TARGET.shape[1]):
        result = scores(scored, TARGET[:, column : column + 1], state)
    torch.testing.assert_close(result, whole, **CLOSE)


def test_select_reorders_all_that_follows(scored: Any) -> None:
    rows = torch.tensor([2, 0, 0, 1])
    state, chosen = scored.start(frames()), scored.start(frames())
    scores(scored, TARGET[:, :3], state)
    scores(scored, TARGET[:, :3], chosen)
    chosen.select(rows)
    for column in (3, 4):
        expected = scores(scored, TARGET[:, column : column + 1], state)
        result = scores(scored, TARGET[rows, column : column + 1], chosen)
        torch.testing.assert_close(result, expected[rows], **CLOSE)


def test_padding_changes_nothing(scored: Any) -> None:
    batch = frames()
    batch = batch.with_values(batch.values.masked_fill(~batch.real[..., None], 1e3))
    result = scores(scored, TARGET, scored.start(batch))
    for i, real in enumerate(batch.real):
        alone = Padded.unpadded(batch.values[i : i + 1, real])
        expected = scores(scored, TARGET[i : i + 1], scored.start(alone))
        torch.testing.assert_close(result[i : i + 1], expected, **CLOSE)


def test_positions_are_those_of_the_settings() -> None:
    for layers in (1, 2, 3):
        config = SpeechFrontEndConfig(n_layers=layers, channels=4)
        lengths = (17, 16, 3, 1)
        model = build_speech(SpeechConfig(front_end=config), BINS, 9).double()
        memory = model.encode(frames(lengths))
        assert memory.lengths.tolist() == [config.positions(n) for n in lengths]


def test_a_gradient_reaches_every_parameter(model: SpeechModel) -> None:
    memory = model.encode(frames())
    state = model.decoder.start(memory)
    log_probs = model.ctc_log_probs(memory)
    (model.step(Padded.unpadded(TARGET), state).sum() + log_probs.values[..., 3].sum()).backward()
    missing = [name for name, one in model.named_parameters() if one.grad is None]
    assert missing == []


def test_saving_and_loading_change_nothing(model: SpeechModel, tmp_path: Path) -> None:
    other: nn.Module = build_speech(CONFIG, BINS, VOCABULARY).double().eval()
    assert isinstance(other, SpeechModel)
    safetensors.torch.save_model(model, str(tmp_path / "weights"))
    safetensors.torch.load_model(other, str(tmp_path / "weights"))
    for joint in MODELS.values():
        result = [scores(one, TARGET, one.start(frames())) for one in (joint(model), joint(other))]
        assert result[0].equal(result[1])


def test_the_vocabulary_of_ctc_can_be_its_own() -> None:
    model = build_speech(CONFIG, BINS, VOCABULARY, ctc_size=7).double()
    assert model.ctc_log_probs(model.encode(frames())).values.shape == (3, 10, 7)

"""Gradients and graphs that must not be there: each documented stop, seen from upstream."""

from __future__ import annotations

import torch

from transduce.nn.attention import RecordedAttention
from transduce.sequence import Padded
from transduce.speech.synthesis_models import MonotonicSynthesis, MonotonicSynthesisConfig
from transduce.tasks.training import label_loss
from transduce.training.loss import cross_entropy, r_drop_cross_entropy, r_drop_of_scores
from transduce.training.weights import MovingAverage, weights_of


def test_durations_teach_no_text() -> None:
    torch.manual_seed(0)
    config = MonotonicSynthesisConfig(d_model=16, encoder_layers=1, decoder_layers=1, dropout=0.0)
    model = MonotonicSynthesis(config, 6, 20)
    encoded = model.encode(Padded.from_rows([[5, 6, 7, 2], [8, 2]]))
    encoded.log_durations.square().sum().backward()
    taught = {name for name, weight in model.named_parameters() if weight.grad is not None}
    assert taught and all(name.startswith(("predictor.", "duration.")) for name in taught)
    model.zero_grad(set_to_none=True)
    model.encode(Padded.from_rows([[5, 2]])).means.square().sum().backward()
    assert model.front_end.embedding.weight.grad is not None


def test_recorded_weights_keep_no_graph_unless_a_loss_is_of_them() -> None:
    attention = RecordedAttention()
    weights = torch.rand(1, 1, 2, 3, requires_grad=True).softmax(-1)
    attention.record(weights)  # recording is off
    attention.weights = []
    attention.record(weights)
    attention.trained_by_weights = True
    attention.record(weights)
    assert [recorded.requires_grad for recorded in attention.weights] == [False, True]
    assert torch.equal(attention.weights[0], weights)


def test_served_weights_are_no_part_of_a_graph() -> None:
    model = torch.nn.Linear(2, 2)
    assert not any(tensor.requires_grad for tensor in weights_of(model).values())


def test_averages_follow_no_gradient_and_no_step_but_their_own() -> None:
    model = torch.nn.Linear(2, 2)
    ema = MovingAverage(model, 0.9)
    before = {name: tensor.clone() for name, tensor in ema.weights.items()}
    with torch.no_grad():
        model.weight += 1
    assert all(torch.equal(ema.weights[name], before[name]) for name in before)
    ema.update(model, 1)
    assert not any(tensor.requires_grad for tensor in ema.weights.values())
    assert not torch.equal(ema.weights["weight"], before["weight"])


def test_a_reported_likelihood_teaches_nothing() -> None:
    """Whatever the loss, its negative log-likelihood is only shown."""
    scores = torch.randn(4, 3, requires_grad=True)
    labels = torch.tensor([0, 2, 1, 1])
    hidden, weight = torch.randn(4, 5, requires_grad=True), torch.randn(3, 5, requires_grad=True)
    for loss in (
        r_drop_of_scores(scores, labels[:2], 1.0),
        label_loss(scores, labels, 0.1),
        r_drop_cross_entropy(hidden, weight, labels[:2], 1.0),
        cross_entropy(hidden, weight, labels, 0.1),
    ):
        assert loss.total.requires_grad and not loss.nll.requires_grad

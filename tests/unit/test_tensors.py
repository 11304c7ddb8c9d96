"""Recorded tensors are those that the model computed, and recording leaves results alone."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import transduce
from helpers.random_translator import random_translator
from transduce.decoding.options import DecodingOptions
from transduce.models.decoder_only import DecoderOnlyConfig, build_decoder_only
from transduce.nn.stack_configs import TransformerConfig
from transduce.sequence import Padded

KEPT = Path(__file__).parents[1] / "runs" / "0.1.0"


def test_a_scored_pair_is_one_call() -> None:
    translator = random_translator()
    source, target = "w1 w2 w3", "w4 w5"
    (before,) = translator.score([(source, target)])
    with transduce.record_tensors(translator.model) as observed:
        (score,) = translator.score([(source, target)])
    assert score == pytest.approx(before, abs=1e-4)
    (logits,), (top,), (memory,) = (
        observed.logits,
        observed.hidden["decoder"],
        observed.hidden["encoder"],
    )
    expected = torch.tensor([[*translator.target.encode(target), 3]])
    chosen = logits.log_softmax(-1).gather(-1, expected[..., None])
    assert chosen.sum().item() == pytest.approx(score, abs=1e-5)
    assert torch.allclose(translator.model.head(top), logits, atol=1e-5)
    assert memory.shape == (1, 4, 16)
    layer = [name for name in observed.hidden if name.startswith("decoder.layers.")][-1]
    (below,) = observed.hidden[layer]
    assert torch.allclose(translator.model.decoder.norm(below), top, atol=1e-5)  # type: ignore[operator, union-attr]
    (weights,) = observed.attention["decoder.layers.0.cross_attention"]
    assert torch.allclose(weights.sum(-1), torch.ones(weights.shape[:-1]), atol=1e-5)
    assert not any(x.requires_grad or x.is_inference() for x in (logits, top, memory, below))


def test_the_steps_of_a_greedy_search_are_one_pass() -> None:
    translator = random_translator()
    options = replace(translator.options, beam_size=1)
    (before,) = translator.predict([("w1 w2 w3",)], options)
    with transduce.record_tensors(translator.model) as observed:
        (answer,) = translator.predict([("w1 w2 w3",)], options)
    assert answer.text == before.text and answer.text
    steps = torch.cat(observed.logits, 1)
    with transduce.record_tensors(translator.model) as whole:
        list(translator.score([("w1 w2 w3", answer.text)]))
    n = whole.logits[0].shape[1]
    assert steps.shape[1] == n > 1
    assert torch.allclose(steps, whole.logits[0], atol=1e-4)


def test_a_language_model_in_one_pass_and_in_steps() -> None:
    torch.manual_seed(1)
    decoder = TransformerConfig(n_layers=2, n_heads=2, d_ff=32, dropout=0.0, norm_order="pre")
    model = build_decoder_only(DecoderOnlyConfig(d_model=16, decoder=decoder), 11).eval()
    ids = torch.tensor([[2, 5, 6, 7]])
    with torch.inference_mode(), transduce.record_tensors(model) as observed:
        expected = model(Padded.unpadded(ids))
        state = model.start()
        for i in range(4):
            model.step(Padded.unpadded(ids[:, i : i + 1]), state)
    assert torch.equal(observed.logits[0], expected)
    assert torch.allclose(torch.cat(observed.logits[1:], 1), expected, atol=1e-5)
    assert set(observed.hidden) == {"decoder", "decoder.layers.0", "decoder.layers.1"}
    assert torch.allclose(
        torch.cat(observed.hidden["decoder.layers.0"][1:], 1),
        observed.hidden["decoder.layers.0"][0],
        atol=1e-5,
    )
    assert observed.attention["decoder.layers.1.self_attention"][0].shape == (1, 2, 4, 4)


def test_a_classifier_gives_the_scores_of_its_labels() -> None:
    run = transduce.load(KEPT / "classification", "cpu")
    with transduce.record_tensors(run.model) as observed:
        (answer,) = run.predict(["a good hat"], kind=transduce.LabelPrediction)
    (logits,) = observed.logits
    assert sorted(logits.softmax(-1)[0].tolist()) == pytest.approx(
        sorted(answer.probabilities.values()), abs=1e-5
    )
    assert observed.hidden["encoder"][0].shape[0] == 1


def test_nothing_is_recorded_afterwards() -> None:
    translator = random_translator()
    with transduce.record_tensors(translator.model) as observed:
        pass
    translator.predict([("w1",)], DecodingOptions())
    assert (
        not observed.logits
        and not any(observed.hidden.values())
        and not any(observed.attention.values())
    )

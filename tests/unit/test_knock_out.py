"""Answers without a head or a source token, computed in another way."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from helpers.random_translator import random_translator
from transduce.errors import SettingError
from transduce.explain.knock_out import explain_without, knock_out
from transduce.explain.parts import NOTHING, KnockOut
from transduce.explain.tasks import explain_translation
from transduce.nn.attention import record_attention
from transduce.sequence import Padded
from transduce.text import BOS, PAD

TEXT = "w3 w1 w4 w1 w5"
HEADS = ("encoder.layers.1.self_attention:1", "decoder.layers.0.cross_attention:2")
TARGET = Padded.from_rows([[BOS, 7, 8, 9]], PAD)
RNN = {"kind": "recurrent"}


def source(*changed: int) -> Padded:
    """Six tokens; those of the given indices are others."""
    return Padded.from_rows([[20 + i if i in changed else 5 + i for i in range(6)]], PAD)


@torch.inference_mode()
def logits(model: Any, read: Padded, what: KnockOut = NOTHING) -> Tensor:
    with knock_out(model, what):
        result: Tensor = model(read, TARGET)
    return result


def test_a_head_left_out_is_one_whose_output_columns_are_zero() -> None:
    model = random_translator().model
    changed = copy.deepcopy(model)
    with torch.no_grad():
        changed.encoder.layers[1].self_attention.output.weight[:, :8] = 0.0
        changed.decoder.layers[0].cross_attention.output.weight[:, 8:] = 0.0
    whole, left_out = logits(model, source()), logits(model, source(), KnockOut(HEADS))
    torch.testing.assert_close(left_out, logits(changed, source()))
    assert not torch.allclose(left_out, whole, atol=1e-3)
    assert torch.equal(logits(model, source()), whole), "nothing stays behind"


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "alibi"])
def test_a_hidden_token_changes_nothing_by_what_it_is(positions: str) -> None:
    stack = {"positions": positions}
    model = random_translator(stack, stack).model
    what = KnockOut(tokens=(2, 5))
    result = logits(model, source(), what)
    torch.testing.assert_close(logits(model, source(1, 4), what), result)
    assert not torch.allclose(logits(model, source(2), what), result, atol=1e-3)
    assert not torch.allclose(logits(model, source()), result, atol=1e-3)
    with record_attention(model) as observed:
        torch.testing.assert_close(logits(model, source(), what), result)  # spelled out
    reads = {k: v for k, (v,) in observed.items() if not k.startswith("decoder") or "cross" in k}
    assert len(reads) == 4
    for weights in reads.values():
        assert weights[..., [1, 4]].eq(0).all()
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))


def test_positions_of_the_other_tokens_stay() -> None:
    model = random_translator().model
    shorter = Padded.from_rows([[5, 7, 8, 9, 10]], PAD)
    hidden = logits(model, source(), KnockOut(tokens=(2,)))
    assert not torch.allclose(hidden, logits(model, shorter), atol=1e-3)
    model = random_translator({"positions": "none"}).model
    hidden = logits(model, source(), KnockOut(tokens=(2,)))
    torch.testing.assert_close(hidden, logits(model, shorter))


def test_the_answer_and_the_search_are_without_it_too() -> None:
    translator = random_translator()
    before = translator.predict([(TEXT,)])[0]
    what = KnockOut(HEADS, (1,))
    result = explain_without(explain_translation, translator, (TEXT,), what)
    for one in result.attention:
        if one.columns == "source":
            assert not one.weights[..., 0].any()
    assert not result.by_hand and result.search is not None
    with knock_out(translator.model, what):
        assert translator.predict([(TEXT,)])[0].text == result.answer
    probability = torch.tensor([step.probability for step in result.steps]).log().sum()
    (won,) = [node for node in result.search.nodes if node.fate == "won"]
    assert float(probability) == pytest.approx(won.log_prob, abs=1e-3)
    after = translator.predict([(TEXT,)])[0]
    assert (after.text, after.score) == (before.text, before.score)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (
            KnockOut(("encoder.layers.0:1",)),
            "no such attention; try encoder.layers.0.self_attention",
        ),
        (KnockOut(("encoder.layers.0.self_attention:3",)), "are 1 to 2"),
        (KnockOut(("encoder.layers.0.self_attention:0",)), "are 1 to 2"),
        (KnockOut(("encoder.layers.0.self_attention",)), "is not NAME:HEAD, such as encoder"),
        (KnockOut(tokens=(7,)), "token 7 is not one of the 6 tokens"),
        (KnockOut(tokens=(0,)), "token 0 is not one"),
        (KnockOut(tokens=(1, 2, 3, 4, 5, 6)), "keep one"),
    ],
)
def test_parts_that_are_not_there_are_named(what: KnockOut, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        explain_without(explain_translation, random_translator(), (TEXT,), what)


def test_other_models_have_no_such_parts() -> None:
    recurrent = random_translator(RNN, RNN, trained=False)
    with pytest.raises(SettingError, match="no attention with heads"):
        explain_without(explain_translation, recurrent, (TEXT,), KnockOut(HEADS))
    with pytest.raises(SettingError, match="are Transformers"):
        explain_without(explain_translation, recurrent, (TEXT,), KnockOut(tokens=(1,)))
    long = " ".join(["w1"] * 30)
    with pytest.raises(SettingError, match="in 3 pieces"):
        explain_without(explain_translation, random_translator(), (long,), KnockOut(tokens=(1,)))
    with pytest.raises(SettingError, match="of a translation only"):
        explain_without(explain_translation, object(), (TEXT,), KnockOut(tokens=(1,)))

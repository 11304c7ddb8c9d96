"""Credit: shares that add up to the true difference of logits, on every shape of Transformer."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from helpers.random_predictors import (
    LEARNED,
    random_answerer,
    random_classifier,
    random_filler,
)
from helpers.random_translator import random_translator
from transduce.errors import SettingError
from transduce.explain.credit import Choice, credit_of
from transduce.explain.knock_out import explain_without
from transduce.explain.parts import Credit, KnockOut
from transduce.explain.tasks import (
    explain_classification,
    explain_masked_language_model,
    explain_question_answering,
    explain_translation,
)
from transduce.models.decoder_only import DecoderOnlyConfig, build_decoder_only
from transduce.nn.stack_configs import TransformerConfig
from transduce.sequence import Padded
from transduce.text import SymbolsConfig

PRE = {"norm_order": "pre"}
UNTRAINED: dict[str, Any] = {"trained": False, "decoding": {"max_length_extra": 4}}
SHAPES: dict[str, dict[str, Any]] = {
    "paper": {},
    "pre-norm, rotary, GELU": {
        side: {**PRE, "positions": "rotary", "activation": "gelu"}
        for side in ("encoder", "decoder")
    },
    "RMSNorm, SwiGLU, ALiBi": UNTRAINED
    | {
        side: {**PRE, "norm": "rms", "activation": "swiglu", "positions": "alibi"}
        for side in ("encoder", "decoder")
    },
    "RMSNorm behind, GEGLU, relative positions": UNTRAINED
    | {
        side: {"norm": "rms", "activation": "geglu", "positions": "relative"}
        for side in ("encoder", "decoder")
    },
    "learned positions, norm of embeddings, GELU of GPT-2, biases of the output": {
        "encoder": {"positions": "learned", "embedding_norm": True, "activation": "gelu-tanh"},
        "decoder": {"positions": "learned", "embedding_norm": True, "activation": "silu"},
        "tie": "none",
        "output_bias": True,
        "scale_embeddings": False,
    },
    "SSRU": {"decoder": {"kind": "ssru", "n_heads": 2, "d_ff": 32, "n_layers": 2}},
}
TEXT = "w3 w1 w4 w1 w5 w9"


def parts_of(credit: Credit) -> list[float]:
    tokens = [*credit.source, *credit.source_positions, *credit.read, *credit.read_positions]
    return [*tokens, credit.earlier, credit.biases]


def check(credit: Credit) -> None:
    """Both sums are the difference, and heads sum up to what their attention writes."""
    near = pytest.approx(credit.difference, abs=1e-4, rel=1e-4)
    assert sum(parts_of(credit)) == near
    assert sum(credit.writes.values()) == near
    for name, heads in credit.heads.items():
        assert sum(heads) == pytest.approx(credit.writes[name], abs=1e-4), name


@pytest.mark.parametrize("name", SHAPES)
def test_shares_add_up_to_the_true_difference(name: str) -> None:
    translator = random_translator(**SHAPES[name])
    explanation = explain_translation(translator, (TEXT,))
    assert len(explanation.credit) == len(explanation.steps) > 0
    for credit, step in zip(explanation.credit, explanation.steps, strict=True):
        check(credit)
        likely = dict(step.guesses)
        assert credit.difference == pytest.approx(
            float(torch.log(torch.tensor(step.probability / likely[credit.rival]))), abs=1e-3
        )
    moved = [abs(share) for credit in explanation.credit for share in credit.source]
    assert max(moved) > 1e-3


POOLED: dict[str, dict[str, Any]] = {
    "first, dense layer": {"pooling": "first"},
    "mean, segments, post-norm": {
        "pooling": "mean",
        "segments": True,
        "encoder": {**LEARNED, "norm_order": "post", "positions": "sinusoidal"},
    },
    "max, RMSNorm, SwiGLU": {
        "pooling": "max",
        "pooler_activation": "relu",
        "encoder": {**LEARNED, "norm": "rms", "activation": "swiglu"},
    },
}


@pytest.mark.parametrize("name", POOLED)
def test_credit_of_a_label(name: str) -> None:
    classifier = random_classifier(("good", "bad", "none"), **POOLED[name])
    explanation = explain_classification(classifier, ("the cat sat on the mat",))
    (credit,) = explanation.credit
    check(credit)
    (_, best), (rival, second), _ = explanation.labels
    assert credit.rival == rival
    assert credit.difference == pytest.approx(math.log(best / second), abs=1e-3)
    assert len(credit.source) == len(explanation.sequences["text"]) > 6
    assert max(map(abs, credit.source)) > 1e-3
    assert not credit.read
    assert list(credit.heads) == [f"encoder.layers.{i}.self_attention" for i in range(2)]


def test_credit_of_each_mask_and_of_segments() -> None:
    filler = random_filler(SymbolsConfig(), segments=True)
    explanation = explain_masked_language_model(filler, ("the <mask> sat on <mask>",))
    assert len(explanation.credit) == 2
    for credit in explanation.credit:
        check(credit)
        assert len(credit.source) == len(explanation.sequences["text"]) == 7
    plain = random_filler(SymbolsConfig())
    (bare,) = explain_masked_language_model(plain, ("the <mask>",)).credit
    check(bare)
    embedding = filler.model.front_end.segments
    assert embedding is not None
    with torch.no_grad():
        embedding.weight.zero_()
    table: Any = filler.model.encoder.positions.table
    with torch.no_grad():
        table.weight.zero_()
    (still,) = explain_masked_language_model(filler, ("the <mask>",)).credit
    assert still.source_positions == pytest.approx([0.0] * 4, abs=1e-6)


def test_credit_of_start_and_end_of_an_answer() -> None:
    question = ("the cat", "a bird sang in the tree on the mat")
    explanation = explain_question_answering(random_answerer(), question)
    start, end = explanation.credit
    check(start)
    check(end)
    tokens = {f"{i} {token}" for i, token in enumerate(explanation.sequences["text"])}
    assert {start.rival, end.rival} <= tokens


def test_a_text_cnn_and_a_single_label_have_none() -> None:
    cnn = random_classifier(encoder={"kind": "text-cnn", "widths": [2]}, pooling="max")
    assert explain_classification(cnn, ("the cat sat",)).credit == ()
    alone = random_classifier(("good",))
    assert explain_classification(alone, ("the cat sat",)).credit == ()


def test_a_head_left_out_has_no_share() -> None:
    translator = random_translator()
    head = "decoder.layers.0.cross_attention"
    explanation = explain_without(
        explain_translation, translator, (TEXT,), KnockOut((f"{head}:2",), ())
    )
    for credit in explanation.credit:
        check(credit)
        assert credit.heads[head][1] == 0.0


def test_a_decoder_alone_and_tokens_that_are_not_shown() -> None:
    torch.manual_seed(0)
    stack = TransformerConfig(n_layers=2, n_heads=2, d_ff=24, positions="learned")
    model = build_decoder_only(DecoderOnlyConfig(d_model=16, decoder=stack), 12).eval()
    row = Padded.from_rows([[2, 5, 6, 7, 8]])
    (whole,) = credit_of(model, lambda: model(row), [Choice(4, 5, 6)], lambda ids: ["x"])
    (shown,) = credit_of(model, lambda: model(row), [Choice(4, 5, 6)], lambda ids: ["x"], 2)
    check(whole)
    check(shown)
    assert not whole.source
    assert whole.read[2:] == shown.read
    assert shown.earlier == pytest.approx(sum(whole.read[:2]) + sum(whole.read_positions[:2]))


def test_parameters_and_results_are_as_before() -> None:
    translator = random_translator()
    model = translator.model
    before = [p.requires_grad for p in model.parameters()]
    first = explain_translation(translator, (TEXT,))
    assert [p.requires_grad for p in model.parameters()] == before
    assert all(p.grad is None for p in model.parameters())
    assert explain_translation(translator, (TEXT,)).credit == first.credit


def test_a_recurrent_stack_is_refused_by_name() -> None:
    recurrent = {"kind": "recurrent", "cell": "gru", "n_layers": 1}
    translator = random_translator(recurrent, recurrent, trained=False)
    assert explain_translation(translator, (TEXT,)).credit == ()
    with pytest.raises(SettingError, match="the encoder is a RecurrentEncoder"):
        credit_of(translator.model, lambda: torch.zeros(1, 1, 4), [], lambda ids: [])

"""Explanations: what they show is what the model computed."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import transduce
from helpers.random_translator import random_translator
from transduce.decoding.hypotheses import length_penalty
from transduce.decoding.options import DecodingOptions
from transduce.decoding.shortlist import Shortlist
from transduce.decoding.step_search import EncoderDecoderSearch, padded_ids
from transduce.errors import SettingError
from transduce.explain.explanation import Explanation
from transduce.explain.parts import HeadVectors, PatternName, head_pattern
from transduce.explain.recording import without_positions
from transduce.explain.report import report_of
from transduce.explain.tasks import explain_translation
from transduce.nn.attention import record_attention
from transduce.sequence import Padded
from transduce.tasks import TASKS
from transduce.text import BOS, EOS

TEXT = "w3 w1 w4 w1 w5"
RNN = {"kind": "recurrent"}
NAMED = get_args(PatternName)


def explained(text: str = TEXT, **model: Any) -> Explanation:
    return explain_translation(random_translator(**model), (text,))


def softmax(scores: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    powers: NDArray[np.floating[Any]] = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def weights_by_hand(head: HeadVectors, causal: bool) -> NDArray[np.floating[Any]]:
    """Equation (1), from the vectors that an explanation gives."""
    query, key = head.vectors.query.astype(float), head.vectors.key.astype(float)
    scores = query @ key.T / math.sqrt(query.shape[1])
    if head.bias is not None:
        scores = scores + head.bias
    if causal:
        scores = np.where(np.tri(*scores.shape, dtype=bool), scores, -np.inf)
    return softmax(scores)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "alibi", "none"])
def test_vectors_of_a_head_give_its_weights(positions: str) -> None:
    stack = {"positions": positions}
    one = explained(encoder=stack, decoder=stack)
    kinds = {one.attention[head.attention].rows for head in one.by_hand}
    assert kinds == {"source", "read", "written"}
    for head in one.by_hand:
        attention = one.attention[head.attention]
        result = weights_by_hand(head, attention.causal)
        np.testing.assert_allclose(result, attention.weights[head.head], atol=1e-5)
        assert (head.without_positions is None) == (positions == "none")


def test_weights_are_those_of_the_same_pass() -> None:
    translator = random_translator()
    one = explain_translation(translator, (TEXT,))
    source = [*translator.source.encode(TEXT), EOS]
    (ids,) = translator.translate([TEXT])[0].candidates[0].parts
    with torch.inference_mode(), record_attention(translator.model) as maps:
        translator.model(Padded.from_rows([source]), Padded.from_rows([[BOS, *ids]]))
    assert [a.name for a in one.attention] == list(maps)
    for attention in one.attention:
        (recorded,) = maps[attention.name]
        assert np.array_equal(attention.weights, recorded[0].numpy())
        rows, columns = one.sequences[attention.rows], one.sequences[attention.columns]
        assert attention.weights.shape[1:] == (len(rows), len(columns))


def test_steps_multiply_to_the_probability_of_the_output() -> None:
    translator = random_translator()
    one = explain_translation(translator, (TEXT,))
    whole = sum(math.log(step.probability) for step in one.steps)
    assert whole == pytest.approx(translator.translate([TEXT])[0].log_prob, abs=1e-4)
    assert [step.written for step in one.steps] == one.sequences["written"]
    assert one.steps[-1].written == "</s>"


def test_the_last_layer_says_what_the_steps_say() -> None:
    one = explained()
    assert len(one.layers) == 2
    for step, guesses in zip(one.steps, one.layers[-1], strict=True):
        assert guesses[0][0] == step.guesses[0][0]
        assert guesses[0][1] == pytest.approx(step.guesses[0][1], abs=1e-5)


@pytest.mark.parametrize("penalty", ["none", "mean", "gnmt"])
def test_the_tree_is_the_search(penalty: str) -> None:
    options = {"beam_size": 3, "length_penalty": penalty}
    translator = random_translator(decoding=options)
    with torch.no_grad():
        translator.model.head.weight[EOS, 0] = 0.4  # ends are likely, and some of them are cut
    one = explain_translation(translator, (TEXT,))
    tree = one.search
    assert tree is not None
    depth = [0]
    for number, node in enumerate(tree.nodes[1:], 1):
        parent = tree.nodes[node.parent]
        assert node.parent < number and parent.fate == "kept"
        assert node.log_prob <= parent.log_prob
        depth.append(depth[node.parent] + 1)
    for level in range(1, max(depth) + 1):
        nodes = [node for node, at in zip(tree.nodes, depth, strict=True) if at == level]
        nodes.sort(key=lambda node: -node.log_prob)
        assert [node.fate for node in nodes].count("kept") <= 3
        assert not any(node.fate in ("ended", "won") for node in nodes[3:])
    assert any(node.token == "</s>" and node.fate == "cut" for node in tree.nodes)
    (won,) = [n for n, node in enumerate(tree.nodes) if node.fate == "won"]
    best = translator.translate([TEXT])[0]
    assert tree.nodes[won].score == pytest.approx(best.score, abs=1e-5)
    assert tree.nodes[won].log_prob == pytest.approx(best.log_prob, abs=1e-4)
    for node, at in zip(tree.nodes, depth, strict=True):
        if node.score is not None:
            assert node.score == pytest.approx(
                node.log_prob / length_penalty(translator.options, at), abs=1e-5
            )
            assert node.score <= best.score + 1e-6
    tokens = []
    while won > 0:
        tokens.append(tree.nodes[won].token)
        won = tree.nodes[won].parent
    assert tokens[::-1] == one.sequences["written"]


LISTED = Shortlist(
    np.arange(4 * 40).reshape(40, 4) % 40, np.array([5, 6, 7, 8, 30, 31, 33]), joint=True, size=40
)


@pytest.mark.parametrize(
    "options",
    [
        {"coverage_penalty": 2.0, "stop": "exact"},
        {"coverage_penalty": 1.0, "length_penalty": "mean"},
        {"shortlist": True},
        {"shortlist": True, "beam_size": 1, "repetition_penalty": 1.5},
        {"prefix": "w7 w3", "length_penalty": "none"},
        {"constraints": ("w9", ("w2", "w8"))},
        {"avoid": ("w4", "w12"), "min_length_ratio": 1.0},
        {"no_repeat_ngram": 1, "min_length": 4},
        {"repetition_penalty": 3.0},
        {"beam_size": 4, "beam_groups": 2, "diversity": 1.0},
        {"beam_size": 3, "n_best": 3},
        {"stop": "present", "free_end": True, "max_length_ratio": 0.5, "max_length_extra": 0},
        {
            "method": "sample",
            "seed": 5,
            "temperature": 1.5,
            "top_k": 9,
            "top_p": 0.9,
            "min_p": 0.01,
        },
    ],
    ids=lambda options: "-".join(options),
)
def test_options_change_the_tree_as_they_change_the_translation(options: dict[str, Any]) -> None:
    made = random_translator()
    with torch.no_grad():
        made.model.head.weight[EOS, 0] = 0.5
    search = EncoderDecoderSearch(made.model, padded_ids, shortlist=LISTED)
    translator = replace(made, options=DecodingOptions(**options), backend=search)
    before = translator.translate([TEXT])[0]
    one = explain_translation(translator, (TEXT,))
    assert one.answer == before.text == translator.translate([TEXT])[0].text
    tree = one.search
    assert tree is not None
    (won,) = [node for node in tree.nodes if node.fate == "won"]
    assert won.score == pytest.approx(before.score, abs=1e-5)
    assert max(n.score for n in tree.nodes if n.score is not None) <= before.score + 1e-5
    tokens, node = [], won
    while node.parent >= 0:
        tokens.append(node.token)
        node = tree.nodes[node.parent]
    assert tokens[::-1] == one.sequences["written"][: len(tokens)]
    assert len(tokens) >= len(one.sequences["written"]) - 1
    json.dumps(one.as_dict(), allow_nan=False)


def test_these_options_change_the_search() -> None:
    made = random_translator()
    with torch.no_grad():
        made.model.head.weight[EOS, 0] = 0.5
    plain = explain_translation(made, (TEXT,)).search
    assert plain is not None
    for options in ({"coverage_penalty": 2.0, "stop": "exact"}, {"shortlist": True}):
        search = EncoderDecoderSearch(made.model, padded_ids, shortlist=LISTED)
        changed = replace(made, options=DecodingOptions(**options), backend=search)
        tree = explain_translation(changed, (TEXT,)).search
        assert tree is not None
        scores = [{n.score for n in one.nodes if n.fate == "won"} for one in (plain, tree)]
        assert scores[0] != scores[1], options


def test_one_fixed_vector_instead_of_attention() -> None:
    fixed = {**RNN, "context": {"kind": "fixed"}}
    one = explained(encoder=RNN, decoder=fixed, trained=False)
    assert one.attention == () and one.by_hand == ()
    assert one.vectors["context"].shape == (16,)
    assert one.stacks["decoder"].context == "fixed"
    assert one.steps and report_of(one)


@pytest.mark.parametrize("kind", ["dot", "general", "additive"])
def test_one_row_of_alpha_for_each_step(kind: str) -> None:
    one = explained(encoder=RNN, decoder={**RNN, "context": {"kind": kind}}, trained=False)
    (attention,) = one.attention
    assert attention.weights.shape == (1, len(one.steps), 6)
    np.testing.assert_allclose(attention.weights.sum(-1), 1, atol=1e-5)
    assert one.stacks["decoder"].context == kind


def test_convolutions_have_layers() -> None:
    one = explained(encoder={"kind": "convolution", "n_layers": 3})
    assert one.stacks["encoder"].kind == "convolution"
    assert {attention.rows for attention in one.attention} == {"read", "written"}


def test_a_blank_text_has_an_empty_explanation() -> None:
    one = explained(" ")
    assert one.answer == "" and one.steps == () and one.attention == ()
    assert report_of(one) and one.page()


def test_the_first_piece_of_a_long_text(caplog: pytest.LogCaptureFixture) -> None:
    one = explained(" ".join(["w1"] * 30))
    assert "translated in" in caplog.text and "the first is explained" in caplog.text
    assert len(one.sequences["source"]) <= 13


def test_the_layout_is_json() -> None:
    one = replace(explained(), run="a run")
    result = json.loads(json.dumps(one.as_dict(), allow_nan=False))
    assert result["format"] == 1 and result["run"] == "a run"
    assert result["inputs"] == {"source": TEXT}
    name, value = result["attention"][0]["patterns"][0]
    assert name in NAMED and 0 <= value <= 1
    assert result["steps"][0]["guesses"][0][1] == pytest.approx(
        one.steps[0].guesses[0][1], rel=1e-4
    )
    assert result["shapes"]["head"] == [1, len(one.steps), 40]


def test_nothing_stays_behind() -> None:
    translator = random_translator(encoder={"positions": "learned"})
    stacks = [m for m in translator.model.modules() if hasattr(m, "positions")]
    kinds = [type(m.positions) for m in stacks]
    explain_translation(translator, (TEXT,))
    for module in translator.model.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks
        assert getattr(module, "weights", None) is None
    with pytest.raises(RuntimeError), without_positions(translator.model):
        raise RuntimeError
    assert kinds == [type(m.positions) for m in stacks]


def test_a_terminal_obeys_no_token() -> None:
    one = explained()
    one = replace(one, inputs={"source": "a\x1b[31mb\x00"}, answer="x\x07y")
    assert not {"\x1b", "\x00", "\x07"} & set(report_of(one))


EYE, ONES = np.eye(6), np.ones((6, 6)) / 6
NAMES = ["a", "b", ",", "c", "d", "</s>"]


@pytest.mark.parametrize(
    ("weights", "name", "value"),
    [
        (np.eye(6, k=-1) + np.eye(6)[:1].T @ np.eye(6)[:1], "previous token", 1.0),
        (EYE, "current token", 1.0),
        (np.eye(6, k=1), "next token", 1.0),
        (np.tile(np.eye(6)[0], (6, 1)), "first token", 1.0),
        (np.tile(np.eye(6)[2], (6, 1)), "punctuation", 1.0),
        (np.tile(np.eye(6)[5], (6, 1)), "punctuation", 1.0),
        (ONES, "spread", 1.0),
        (np.eye(6)[[3, 4, 3, 0, 1, 1]], "focused", 1.0),
    ],
)
def test_heads_are_named_by_measurement(weights: Any, name: str, value: float) -> None:
    result = head_pattern(weights, NAMES, itself=True)
    assert result.name == name and result.value == pytest.approx(value)


def test_a_causal_row_is_measured_against_what_it_can_see() -> None:
    even = np.tril(np.ones((6, 6)))
    even /= even.sum(1, keepdims=True)
    names = list("abcdef")
    assert head_pattern(even[3:], names, itself=False, causal=False).name in ("mixed", "spread")
    assert head_pattern(even, names, itself=True, causal=True).name == "spread"
    assert head_pattern(np.ones((1, 1)), ["a"], itself=True, causal=True).name == "single token"


def test_other_sequences_have_no_neighbours() -> None:
    assert head_pattern(EYE[:5], NAMES, itself=False).name == "focused"


def test_options_without_end_leave_no_winner() -> None:
    options = DecodingOptions(beam_size=2, max_length_extra=0, max_length_ratio=0.2)
    made = random_translator()
    translator = replace(made, options=options)
    one = explain_translation(translator, (TEXT,))
    assert one.answer == translator.translate([TEXT])[0].text


KEPT = Path(__file__).parents[1] / "runs" / "0.1.0"


def test_a_task_without_an_explanation_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    row = TASKS["classification"]._replace(explain=None)
    monkeypatch.setitem(TASKS, "classification", row)  # type: ignore[misc]
    run = transduce.load(KEPT / "classification", "cpu")
    with pytest.raises(SettingError, match="'classification' has no explanation"):
        run.explain("ab")

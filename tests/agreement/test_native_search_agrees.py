"""The native engine behind a translator: the outputs and scores of PyTorch, option by option."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from ctypes import c_int32
from itertools import product
from typing import Any, get_args

import numpy as np
import pytest
import torch

from helpers.native import needs_native
from helpers.predictors import native_search, natively
from helpers.random_translator import random_translator, some_lines
from helpers.same_translations import SHAPES as COMMON_SHAPES
from helpers.same_translations import SHORT, assert_same, both
from transduce import DecodingOptions, SettingError, TransduceError, Translation
from transduce.decoding.shortlist import Shortlist
from transduce.engine.inference import LENGTH_PENALTIES, STOPS, search
from transduce.engine.library import SearchOptions
from transduce.engine.model import NativeModel
from transduce.nn.precision import Precision
from transduce.tasks.translation.translator import Translator
from transduce.text import BOS, EOS, PAD

pytestmark = needs_native

SHAPES: dict[str, dict[str, Any]] = {
    **COMMON_SHAPES,
    "alibi": both(positions="alibi", embedding_norm=True, norm_epsilon=1e-3),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape(shape: str) -> None:
    ours, lines = random_translator(**SHAPES[shape]), some_lines()
    native = natively(ours)
    for options in (
        DecodingOptions(beam_size=1, **SHORT),
        DecodingOptions(beam_size=4, n_best=4, length_penalty="mean", **SHORT),
        DecodingOptions(beam_size=3, n_best=2, prefix="w1", no_repeat_ngram=2, **SHORT),
    ):
        translations = ours.translate(lines, options)
        assert len({len(one.tokens) for one in translations}) > 2  # some end by themselves
        assert_same(translations, native.translate(lines, options))


PLAIN = [
    {"beam_size": beam, "n_best": n, "stop": stop, "length_penalty": penalty}
    for (beam, n), stop, penalty in product(
        [(1, 1), (4, 1), (4, 4)], ["first", "exact", "present"], ["none", "mean", "gnmt"]
    )
]
LENGTHS = [
    {"min_length": 4, "min_length_ratio": 0.8},
    {"max_length_ratio": 0.0, "max_length_extra": 0},
    {"max_length_ratio": 0.0, "max_length_extra": 1, "n_best": 2},
    {"free_end": True, "n_best": 3},
    {"free_end": True, "max_length_ratio": 0.0, "max_length_extra": 2, "length_penalty": "mean"},
    {"alpha": 2.5, "n_best": 2, "max_length_ratio": 2.0},
    {"beam_size": 5, "n_best": 2, "minimum_risk": "bleu"},
    {"batch_tokens": 10, "n_best": 4},
]
FILTERED = [
    {"prefix": "w3 w4", "n_best": 2},
    {"constraints": ("w5 w6", "w7")},
    {"avoid": ("w1", "w2 w3")},
    {"coverage_penalty": 0.3, "n_best": 2},
    {"beam_groups": 2, "n_best": 4},
    {"no_repeat_ngram": 2},
    {"repetition_penalty": 1.5},
    {"method": "sample", "n_best": 3, "repetition_penalty": 1.5},
]
SAMPLED = [
    {"method": "sample", **options}
    for options in [
        {"n_best": 3, "seed": 7},
        {"n_best": 3, "top_k": 5},
        {"n_best": 4, "top_p": 0.7, "stop": "exact"},
        {"n_best": 4, "top_k": 9, "top_p": 0.8, "temperature": 1.4, "length_penalty": "mean"},
        {"n_best": 3, "min_p": 0.2, "top_k": 1000, "stop": "present"},
        {"n_best": 2, "min_p": 1.0},
        {"n_best": 3, "temperature": 1e-300},
        {"n_best": 3, "temperature": 1e300, "min_length": 4},
        {"n_best": 3, "max_length_ratio": 0.0, "max_length_extra": 0},
        {"n_best": 3, "max_length_ratio": 0.0, "max_length_extra": 2, "free_end": True},
        {"minimum_risk": "chrf", "candidates": 4, "n_best": 2},
    ]
]


@pytest.mark.parametrize("options", PLAIN + LENGTHS + FILTERED + SAMPLED, ids=str)
def test_every_option(options: dict[str, Any]) -> None:
    ours, lines = random_translator(**both(norm_order="pre")), some_lines()
    asked = DecodingOptions(**{"beam_size": 4, **SHORT, **options})
    assert_same(ours.translate(lines, asked), natively(ours).translate(lines, asked))


def shortlisted(likely: int) -> Translator:
    """A translator with a shortlist of so many tokens for each source token, -1 among them."""
    ours = random_translator(**both(norm_order="pre"))
    size = ours.target.size
    table = (np.arange(size)[:, None] * 7 + np.arange(likely)) % (size + 1) - 1
    listed = Shortlist(table, np.array([4, 9]), joint=False, size=size)
    search: Any = ours.backend
    return dataclasses.replace(ours, backend=dataclasses.replace(search, shortlist=listed))


@pytest.mark.parametrize("options", [*PLAIN[::4], *LENGTHS[:6], *SAMPLED[:5]], ids=str)
def test_every_option_with_a_shortlist(options: dict[str, Any]) -> None:
    ours, lines = shortlisted(5), some_lines()
    asked = DecodingOptions(**{"beam_size": 4, **SHORT, **options, "shortlist": True})
    native = natively(ours)
    assert native_search(native).unsupported(asked) is None
    restricted = ours.translate(lines, asked)
    assert_same(restricted, native.translate(lines, asked))
    whole = ours.translate(lines, dataclasses.replace(asked, shortlist=False))
    assert asked.max_length_extra == 0 or restricted != whole


@pytest.mark.parametrize("precision", get_args(Precision))
def test_a_shortlist_of_all_tokens_changes_nothing(precision: Precision) -> None:
    ours, lines = shortlisted(60), some_lines()
    native = natively(ours, precision=precision)
    options = DecodingOptions(beam_size=4, n_best=4, **SHORT)
    short = dataclasses.replace(options, shortlist=True)
    assert bits(native.translate(lines, short)) == bits(native.translate(lines, options))


@pytest.mark.parametrize("precision", get_args(Precision))
def test_shortlists_of_a_batch_do_not_touch_each_other(precision: Precision) -> None:
    native, lines = natively(shortlisted(5), precision=precision), some_lines()
    options = DecodingOptions(beam_size=4, n_best=4, **SHORT, shortlist=True)
    alone = [answer for line in lines for answer in native.translate([line], options)]
    assert bits(native.translate(lines, options)) == bits(alone)


@pytest.mark.parametrize("ids", [[4, EOS], [EOS, EOS], [BOS, 4], [EOS, 10**6], [-1, EOS]])
def test_malformed_shortlists_are_refused(ids: list[int]) -> None:
    with pytest.raises(MemoryError):
        search(made(random_translator()), [[5, EOS]], [[BOS]], [9], [0], RULES, None, [ids])


def test_plain_options_alone_are_searched_for_in_the_engine() -> None:
    search = native_search(natively(random_translator()))
    for options in (*PLAIN, *LENGTHS, *SAMPLED):
        assert search.unsupported(DecodingOptions(**{"beam_size": 5, **options})) is None
    for options in FILTERED[3:]:
        assert search.unsupported(DecodingOptions(**{"beam_size": 4, **options})) in options


@pytest.mark.parametrize(
    "truncated",
    [{}, {"top_p": 0.5}, {"top_p": 0.95}, {"top_k": 300}, {"top_k": 20}, {"min_p": 0.1}],
    ids=str,
)
def test_thousands_of_draws_from_many_tokens_are_the_same(truncated: dict[str, Any]) -> None:
    ours = random_translator(words=tuple(f"w{i}" for i in range(700)))
    lines = some_lines()[:6]
    options = DecodingOptions(method="sample", n_best=50, temperature=2.0, **truncated, **SHORT)
    drawn, differing = 0, 0
    result = zip(
        ours.translate(lines, options), natively(ours).translate(lines, options), strict=True
    )
    for each in result:
        own, other = ({c.parts: c.score for c in one.candidates} for one in each)
        drawn += sum(len(part) for parts in own for part in parts)
        differing += len(own.keys() - other)
        same = own.keys() & other
        assert [other[one] for one in same] == pytest.approx([own[one] for one in same], abs=1e-4)
    assert drawn > 2000
    assert differing <= 1  # rounding at a border of the distribution


@pytest.mark.parametrize("method", ["beam", "sample"])
def test_padding_and_beginning_never_come_however_likely(method: Any) -> None:
    ours, lines = random_translator(trained=False), some_lines()
    options = DecodingOptions(method=method, beam_size=4, n_best=4, length_penalty="mean", **SHORT)
    translations = natively(ours).translate(lines, options)
    assert_same(ours.translate(lines, options), translations)
    for one in translations:
        for candidate in one.candidates:
            assert not {PAD, BOS} & {token for part in candidate.parts for token in part}


def test_a_beam_wider_than_the_vocabulary() -> None:
    ours, lines = random_translator(words=("w0", "w1")), ["w0", "w0 w1 w1", "w1 w1 w1 w0"]
    options = DecodingOptions(beam_size=7, n_best=7, length_penalty="mean", **SHORT)
    assert_same(ours.translate(lines, options), natively(ours).translate(lines, options))


def bits(found: Sequence[Translation]) -> list[Any]:
    return [[(c.parts, c.log_prob, c.score) for c in one.candidates] for one in found]


@pytest.mark.parametrize("precision", get_args(Precision))
@pytest.mark.parametrize(
    "settings",
    [
        {"beam_size": 1},
        {"beam_size": 4, "n_best": 4},
        {"beam_size": 4, "prefix": "w3 w4"},
        {"beam_size": 4, "constraints": ("w5 w6", "w7")},
        {"method": "sample", "n_best": 2},
        {"method": "sample", "top_p": 0.8, "top_k": 9},
    ],
    ids=str,
)
def test_scores_are_the_same_to_the_bit_in_every_batch(
    precision: Precision, settings: dict[str, Any]
) -> None:
    native = natively(random_translator(d_model=72), precision=precision)
    lines = [line for line in some_lines(60) if line.strip()]
    options = DecodingOptions(**settings, **SHORT)
    together = bits(native.translate(lines, options))
    if options.method == "beam":  # samples depend on the number of the line
        assert bits(native.translate(lines[::-1], options))[::-1] == together
    alone = [native.translate([line], options, number) for number, line in enumerate(lines)]
    assert [bits(result)[0] for result in alone] == together
    for tokens in (13, 40, 200):
        few = dataclasses.replace(options, batch_tokens=tokens)
        assert bits(native.translate(lines, few)) == together


@pytest.mark.parametrize("precision", get_args(Precision))
def test_constraints_of_a_line_change_no_bit_of_others(precision: Precision) -> None:
    native = natively(random_translator(d_model=72), precision=precision)
    lines = [line for line in some_lines(40) if line.strip()]
    plain = DecodingOptions(beam_size=4, **SHORT)
    options = [
        dataclasses.replace(plain, constraints=("w5 w6",)) if i % 3 == 0 else plain
        for i in range(len(lines))
    ]
    mixed, alone = bits(native.translate(lines, options)), bits(native.translate(lines, plain))
    assert [row for i, row in enumerate(mixed) if i % 3] == [
        row for i, row in enumerate(alone) if i % 3
    ]
    assert mixed != alone


@pytest.mark.parametrize("method", ["beam", "sample"])
@pytest.mark.parametrize("threads", [2, 5])
def test_threads_change_nothing(threads: int, method: Any) -> None:
    native, lines = natively(random_translator()), some_lines()
    options = DecodingOptions(method=method, beam_size=3, n_best=3, **SHORT)
    alone = bits(native.translate(lines, options))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert bits(native.translate(lines, options)) == alone
    finally:
        torch.set_num_threads(before)


RULES = SearchOptions(
    beam=4,
    n_best=2,
    length_penalty=LENGTH_PENALTIES.index("gnmt"),
    alpha=0.6,
    stop=STOPS.index("exact"),
    eos=EOS,
    threads=1,
    n_forbidden=2,
    forbidden=(c_int32 * 2)(BOS, PAD),
)


def made(translator: Translator) -> NativeModel:
    model = native_search(natively(translator)).model
    assert isinstance(model, NativeModel)
    return model


def test_a_cancelled_sentence_leaves_and_others_do_not_notice() -> None:
    model = made(random_translator())
    sources = [[5, 6, 7, EOS], [8, EOS], [9, 10, EOS]]
    limits, least = [30, 30, 30], [30, 30, 30]
    prompts = [[BOS]] * 3
    right = search(model, sources, prompts, limits, least, RULES).hypotheses
    asked: list[int] = []

    def cancelled(sentence: int) -> bool:
        asked.append(sentence)
        return sentence == 1 and asked.count(1) == 3

    result = search(model, sources, prompts, limits, least, RULES, cancelled).hypotheses
    assert asked.count(1) == 3 and asked.count(0) >= 30
    assert (result[0], result[2]) == (right[0], right[2]) and result[1] == []


def test_an_error_of_a_callback_ends_the_search() -> None:
    def broken(sentence: int) -> bool:
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        search(made(random_translator()), [[5, EOS]], [[BOS]], [9], [0], RULES, broken)


@pytest.mark.parametrize("precision", get_args(Precision))
@pytest.mark.parametrize("options", [{}, {"no_repeat_ngram": 2}])
def test_scores_that_are_no_number_are_an_error(
    options: dict[str, Any], precision: Precision
) -> None:
    translator = random_translator()
    with torch.no_grad():  # finite weights whose logits are not
        for layer in translator.model.decoder.layers:  # type: ignore[union-attr]
            layer.feed_forward_residual.norm.weight.fill_(3e38)  # type: ignore[union-attr, operator]
    asked = DecodingOptions(**options)
    with pytest.raises(TransduceError, match=r"scores are NaN after 0 tokens; .*float32"):
        natively(translator, precision=precision).translate(["w1 w2"], asked)


def test_damaged_weights_and_other_models_are_refused() -> None:
    translator = random_translator()
    with torch.no_grad():
        translator.model.head.weight[3, 3] = float("nan")
    with pytest.raises(TransduceError, match=r"weight .* is not finite"):
        natively(translator)
    recurrent = {"kind": "recurrent", "dropout": 0.0}
    with pytest.raises(SettingError, match=r"does not support model.encoder.kind = 'recurrent'"):
        natively(random_translator(recurrent, recurrent, trained=False))


def test_learned_positions_bound_sources_and_outputs() -> None:
    ours, lines = random_translator(**both(positions="learned")), some_lines()
    options = DecodingOptions(beam_size=2, max_length_ratio=100.0, min_length=70)
    assert_same(ours.translate(lines, options), natively(ours).translate(lines, options))

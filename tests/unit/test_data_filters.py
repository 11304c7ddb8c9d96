from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from transduce.data.encoded import FilterReport, Pair, PairFilter, _SeenHashes, has_text, hash_of
from transduce.data.pairs import FilterConfig


def lengths(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def passed(sieve: PairFilter, pairs: list[Pair]) -> list[Pair]:
    whole = [pair for pair in pairs if has_text(pair)]
    hashes = np.array([hash_of(pair) for pair in whole], dtype=np.uint64)
    kept = sieve.by_text(len(pairs), hashes)
    return [pair for pair, keep in zip(whole, kept, strict=True) if keep]


def test_blank_sides_are_left_out() -> None:
    sieve = PairFilter(FilterConfig())
    assert passed(sieve, [("a", ""), (" \t\u3000", "b"), ("a", "b")]) == [("a", "b")]
    assert (sieve.report.read, sieve.report.empty) == (3, 2)


def test_only_the_first_of_equal_pairs_stays() -> None:
    sieve = PairFilter(FilterConfig())
    assert passed(sieve, [("a", "b"), ("a", "c"), ("a", "b")]) == [("a", "b"), ("a", "c")]
    assert passed(sieve, [("a", "c"), ("ab", "c"), ("a", "bc")]) == [("ab", "c"), ("a", "bc")]
    assert sieve.report.duplicate == 2


def test_another_sieve_goes_on() -> None:
    hashes = np.array([hash_of(("b", "b")), hash_of(("a", "b"))], dtype=np.uint64)
    sieve = PairFilter(FilterConfig(), FilterReport(read=7, kept=2), hashes)
    assert passed(sieve, [("a", "b"), ("a", "c"), ("b", "b")]) == [("a", "c")]
    assert sieve.report == FilterReport(read=10, kept=2, duplicate=2)


def test_duplicates_may_stay() -> None:
    sieve = PairFilter(FilterConfig(drop_duplicates=False))
    assert passed(sieve, [("a", "b")] * 3) == [("a", "b")] * 3
    assert sieve.report.duplicate == 0


def test_length_and_ratio() -> None:
    sieve = PairFilter(FilterConfig(max_length=10, max_ratio=3.0))
    kept = sieve.by_length(lengths(10, 11, 1, 3, 1, 0, 2), lengths(10, 5, 11, 9, 4, 3, 7))
    assert kept.tolist() == [True, False, False, True, False, False, False]
    assert sieve.report == FilterReport(kept=2, too_long=2, ratio=2, empty=1)


def test_no_ratio_unless_asked_for() -> None:
    sieve = PairFilter(FilterConfig(max_length=500))
    assert sieve.by_length(lengths(500), lengths(1)).all()


def test_report_is_one_line() -> None:
    text = str(FilterReport(read=21, kept=6, empty=1, too_long=2, ratio=4, duplicate=8))
    assert text == "21 pairs read, 6 kept, 1 empty, 2 too long, 4 of uneven length, 8 duplicates"


@given(st.lists(st.lists(st.integers(0, 40), max_size=30), max_size=30))
def test_seen_hashes_are_a_set(chunks: list[list[int]]) -> None:
    observed, expected = _SeenHashes(), set()
    for chunk in chunks:
        right = []
        for value in chunk:
            right.append(value not in expected)
            expected.add(value)
        assert observed.add(np.array(chunk, dtype=np.uint64)).tolist() == right

"""The lexicon learnt by EM: against EM written out, and on a language whose words are known."""

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from transduce.data import lexicon as module
from transduce.data.encoded import MixedPairs, encode_pairs
from transduce.data.lexicon import NULL, chunks_of, learn_lexicon
from transduce.data.pairs import FilterConfig
from transduce.data.ragged_rows import Side

SIZE = 40


def ids(texts: Sequence[str]) -> list[list[int]]:
    return [[int(word) for word in text.split()] for text in texts]


def corpus(directory: Path, pairs: list[tuple[list[int], list[int]]]) -> MixedPairs:
    texts = [(" ".join(map(str, s)), " ".join(map(str, t))) for s, t in pairs]
    filters = FilterConfig(drop_duplicates=False)
    side = Side(ids, SIZE)
    return MixedPairs([encode_pairs(texts, side, side, filters, directory, "x")], [1.0])


def some_pairs(n: int, seed: int = 1) -> list[tuple[list[int], list[int]]]:
    """Each target word is its source word + 10, and some follow a source word that has none."""
    chance = random.Random(seed)
    pairs = []
    for _ in range(n):
        source = [chance.randrange(4, 14) for _ in range(chance.randint(1, 6))]
        target = [word + 10 for word in source if word != 13] or [30]
        pairs.append((source, target))
    return pairs


def written_out(
    pairs: list[tuple[list[int], list[int]]], tension: float, null: float, rounds: int
) -> dict[tuple[int, int], float]:
    """The same EM as its definition says, one number at a time."""
    together = {(s, t) for source, target in pairs for s in [NULL, *source] for t in target}
    fan = defaultdict(int)
    for s, _ in together:
        fan[s] += 1
    table = {(s, t): 1 / fan[s] for s, t in together}
    for _ in range(rounds):
        counts: dict[tuple[int, int], float] = defaultdict(float)
        for source, target in pairs:
            m, n = len(source), len(target)
            for j, t in enumerate(target):
                near = [math.exp(-tension * abs((i + 0.5) / m - (j + 0.5) / n)) for i in range(m)]
                weights = [null, *((1 - null) * w / sum(near) for w in near)]
                scores = [w * table[s, t] for w, s in zip(weights, [NULL, *source], strict=True)]
                for s, score in zip([NULL, *source], scores, strict=True):
                    counts[s, t] += score / sum(scores)
        totals: dict[int, float] = defaultdict(float)
        for (s, _), count in counts.items():
            totals[s] += count
        table = {key: count / totals[key[0]] for key, count in counts.items()}
    return table


@pytest.mark.parametrize(("tension", "null"), [(4.0, 0.08), (0.0, 0.2)])
def test_equals_em_written_out(
    tmp_path: Path, tension: float, null: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("TENSION", tension), ("FROM_NULL", null), ("ROUNDS", 4)):
        monkeypatch.setattr(module, name, value)
    pairs = some_pairs(30)
    expected = written_out(pairs, tension, null, 4)
    result = learn_lexicon(corpus(tmp_path / "a", pairs), SIZE)
    assert {divmod(int(key), SIZE) for key in result.keys} == set(expected)
    for key, probability in zip(result.keys, result.probabilities, strict=True):
        assert probability == pytest.approx(expected[divmod(int(key), SIZE)], abs=1e-6)


def test_backward_is_forward_of_turned_pairs(tmp_path: Path) -> None:
    pairs = some_pairs(30)
    turned = corpus(tmp_path / "b", [(t, s) for s, t in pairs])
    one = learn_lexicon(corpus(tmp_path / "a", pairs), SIZE, backward=True)
    other = learn_lexicon(turned, SIZE)
    np.testing.assert_array_equal(one.keys, other.keys)
    np.testing.assert_allclose(one.probabilities, other.probabilities)


def test_chunks_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = corpus(tmp_path / "a", some_pairs(50))
    whole = learn_lexicon(data, SIZE)
    monkeypatch.setattr(module, "CHUNK_CELLS", 40)
    parts = list(chunks_of(data))
    assert len(parts) > 10 and np.array_equal(np.concatenate(parts), np.arange(50))
    np.testing.assert_allclose(learn_lexicon(data, SIZE).probabilities, whole.probabilities)


def test_learns_a_known_language(tmp_path: Path) -> None:
    pairs = some_pairs(400)
    data = corpus(tmp_path / "a", pairs)
    result = learn_lexicon(data, SIZE)
    table = result.likely(SIZE, 3)
    assert table[4:13, 0].tolist() == list(range(14, 23))
    assert (table[[0, 1, 2, 3, 20]] == -1).all(), "what never occurs has no targets"
    choices, lengths = result.choices(data, np.arange(len(data)))
    ends = np.cumsum(lengths)
    right = total = 0
    for (source, target), end in zip(pairs, ends, strict=True):
        chosen = choices[end - len(target) : end]
        right += sum(i >= 0 and source[i] + 10 == t for i, t in zip(chosen, target, strict=True))
        total += sum(t != 30 for t in target)
    assert right > 0.97 * total


def test_learns_from_a_part_that_is_spread_evenly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = corpus(tmp_path / "a", some_pairs(400))
    whole = learn_lexicon(data, SIZE)
    monkeypatch.setattr(module, "MAX_CELLS", 500)
    part = learn_lexicon(data, SIZE)
    assert len(part.keys) < len(whole.keys)
    choices, _ = part.choices(data, np.arange(len(data)))  # of pairs that it never saw too
    assert choices.min() >= -1

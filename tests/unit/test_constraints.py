"""What an output must hold and must not, against every sequence of a toy model."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from helpers.toy_search import BOS, EOS, SIZE, TokenIds, ToyModel, decode, toy
from transduce.decoding.constraints import (
    BannedPhrases,
    ConstraintState,
    ConstraintTrie,
    OutputConstraints,
    Phrase,
    SearchHooks,
    TokenSurfaces,
    constraints_of,
    first_is_letter,
    last_is_letter,
)
from transduce.decoding.options import DecodingOptions
from transduce.errors import SettingError
from transduce.text import CharactersConfig, SubwordConfig, SymbolsConfig, train_tokenizer

WORDS = range(3, SIZE)
LINES = [
    "the cat sat on the mat",
    "a category of cats, and one cat's hat",
    "concatenate the other cat and the dog",
    "information in the inn",
    "house houses housing",
] * 5


def holds(words: Sequence[int], phrase: Sequence[int]) -> bool:
    n = len(phrase)
    return any(tuple(words[i : i + n]) == tuple(phrase) for i in range(len(words) - n + 1))


def best_of_all(
    model: ToyModel, sentence: int, longest: int, allowed: Callable[[TokenIds], bool]
) -> list[tuple[float, list[int]]]:
    """Every allowed sequence with its log-probability, best first."""
    result = []
    for length in range(longest + 1):
        for words in itertools.product(WORDS, repeat=length):
            if allowed(words):
                ids = (BOS, *words, EOS)
                steps = (model.log_probs(sentence, ids[:t])[ids[t]] for t in range(1, len(ids)))
                result.append((sum(steps), list(words)))
    return sorted(result, key=lambda pair: -pair[0])


def asking(*constraints: Sequence[Sequence[int]], continues: Sequence[int] = ()) -> ConstraintTrie:
    """Constraints over ids; each is a list of alternatives."""
    return ConstraintTrie(
        [[Phrase(tuple(ids)) for ids in c] for c in constraints], frozenset(continues)
    )


phrases_of_words = st.lists(st.integers(3, SIZE - 1), min_size=1, max_size=3)


# --- positive constraints ------------------------------------------------------------------------


@settings(max_examples=15)
@given(
    seed=st.integers(0, 10**6),
    constraints=st.lists(st.lists(phrases_of_words, min_size=1, max_size=2), max_size=2),
)
def test_a_wide_beam_finds_the_best_of_all_that_hold_the_phrases(
    seed: int, constraints: list[list[list[int]]]
) -> None:
    model, longest = toy(seed), 5
    trie = asking(*constraints)
    assume(len(constraints) < 2 or trie.needed(ConstraintState()) <= longest)
    (result,) = decode(
        model,
        [0],
        longest,
        hooks=SearchHooks([OutputConstraints(trie=trie)]),
        beam_size=500,
        n_best=5,
        length_penalty="none",
        stop="exact",
    )

    def allowed(words: TokenIds) -> bool:
        if not all(any(holds(words, ids) for ids in c) for c in constraints):
            return False
        if len(constraints) < 2:
            return True
        # what several phrases need is reckoned as if they could not overlap
        stages = itertools.accumulate(words, trie.next, initial=ConstraintState())
        return all(trie.needed(stage) <= longest - t for t, stage in enumerate(stages))

    known = best_of_all(model, 0, longest, allowed)[:5]
    assert [h.tokens for h in result] == [words for _, words in known]
    assert [h.log_prob for h in result] == pytest.approx([total for total, _ in known])


@settings(max_examples=100)
@given(
    seed=st.integers(0, 10**6),
    constraints=st.lists(
        st.lists(st.lists(phrases_of_words, min_size=1, max_size=3), max_size=3),
        min_size=1,
        max_size=5,
    ),
    room=st.integers(0, 3),
    options=st.sampled_from(
        [
            {"beam_size": 1},
            {"beam_size": 2, "n_best": 2},
            {"beam_size": 5, "n_best": 5, "stop": "exact"},
            {"beam_size": 4, "n_best": 2, "stop": "present"},
            {"method": "sample", "n_best": 3},
        ]
    ),
)
def test_every_output_holds_its_phrases_and_a_batch_is_its_sentences(
    seed: int, constraints: list[list[list[list[int]]]], room: int, options: dict[str, Any]
) -> None:
    model = toy(seed, n=len(constraints))
    sentence_constraints = [OutputConstraints(trie=asking(*c) if c else None) for c in constraints]
    limits = [output_constraints.min_tokens + room for output_constraints in sentence_constraints]
    streams = list(range(len(sentence_constraints)))
    together = decode(
        model, streams, limits, streams, hooks=SearchHooks(sentence_constraints), **options
    )
    for i, result in enumerate(together):
        assert result
        for h in result:
            assert h.finished
            for alternatives in constraints[i]:
                assert any(holds(h.tokens, ids) for ids in alternatives)
        alone = decode(
            model, [i], [limits[i]], [i], hooks=SearchHooks([sentence_constraints[i]]), **options
        )
        assert alone == [result]
    free = [i for i, c in enumerate(constraints) if not c]
    for i in free:  # a neighbour's phrases change nothing
        assert decode(model, [i], [limits[i]], [i], **options) == [together[i]]


def test_where_there_is_no_room_the_length_goes_first() -> None:
    output_constraints = OutputConstraints(trie=asking([[3, 4, 5]]))
    (result,) = decode(toy(1), [0], 2, hooks=SearchHooks([output_constraints]))
    assert result[0].finished and len(result[0].tokens) <= 2


@pytest.mark.parametrize("beam_size", [1, 4])
def test_where_there_is_room_for_one_phrase_alone_the_output_is_whole(beam_size: int) -> None:
    words = [Phrase((3,), whole=True)], [Phrase((4, 5, 3, 4, 5, 3, 4), whole=True)]
    output_constraints = OutputConstraints(trie=ConstraintTrie(list(words), frozenset([5])))
    for seed in range(50):
        hooks = SearchHooks([output_constraints])
        (result,) = decode(toy(seed, spread=3.0), [0], 6, hooks=hooks, beam_size=beam_size)
        assert all(h.finished for h in result)


def test_a_longer_word_does_not_count() -> None:
    """Token 5 makes the word before it longer: the phrase (3) is not in 3 5."""
    trie = ConstraintTrie([[Phrase((3,), whole=True)]], frozenset([5]))
    for seed in range(100):
        (result,) = decode(
            toy(seed, spread=3.0),
            [0],
            4,
            hooks=SearchHooks([OutputConstraints(trie=trie)]),
            n_best=5,
        )
        for h in result:
            ids = [*h.tokens, EOS]
            assert any(a == 3 and b != 5 for a, b in itertools.pairwise(ids))


@settings(max_examples=100)
@given(
    constraints=st.lists(
        st.lists(phrases_of_words, min_size=1, max_size=3), min_size=1, max_size=4
    ),
    words=st.lists(st.integers(3, SIZE - 1), max_size=12),
)
def test_the_automaton_knows_what_is_held_and_what_is_needed(
    constraints: list[list[list[int]]], words: list[int]
) -> None:
    trie, progress = asking(*constraints), ConstraintState()
    for word in words:
        progress = trie.next(progress, word)
    held = [any(holds(words, ids) for ids in c) for c in constraints]
    assert [bool(progress.met >> i & 1) for i in range(len(constraints))] == held
    assert trie.is_done(progress) == all(held) == (trie.needed(progress) == 0)
    while not trie.is_done(progress):  # one after the other, in as many tokens as were said
        before = trie.needed(progress)
        _, progress = min(trie.onward(progress), key=lambda way: trie.needed(way[1]))
        assert trie.needed(progress) < before


# --- prefix --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["beam", "sample"])
def test_every_output_starts_with_its_prefix_and_is_scored_as_a_whole(method: str) -> None:
    model = toy(6)
    sentence_constraints = [OutputConstraints(prefix=p) for p in ((), (4, 3), (5, 5, 5, 5, 5))]
    options: dict[str, Any] = {"method": method, "n_best": 4, "no_repeat_ngram": 1}
    result = decode(model, [0, 1, 2], [4, 4, 4], hooks=SearchHooks(sentence_constraints), **options)
    for i, (hypotheses, output_constraints) in enumerate(
        zip(result, sentence_constraints, strict=True)
    ):
        for h in hypotheses:
            assert tuple(h.tokens[: len(output_constraints.prefix)]) == output_constraints.prefix
            ids = (BOS, *h.tokens, EOS)
            steps = (model.log_probs(i, ids[:t])[ids[t]] for t in range(1, len(ids)))
            assert h.log_prob == pytest.approx(sum(steps))
    assert {tuple(h.tokens) for h in result[2]} == {(5,) * 5}  # though it repeats and is too long


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), prefix=st.lists(st.integers(3, SIZE - 1), max_size=3))
def test_a_wide_beam_finds_the_best_of_all_that_start_so(seed: int, prefix: list[int]) -> None:
    model = toy(seed)
    hooks = SearchHooks([OutputConstraints(prefix=tuple(prefix), min_length=2)])
    (result,) = decode(
        model, [0], 4, hooks=hooks, beam_size=300, n_best=3, length_penalty="none", stop="exact"
    )

    def allowed(words: TokenIds) -> bool:
        return list(words[: len(prefix)]) == prefix and len(words) >= 2

    known = best_of_all(model, 0, 4, allowed)[:3]
    assert [h.tokens for h in result] == [words for _, words in known]


def test_a_prefix_may_hold_a_phrase() -> None:
    output_constraints = OutputConstraints(prefix=(3, 4), trie=asking([[4, 5]]))
    (result,) = decode(toy(2), [0], 6, hooks=SearchHooks([output_constraints]), n_best=3)
    for h in result:
        assert h.tokens[:2] == [3, 4] and holds(h.tokens, (4, 5))


# --- words of real tokenizers --------------------------------------------------------------------


@pytest.fixture(scope="module")
def subwords() -> TokenSurfaces:
    return TokenSurfaces(train_tokenizer(SubwordConfig(size=300), LINES))


def spellings(token_surfaces: TokenSurfaces, text: str, seed: int) -> list[int]:
    """A text cut into tokens at random."""
    chance = random.Random(seed)
    rest, ids = b" " + text.encode(), []
    while rest:
        token = chance.choice(
            [
                t
                for n in range(1, 9)
                for t in token_surfaces.starting(rest[:n])
                if token_surfaces.surfaces[t] == rest[:n]
            ]
        )
        ids.append(token)
        rest = rest[len(token_surfaces.surfaces[token]) :]
    return ids


@pytest.mark.parametrize("seed", range(20))
def test_what_is_avoided_is_found_however_it_is_cut(subwords: TokenSurfaces, seed: int) -> None:
    banned = BannedPhrases(["cat", "the dog"], subwords)
    for text, spoken in (
        ("the cat sat", True),
        ("cat", True),
        ("one (cat) here", True),
        ("and the dog", True),
        ("and the  dog", False),
        ("a dog", False),
    ):
        ids = spellings(subwords, text, seed)
        hits = [t for t in range(len(ids)) if ids[t] in banned.after(ids[:t])]
        assert bool(hits) == spoken, (text, subwords.tokenizer.tokens(ids))


def test_a_longer_word_in_one_token_is_not_avoided(subwords: TokenSurfaces) -> None:
    longer = max(range(4, 300), key=lambda token: len(subwords.surfaces[token]))
    text = subwords.surfaces[longer].decode()
    assert text[0] == " " and text[1:].isalpha() and len(text) > 3
    assert longer not in BannedPhrases([text[1:-1], text[2:], text[2:-1]], subwords).after([])
    assert longer in BannedPhrases([text[1:]], subwords).after([])


def test_scripts_without_spaces_have_no_longer_words() -> None:
    lines = ["我喜歡貓", "貓喜歡我", "他不喜歡狗"] * 9
    token_surfaces = TokenSurfaces(
        train_tokenizer(SubwordConfig(size=300, character_coverage=1.0), lines)
    )
    ids = token_surfaces.tokenizer.encode("我喜歡貓")
    for phrase in ("喜歡", "歡", "我喜歡貓", "貓"):
        banned = BannedPhrases([phrase], token_surfaces)
        assert any(ids[t] in banned.after(ids[:t]) for t in range(len(ids)))
    rare = token_surfaces.tokenizer.encode("鼠")  # spelt in bytes
    assert len(rare) > 2 and rare[-1] in BannedPhrases(["鼠"], token_surfaces).after(rare[:-1])


@pytest.mark.parametrize(("word", "longer"), [("कर", "करी"), ("cafe", "cafe\u0301"), ("אב", "אבּ")])
def test_a_mark_makes_a_word_longer(word: str, longer: str) -> None:
    assert last_is_letter(longer.encode()) and first_is_letter(longer[len(word) :].encode())
    assert not first_is_letter(b"") and not first_is_letter("❤".encode())


def test_letters_and_symbols() -> None:
    letters = TokenSurfaces(train_tokenizer(CharactersConfig(), ["abc", "cab"]))
    ids = letters.tokenizer.encode("cab")
    assert ids[2] in BannedPhrases(["ab"], letters).after(ids[:2])  # anywhere: there are no words
    symbols = TokenSurfaces(train_tokenizer(SymbolsConfig(), ["HH AH L OW", "A AH"]))
    ids = symbols.tokenizer.encode("HH AH L")
    assert ids[1] in BannedPhrases(["HH AH"], symbols).after(ids[:1])
    assert ids[1] not in BannedPhrases(["HH A"], symbols).after(ids[:1])
    assert symbols.phrase(" AH  L ") == tuple(ids[1:])


def test_demands_of_options(subwords: TokenSurfaces) -> None:
    options = DecodingOptions(
        prefix="the ", constraints=("cat", ("house", "the inn")), avoid=("mat",)
    )
    output_constraints = constraints_of(options, lambda: subwords)
    assert output_constraints.prefix == tuple(subwords.tokenizer.encode("the"))
    assert output_constraints.trie is not None and output_constraints.banned is not None
    progress = ConstraintState()
    for token in subwords.tokenizer.encode("a cat in the inn"):
        progress = output_constraints.trie.next(progress, token)
    assert output_constraints.trie.is_done(progress)
    progress = ConstraintState()
    for token in subwords.tokenizer.encode("the cat's houses"):
        progress = output_constraints.trie.next(progress, token)
    assert not output_constraints.trie.is_done(progress)
    assert constraints_of(DecodingOptions(), lambda: subwords) == OutputConstraints()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"method": "smaple"}, "method should be 'beam' or 'sample', not 'smaple'"),
        ({"temperature": 0.0}, "temperature should be greater than 0"),
        ({"no_repeat_ngram": -1}, "no_repeat_ngram"),
        ({"constraints": [["a", ""]]}, "constraints"),
    ],
)
def test_options_built_in_python_are_checked_too(given: dict[str, Any], named: str) -> None:
    with pytest.raises(SettingError, match=named):
        DecodingOptions(**given)
    listed: Any = ["a", ["b", "c"]]
    assert DecodingOptions(constraints=listed).constraints == ("a", ("b", "c"))


def test_what_cannot_be_said_is_refused() -> None:
    letters = TokenSurfaces(train_tokenizer(CharactersConfig(), ["abc", "cab"]))
    with pytest.raises(SettingError, match="prefix: 'axe' has characters"):
        constraints_of(DecodingOptions(prefix="axe"), lambda: letters)
    with pytest.raises(SettingError, match="constraints: 'x' has characters"):
        constraints_of(DecodingOptions(constraints=("x",)), lambda: letters)
    with pytest.raises(SettingError, match="is blank"):
        constraints_of(DecodingOptions(constraints=("ab", " ")), lambda: letters)
    with pytest.raises(SettingError, match="avoid: ' ' is blank"):
        constraints_of(DecodingOptions(avoid=("ab", " ")), lambda: letters)
    with pytest.raises(SettingError, match="constraints: 'ab' contains the stop string 'b'"):
        DecodingOptions(constraints=("c", ("a", "ab")), stop_strings=("b",))
    with pytest.raises(SettingError, match="prefix: 'ab' contains the stop string"):
        DecodingOptions(prefix="ab", stop_strings=("b",))
    with pytest.raises(SettingError, match="beam_groups"):
        DecodingOptions(constraints=("ab",), beam_size=4, beam_groups=2)

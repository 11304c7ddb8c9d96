"""Alignments: their text, their error rate, and links read from a model's attention."""

import os
import random
from pathlib import Path

import numpy as np
import pytest

import transduce
from helpers.tiny_run import reversal_pairs, train_tiny, write_tsv
from transduce import DataError, Run, SettingError
from transduce.metrics.alignment import (
    alignment_scores,
    alignment_statistics,
    attended_above,
    most_attended,
    symmetrised,
)
from transduce.tasks.translation.alignment import AlignmentOptions, align_both_ways, align_pairs
from transduce.text import SubwordConfig, train_tokenizer
from transduce.text.alignment import (
    check_inside,
    format_links,
    parse_gold,
    parse_links,
    unit_spans,
    units_of_tokens,
)

PAIRS = [("abc", "c b a"), ("edcba", "a b c d e"), ("aa", "a a"), ("bbbd", "d b b b")]


class TestText:
    def test_links_there_and_back(self) -> None:
        assert format_links(parse_links("2-0 0-1 1-1", "x")) == "2-0 0-1 1-1"
        assert format_links([]) == "" and parse_links(" ", "x") == frozenset()

    def test_marks(self) -> None:
        gold = parse_gold("0-0S 1-2P 3-3 4p4", "x")
        assert gold.sure == {(0, 0), (3, 3)}
        assert gold.possible == {(0, 0), (1, 2), (3, 3), (4, 4)}

    @pytest.mark.parametrize("word", ["1", "1-", "a-b", "1-2X", "-1-2", "1--2", "1-2-3", "1,2"])
    def test_what_is_no_link(self, word: str) -> None:
        with pytest.raises(DataError, match=r"gold: line 3: .* is not a link"):
            parse_links(f"0-0 {word}", "gold: line 3")

    def test_links_inside(self) -> None:
        check_inside({(1, 2)}, 2, 3, "x")
        for sizes in ((1, 3), (2, 2)):
            with pytest.raises(DataError, match="x: the link 1-2 is out of range"):
                check_inside({(1, 2)}, *sizes, "x")


class TestErrorRate:
    def test_worked_by_hand(self) -> None:
        """|A| = 4, |S| = 2, A ∩ S = 1, A ∩ P = 3: 1 - (1 + 3) / (4 + 2)."""
        result = {(0, 0), (1, 1), (1, 2), (3, 3)}
        sure, possible = {(0, 0), (2, 2)}, {(0, 0), (2, 2), (1, 1), (1, 2)}
        scores = alignment_scores(alignment_statistics([result], [(sure, possible)]).sum(0))
        assert scores["aer"] == pytest.approx(100 / 3)
        assert (scores["precision"], scores["recall"]) == (75, 50)

    def test_is_of_the_corpus_and_not_a_mean(self) -> None:
        gold = [({(0, 0)}, {(0, 0)}), ({(i, i) for i in range(9)}, set())]
        result = [set(), {(i, i) for i in range(9)}]
        scores = alignment_scores(alignment_statistics(result, gold).sum(0))
        assert scores["aer"] == pytest.approx(100 * (1 - 18 / 19))

    def test_mistakes(self) -> None:
        with pytest.raises(DataError, match="1 lines of links but 2 lines of gold links"):
            alignment_statistics([set()], [(set(), set())] * 2)
        with pytest.raises(DataError, match="no gold links"):
            alignment_statistics([], [])
        with pytest.raises(DataError, match="neither side has a link"):
            alignment_scores(alignment_statistics([set()], [(set(), set())]).sum(0))

    def test_on_a_published_gold_standard(self) -> None:
        """TRANSDUCE_DATA names the directory that holds the data sets."""
        path = Path(os.environ.get("TRANSDUCE_DATA", "")) / "ugarit-grc-eng-alignment"
        if not (path / "gold.talp").is_file():
            pytest.skip("NOT CHECKED on a gold standard: TRANSDUCE_DATA/ugarit-grc-eng-alignment")
        lines = (path / "gold.talp").read_text(encoding="utf-8").splitlines()
        gold = [parse_gold(line, "gold") for line in lines]
        assert len(gold) == 274
        assert sum(len(g.sure) for g in gold) == 6036
        assert sum(len(g.possible) for g in gold) == 7424
        sides = [(path / name).read_text(encoding="utf-8") for name in ("grc.txt", "eng.txt")]
        for g, source, target in zip(gold, *(side.splitlines() for side in sides), strict=True):
            check_inside(g.possible, len(source.split()), len(target.split()), "gold")
        all_of_it = alignment_statistics([g.possible for g in gold], gold).sum(0)
        assert alignment_scores(all_of_it) == {"aer": 0, "precision": 100, "recall": 100}
        diagonal = [{(i, i) for i in range(20)} for _ in gold]
        a, s, a_s, a_p = 0, 0, 0, 0
        for links, g in zip(diagonal, gold, strict=True):
            a, s = a + len(links), s + len(g.sure)
            a_s += sum(link in g.sure for link in links)
            a_p += sum(link in g.possible for link in links)
        scores = alignment_scores(alignment_statistics(diagonal, gold).sum(0))
        assert scores["aer"] == pytest.approx(100 - 100 * (a_s + a_p) / (a + s))


class TestUnits:
    def test_spans(self) -> None:
        text = " 我们 love C++ 和  Python。"
        words = [text[a:b] for a, b in unit_spans(text, "words")]
        assert words == ["我们", "love", "C++", "和", "Python。"]
        characters = [text[a:b] for a, b in unit_spans(text, "characters")]
        assert characters == ["我", "们", "love", "C++", "和", "Python", "。"]
        assert unit_spans("", "words") == []

    def test_subwords_belong_to_their_words(self) -> None:
        lines = ["the cat sat on the mat", "a catalogue of mats", "猫坐在垫子上"] * 20
        tokenizer = train_tokenizer(SubwordConfig(size=290), lines)
        text = "the catalogues 垫子 sat"
        ids = tokenizer.encode(text)
        count, parts = units_of_tokens(tokenizer, text, ids, "words")
        assert count == 4 and len(parts) == len(ids) > 4
        owners = [part[0] for part in parts if part]
        assert owners == sorted(owners) and set(owners) == {0, 1, 2, 3}
        assert units_of_tokens(tokenizer, text, ids, "characters")[0] == 5
        assert units_of_tokens(tokenizer, text, ids, "tokens") == (
            len(ids),
            [[i] for i in range(len(ids))],
        )


class TestLinks:
    def test_from_weights(self) -> None:
        weights = np.array([[0.6, 0.4, 0.0], [0.1, 0.3, 0.6]])
        assert most_attended(weights) == {(0, 0), (2, 1)}
        assert attended_above(weights, 0.25) == {(0, 0), (1, 0), (1, 1), (2, 1)}
        assert most_attended(np.zeros((2, 0))) == set()

    def test_symmetry(self) -> None:
        forward = {(0, 0), (1, 1), (2, 1), (4, 4)}
        backward = {(0, 0), (1, 1), (1, 2), (5, 0)}
        assert symmetrised(forward, backward, "intersection") == {(0, 0), (1, 1)}
        assert symmetrised(forward, backward, "union") == forward | backward
        # (2, 1) and (1, 2) stand beside (1, 1) and reach something new; the others are far off
        grown = symmetrised(forward, backward, "grow-diag")
        assert grown == {(0, 0), (1, 1), (2, 1), (1, 2)}

    def test_growing_stays_between_intersection_and_union(self) -> None:
        chance = random.Random(1)
        for _ in range(200):
            sets = [
                {(chance.randrange(6), chance.randrange(6)) for _ in range(chance.randrange(12))}
                for _ in range(2)
            ]
            both, grown, either = (
                symmetrised(sets[0], sets[1], method)
                for method in ("intersection", "grow-diag", "union")
            )
            assert both <= grown <= either
            for source, target in grown - both:  # each has a neighbour
                near = {(source + a, target + b) for a in (-1, 0, 1) for b in (-1, 0, 1)}
                assert len(near & grown) > 1


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    directory = tmp_path_factory.mktemp("run")
    data = write_tsv(directory / "a.tsv", reversal_pairs(300))
    path, _ = train_tiny(data, directory / "run", "training.steps=20")
    return transduce.load(path, device="cpu")


class TestOfAModel:
    def test_company_does_not_matter(self, run: Run) -> None:
        for options in (AlignmentOptions(unit="tokens"), AlignmentOptions(threshold=0.2)):
            together = list(align_pairs(run.translator, PAIRS * 40, options))
            alone = [next(align_pairs(run.translator, [pair], options)) for pair in PAIRS]
            assert together == alone * 40

    def test_agrees_with_the_weights_of_one_pair(self, run: Run) -> None:
        for shifted in (False, True):
            options = AlignmentOptions(unit="tokens", shifted=shifted)
            for (source, target), result in zip(
                PAIRS, align_pairs(run.translator, PAIRS, options), strict=True
            ):
                weights = run.align(source, target).weights[shifted:, :-1]
                rows = weights[: len(target.split())].tolist()
                expected = {
                    (max(range(len(row)), key=row.__getitem__), i) for i, row in enumerate(rows)
                }
                assert result.links == expected
                assert (result.n_source, result.n_target) == (len(source), len(target.split()))

    def test_words_of_letters(self, run: Run) -> None:
        (result,) = align_pairs(run.translator, [("abc", "c b a")])
        assert (result.n_source, result.n_target) == (1, 3)
        assert result.links == {(0, 0), (0, 1), (0, 2)}

    def test_blank_sides(self, run: Run) -> None:
        result = list(align_pairs(run.translator, [("", "a"), ("a", ""), ("", "")]))
        assert [of_pair.links for of_pair in result] == [frozenset()] * 3

    def test_heads(self, run: Run) -> None:
        options = [AlignmentOptions(head=head, threshold=0.25) for head in (0, 1)]
        one, other = (list(align_pairs(run.translator, PAIRS, o)) for o in options)
        assert one != other
        with pytest.raises(
            SettingError, match="alignment head 2 is out of range: the layer has heads 0 to 1"
        ):
            next(align_pairs(run.translator, PAIRS, AlignmentOptions(head=2)))
        with pytest.raises(SettingError, match="alignment layer 1 is out of range"):
            next(align_pairs(run.translator, PAIRS, AlignmentOptions(layer=1)))

    def test_both_ways(self, run: Run) -> None:
        same = [("a", "a")]
        (result,) = align_both_ways(run.translator, run.translator, same, "intersection")
        assert result.links == {(0, 0)}
        with pytest.raises(DataError, match="pair 1 has 3 and 1 tokens in one run"):
            options = AlignmentOptions(unit="tokens")
            list(align_both_ways(run.translator, run.translator, [("abc", "a")], "union", options))

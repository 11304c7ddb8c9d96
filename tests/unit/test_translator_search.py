"""Every way to search, by a small trained translator."""

from __future__ import annotations

import copy
import dataclasses
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

import transduce
from helpers.tiny_run import reversal_pairs, tiny_settings, train_tiny, write_tsv
from transduce import DecodingOptions, Run, RunError, SettingError
from transduce.decoding.company import Company
from transduce.decoding.minimum_risk import bleu_of_pairs, chrf_of_pairs, expected_utilities
from transduce.decoding.voices import LanguageModel
from transduce.inspect.attention import record_attention
from transduce.models.decoder_only import DecoderOnlyConfig, build_decoder_only
from transduce.nn.transformer import TransformerConfig
from transduce.sequence import Padded
from transduce.text import BOS, EOS

LETTERS = "abcde"
WORDS = ["abc", "edcba", "aa", "", "ce", "bbbd", "dcab", "eeea", "ab"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    directory = tmp_path_factory.mktemp("search")
    data = write_tsv(directory / "a.tsv", reversal_pairs(300))
    settings = ("training.steps=60", "training.schedule.peak=0.01")
    return transduce.load(train_tiny(data, directory / "run", *settings)[0], device="cpu")


@pytest.fixture(scope="module")
def other(run: Run) -> Run:
    """The same with other weights."""
    joined = copy.copy(run)
    joined.predictor = copy.copy(run.predictor)
    model = copy.deepcopy(run.model)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    joined.predictor.model = joined.model = model  # type: ignore[misc]
    return joined


def language_model(run: Run) -> LanguageModel:
    config = DecoderOnlyConfig(
        d_model=8, decoder=TransformerConfig(n_layers=1, n_heads=2, d_ff=8, dropout=0.0)
    )
    torch.manual_seed(3)
    return LanguageModel(build_decoder_only(config, run.translator.target.size).eval(), 64)


def some_texts(n: int, seed: int = 0) -> list[str]:
    chance = random.Random(seed)
    return ["".join(chance.choices(LETTERS, k=chance.randint(1, 7))) for _ in range(n)]


def some_phrases(chance: random.Random, longest: int = 2) -> list[str]:
    count = chance.randint(0, 2)
    return [" ".join(chance.choices(LETTERS, k=chance.randint(1, longest))) for _ in range(count)]


def within(phrase: str, text: str) -> bool:
    return f" {phrase} " in f" {text} "


@pytest.mark.parametrize("beam_size", [1, 4])
def test_phrases_are_held_and_avoided_whatever_the_batch(run: Run, beam_size: int) -> None:
    chance, texts = random.Random(beam_size), some_texts(60)
    each = []
    for i in range(len(texts)):
        wanted = tuple(some_phrases(chance))
        avoided = some_phrases(chance, 3) if i % 3 == 0 else []
        sayable = tuple(a for a in avoided if not any(within(a, phrase) for phrase in wanted))
        each.append(
            DecodingOptions(
                beam_size=beam_size, n_best=beam_size, constraints=wanted, avoid=sayable
            )
        )
    found = run.translate_batch(texts, each)
    for options, translation in zip(each, found, strict=True):
        for candidate in translation.candidates:
            assert not any(within(phrase, candidate.text) for phrase in options.avoid)
            if not options.avoid:
                assert all(within(phrase, candidate.text) for phrase in options.constraints)
    for tokens in (1, 50):
        narrow = [dataclasses.replace(options, batch_tokens=tokens) for options in each]
        again = run.translate_batch(texts, narrow)
        assert [[c.text for c in t.candidates] for t in again] == [
            [c.text for c in t.candidates] for t in found
        ]


@pytest.mark.parametrize("method", ["beam", "sample"])
def test_equal_lines_are_decoded_once_but_sampled_each(
    run: Run, method: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    model = run.translator.model
    start = model.start

    def counted(source: Padded) -> Any:
        read.append(len(source.values))
        return start(source)

    monkeypatch.setattr(model, "start", counted)
    options = DecodingOptions(method=method, n_best=2, temperature=2.0)
    demanding = dataclasses.replace(options, constraints=("a a",))
    texts = ["abc", "de", "abc", "abc", "de", "abc"]
    each = [*[options] * 5, demanding]
    found = run.translate_batch(texts, each)
    assert sum(read) == (3 if method == "beam" else 6)
    for i, (text, own) in enumerate(zip(texts, each, strict=True)):
        alone = run.translator.translate([text], own, first=i)[0]
        assert [c.tokens for c in found[i].candidates] == [c.tokens for c in alone.candidates]
    assert len({found[i].text for i in (0, 2, 3)}) == (1 if method == "beam" else 3)


def test_settings_of_a_line_are_those_of_the_line_alone(run: Run) -> None:
    kinds = [
        DecodingOptions(),
        DecodingOptions(beam_size=2, prefix="a b"),
        DecodingOptions(method="sample", seed=4),
        DecodingOptions(n_best=2, min_length_ratio=1.5),
    ]
    each = [kinds[i % len(kinds)] for i in range(len(WORDS))]
    together = run.translate_batch(WORDS, each)
    for i, options in enumerate(each):
        (alone,) = run.translate_batch([WORDS[i]], options, first=i)
        assert alone.text == together[i].text
        assert len(alone.candidates) == len(together[i].candidates)
    assert together[1].text.startswith("a b")
    assert len(together[7].tokens) >= 6
    with pytest.raises(SettingError, match="line 2: prefix: 'zz' has symbols"):
        run.translate_batch(["a", "b"], [DecodingOptions(), DecodingOptions(prefix="zz")])


def forced(run: Run, text: str, target: str) -> torch.Tensor:
    """(t, v) log-probabilities of what follows each target token."""
    translator = run.translator
    source = Padded.unpadded(torch.tensor([[*translator.source.encode(text), EOS]]))
    given = Padded.unpadded(torch.tensor([[BOS, *translator.target.encode(target)]]))
    with torch.inference_mode():
        return translator.model.eval()(source, given)[0].log_softmax(1)  # type: ignore[no-any-return]


def total(log_probs: torch.Tensor, run: Run, target: str) -> float:
    ids = torch.tensor([*run.translator.target.encode(target), EOS])
    return float(log_probs.gather(1, ids[:, None]).sum())


@pytest.mark.parametrize("mean", ["geometric", "arithmetic"])
def test_an_ensemble_is_the_mean_of_its_models(run: Run, other: Run, mean: Any) -> None:
    options = DecodingOptions(beam_size=3, ensemble=mean)
    twice = run.beside([run]).translate_batch(WORDS, options)
    assert [t.text for t in twice] == [t.text for t in run.translate_batch(WORDS, options)]
    for text in WORDS[:3]:
        (found,) = run.beside([other]).translate_batch([text], options)
        both = torch.stack([forced(one, text, found.text) for one in (run, other)])
        joint = both.mean(0).log_softmax(1) if mean == "geometric" else both.exp().mean(0).log()
        assert found.log_prob == pytest.approx(total(joint, run, found.text), abs=1e-4)


def test_a_language_model_has_its_say(run: Run) -> None:
    speaker = language_model(run)
    translator = run.translator.beside(Company(language_model=speaker))
    silent = DecodingOptions(language_model_weight=0.0)
    plain = run.translate_batch(WORDS, silent)
    assert [t.text for t in translator.translate(WORDS, silent)] == [t.text for t in plain]
    options = DecodingOptions(beam_size=3, length_penalty="mean", language_model_weight=2.0)
    found = translator.translate(WORDS, options)
    assert [t.text for t in found] != [t.text for t in plain]
    for text, translation in zip(WORDS[:3], found, strict=False):
        own = total(forced(run, text, translation.text), run, translation.text)
        ids = [BOS, *run.translator.target.encode(translation.text)]
        with torch.inference_mode():
            state = speaker.model.start()
            hidden = speaker.model.advance(Padded.unpadded(torch.tensor([ids])), state).values
            said = speaker.model.head(hidden)[0].log_softmax(1)
        assert translation.log_prob == pytest.approx(own, abs=1e-4)
        score = (own + 2.0 * total(said, run, translation.text)) / len(ids)
        assert translation.score == pytest.approx(score, abs=1e-4)


def test_coverage_is_what_attention_says(run: Run) -> None:
    options = DecodingOptions(beam_size=3, n_best=3, coverage_penalty=0.7, length_penalty="none")
    for text, translation in zip(WORDS, run.translate_batch(WORDS, options), strict=True):
        for candidate in translation.candidates:
            with record_attention(run.model) as maps:
                own = total(forced(run, text, candidate.text), run, candidate.text)
            (weights,) = maps["decoder.layers.0.cross_attention"]
            seen = weights[0].mean(0).sum(0).clamp(max=1.0)
            expected = own + 0.7 * float(seen.log().sum())
            assert candidate.log_prob == pytest.approx(own, abs=1e-4)
            assert candidate.score == pytest.approx(expected, abs=1e-4)
    assert run.model.decoder.layers[0].cross_attention.weights is None  # type: ignore


def test_groups_differ_more_than_one_beam(run: Run) -> None:
    def first_words(**options: Any) -> float:
        chosen = DecodingOptions(beam_size=6, n_best=6, **options)
        found = run.translate_batch([w for w in WORDS if w], chosen)
        for translation in found:
            texts = [candidate.text for candidate in translation.candidates]
            assert len(set(texts)) == len(texts)
        counts = [len({c.text[:1] for c in t.candidates}) for t in found]
        return sum(counts) / len(counts)

    assert first_words(beam_groups=6, diversity=5.0) > first_words()
    # What two groups find is one output: the search goes on until there are as many as asked for.
    alike = DecodingOptions(beam_size=8, n_best=8, beam_groups=4, diversity=0.1)
    patient = dataclasses.replace(alike, stop="exact")
    for word in ("abc", "edcba", "dcab"):
        assert len(run.translate(word, alike).candidates) == 8
        assert len(run.translate(word, patient).candidates) == 8
    one = run.translate_batch(WORDS, DecodingOptions(beam_size=4, beam_groups=1))
    same = run.translate_batch(WORDS, DecodingOptions(beam_size=16, beam_groups=4))
    for alone, first in zip(one, same, strict=True):  # the first group is a beam by itself
        assert first.score >= alone.score - 1e-5


def test_repeats_cost_a_beam_too(run: Run) -> None:
    def repeats(penalty: float) -> int:
        options = DecodingOptions(repetition_penalty=penalty, min_length_ratio=1.0)
        found = run.translate_batch(["aabbccdd", "eeeeee", "abababab"], options)
        for text, translation in zip(["aabbccdd", "eeeeee", "abababab"], found, strict=True):
            own = total(forced(run, text, translation.text), run, translation.text)
            assert translation.log_prob == pytest.approx(own, abs=1e-4)
        return sum(len(t.tokens) - len(set(t.tokens)) for t in found)

    assert repeats(5.0) < repeats(1.0)


# --- minimum risk --------------------------------------------------------------------------------


def test_utilities_are_sacrebleus() -> None:
    chance = random.Random(5)
    vocabulary = ["a", "bc", "the", "cat,", "dog.", "x", "hello"]
    texts = [" ".join(chance.choices(vocabulary, k=chance.randint(0, 9))) for _ in range(20)]
    texts = list(dict.fromkeys([*texts, "", "a", "the cat"]))
    bleu, chrf = bleu_of_pairs(texts), chrf_of_pairs(texts)
    by_bleu, by_chrf = BLEU(effective_order=True), CHRF()
    for i, hypothesis in enumerate(texts):
        for j, reference in enumerate(texts):
            known = by_bleu.sentence_score(hypothesis, [reference]).score
            assert bleu[i, j] == pytest.approx(known, abs=1e-6)
            known = by_chrf.sentence_score(hypothesis, [reference]).score
            assert chrf[i, j] == pytest.approx(known, abs=1e-6)


def test_expected_utilities_weigh_references() -> None:
    texts = ["the cat", "a dog", "the cat"]
    pairs = chrf_of_pairs(["the cat", "a dog"])
    found = expected_utilities(texts, [1.0, 2.0, 1.0], "chrf")
    assert found[0] == found[2] == pytest.approx((pairs[0, 0] + pairs[0, 1]) / 2)
    assert found[1] == pytest.approx((pairs[1, 0] + pairs[1, 1]) / 2)


@pytest.mark.parametrize("method", ["beam", "sample"])
def test_minimum_risk_takes_what_is_most_like_the_rest(run: Run, method: Any) -> None:
    pool = DecodingOptions(method=method, n_best=8, beam_size=8)
    options = DecodingOptions(
        method=method, n_best=2, beam_size=8, candidates=8, minimum_risk="chrf"
    )
    all_found = run.translate_batch(WORDS, pool)
    for every, chosen in zip(all_found, run.translate_batch(WORDS, options), strict=True):
        if not every.candidates:
            assert chosen.text == ""
            continue
        texts = [c.text for c in every.candidates]
        weights = [math.exp(c.log_prob) if method == "beam" else 1.0 for c in every.candidates]
        utilities = expected_utilities(texts, weights, "chrf")
        assert chosen.score == pytest.approx(max(utilities))
        assert chosen.text in texts and len(chosen.candidates) <= 2


# --- streaming -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        DecodingOptions(beam_size=1),
        DecodingOptions(beam_size=4),
        DecodingOptions(beam_size=4, constraints=("a a",), prefix="b"),
        DecodingOptions(method="sample", n_best=2, seed=3),
    ],
)
def test_a_stream_grows_to_the_translation(run: Run, options: DecodingOptions) -> None:
    for number, text in enumerate([*WORDS, "abcde" * 30]):
        parts = list(run.stream(text, options, number))
        (whole,) = run.translate_batch([text], dataclasses.replace(options, n_best=1), number)
        assert "".join(parts) == whole.text
    greedy = list(run.stream("abcdeabcde", DecodingOptions(beam_size=1)))
    assert sum(bool(part) for part in greedy) > 3


def test_a_closed_stream_searches_no_more(run: Run) -> None:
    stream = run.stream("abcdeabcde", DecodingOptions(beam_size=1))
    assert next(stream)
    stream.close()
    assert list(stream) == []
    assert torch.is_inference_mode_enabled() is False
    with pytest.raises(SettingError, match="minimum_risk"):
        run.stream("ab", DecodingOptions(minimum_risk="chrf"))


# --- what does not go together -------------------------------------------------------------------


def test_runs_of_other_vocabularies_are_refused(run: Run, tmp_path: Path) -> None:
    pairs = reversal_pairs(100, letters="xyz")
    stranger = transduce.load(
        train_tiny(write_tsv(tmp_path / "b.tsv", pairs), tmp_path / "run", "training.steps=1")[0]
    )
    with pytest.raises(RunError, match="another source vocabulary"):
        run.beside([stranger])
    with pytest.raises(RunError, match="a language model is needed"):
        run.beside(language_model=stranger)


def test_nobody_beside_a_run_is_forgotten(run: Run, other: Run) -> None:
    together = run.beside([other])
    for joined in (lambda: together.beside([run]), lambda: run.beside([together])):
        with pytest.raises(SettingError, match="name all of them in one call"):
            joined()


def test_a_model_without_attention_has_no_coverage(tmp_path: Path) -> None:
    data = write_tsv(tmp_path / "a.tsv", reversal_pairs(50))
    settings = tiny_settings(data, "training.steps=1")
    stack = {"kind": "recurrent", "n_layers": 1, "dropout": 0.0}
    settings["model"].update(encoder=stack, decoder={**stack, "context": {"kind": "fixed"}})
    path, _ = transduce.train(settings, tmp_path / "run")
    model = transduce.load(path)
    with pytest.raises(RunError, match="no attention"):
        model.translate_batch(["ab"], DecodingOptions(coverage_penalty=0.2))
    assert model.translate_batch(["ab"], DecodingOptions(constraints=("c",)))[0].text.count("c")


# --- a draft that guesses ahead ------------------------------------------------------------------


def counted(run: Run) -> tuple[Run, list[int]]:
    """A run that notes how many tokens each of its steps reads."""
    model = copy.deepcopy(run.model)
    read: list[int] = []
    step = model.step

    def noting(target: Padded, state: Any) -> torch.Tensor:
        read.append(target.real.shape[1])
        return step(target, state)  # type: ignore[no-any-return]

    model.step = noting
    noted = copy.copy(run)
    noted.predictor = copy.copy(run.predictor)
    noted.predictor.model = noted.model = model  # type: ignore[misc]
    return noted, read


OFTEN = [
    DecodingOptions(beam_size=1),
    DecodingOptions(beam_size=1, no_repeat_ngram=2, repetition_penalty=1.2, min_length=9),
    DecodingOptions(beam_size=1, prefix="c a"),
    DecodingOptions(beam_size=1, constraints=("e e", ("a", "b"))),
    DecodingOptions(method="sample", top_k=4),
    DecodingOptions(method="sample", temperature=2.0),
]


@pytest.mark.parametrize("options", OFTEN, ids=range(len(OFTEN)))
def test_a_draft_changes_no_output_however_good_it_is(
    run: Run, other: Run, options: DecodingOptions
) -> None:
    texts = [*some_texts(40), "", "abcde" * 6]
    alone = run.translate_batch(texts, options)
    for draft in (run, other):
        found = run.beside(draft=draft).translate_batch(texts, options)
        assert [one.text for one in found] == [one.text for one in alone]
        assert [one.score for one in found] == pytest.approx([one.score for one in alone], abs=1e-4)
        parts = run.beside(draft=draft).stream(texts[0], options)
        assert "".join(parts) == alone[0].text


def test_a_draft_that_is_right_saves_most_passes(run: Run) -> None:
    large, read = counted(run)
    options = DecodingOptions(beam_size=1)
    texts = [*dict.fromkeys(some_texts(40))]
    found = large.beside(draft=run).translate_batch(texts, options)
    assert len(read) < sum(len(one.tokens) + 1 for one in found) / 2


@pytest.mark.parametrize(
    "options",
    [
        DecodingOptions(beam_size=2),
        DecodingOptions(beam_size=1, coverage_penalty=0.1),
        DecodingOptions(beam_size=1, shortlist=True),
        DecodingOptions(method="sample", n_best=2),
        DecodingOptions(method="sample", minimum_risk="chrf"),
    ],
    ids=range(5),
)
def test_a_draft_follows_one_hypothesis(run: Run, options: DecodingOptions) -> None:
    together = run.beside(draft=run)
    with pytest.raises(SettingError, match="a draft follows one hypothesis: set beam_size = 1"):
        together.translate_batch(["ab"], options)
    with pytest.raises(SettingError):
        together.translator.check(options)
    with pytest.raises(SettingError, match="one model alone"):
        run.beside([run], draft=run)


def test_an_ensemble_goes_as_far_as_its_shortest_model(run: Run, other: Run) -> None:
    short = copy.copy(other)
    short.predictor = copy.copy(other.predictor)
    short.translator.longest, short.translator.reach = 3, 2
    for together in (run.beside([short]), short.beside([run])):
        assert (together.translator.longest, together.translator.reach) == (3, 2)
        found = together.translate("abc").tokens
        assert len(found) <= 2
    assert run.translator.reach is None


def test_a_prefix_has_positions(run: Run) -> None:
    short = copy.copy(run)
    short.predictor = copy.copy(run.predictor)
    short.translator.reach = 2
    options = DecodingOptions(prefix="a b c")
    with pytest.raises(SettingError, match="prefix: 3 tokens are more than the 2"):
        short.translator.check(options)
    with pytest.raises(SettingError, match="line 1: prefix"):
        short.translate("ab", options)


def test_a_constraint_keeps_to_what_can_be_said(run: Run) -> None:
    options = DecodingOptions(constraints=(("a", "b c"),), avoid=("a",), beam_size=4, n_best=4)
    found = run.translate("cccc", options)
    assert all(within("b c", candidate.text) for candidate in found.candidates)
    with pytest.raises(SettingError, match="'a' or 'b a' cannot be said, as avoid rules it out"):
        run.translate("ab", dataclasses.replace(options, constraints=(("a", "b a"),)))

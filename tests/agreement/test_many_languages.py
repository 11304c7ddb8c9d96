"""An imported NLLB serves a newcomer: languages by options, tags and pairs of the server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import transduce
from helpers.hugging_face import sentences
from helpers.served import served
from helpers.text_to_text import made
from transduce.cli.main import main
from transduce.errors import SettingError
from transduce.loading import Run
from transduce.runs.importing import import_run
from transduce.serve.runs import read_specs
from transduce.tasks.translation.alignment import translated_words
from transduce.tasks.translation.quality_estimation import confidences
from transduce.text.languages import known_code, languages_of

TEXTS = sentences(3)


@pytest.fixture(scope="module")
def nllb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of five languages."""
    directory = tmp_path_factory.mktemp("nllb")
    made("nllb", directory / "saved")
    return import_run(directory / "saved", directory / "run")


@pytest.fixture(scope="module")
def run(nllb: Path) -> Run:
    return transduce.load(nllb, "cpu")


def texts_of(run: Run, texts: list[str]) -> list[str]:
    return [translation.text for translation in run.translate(texts)]


def test_codes_of_languages_are_the_usual_ones() -> None:
    tokens = ["deu_Latn", "zho_Hans", "zho_Hant", "kas_Arab", "kas_Deva", "lld_Latn", "<s>", "a_B"]
    assert languages_of(tokens) == {
        "de": "deu_Latn",
        "zh-Hans": "zho_Hans",
        "zh-Hant": "zho_Hant",
        "ks-Arab": "kas_Arab",
        "ks-Deva": "kas_Deva",
        "lld": "lld_Latn",
    }
    assert languages_of(["__fr__", "__zh__"]) == {"fr": "__fr__", "zh-Hans": "__zh__"}
    assert languages_of(["en_XX", "zh_CN"]) == {"en": "en_XX", "zh-Hans": "zh_CN"}
    codes = {"de", "zh-Hant", "lld", "no"}
    named = {"DE": "de", "deu_Latn": "de", "German": "de", "de-AT": "de", "zho_Hant": "zh-Hant"}
    named |= {"nb": "no", "lld": "lld"}
    assert {name: known_code(name, codes) for name in named} == named
    assert known_code("fr", codes) is None


def test_a_recipe_names_the_languages(run: Run) -> None:
    languages = run.translator.recipe.languages
    assert languages.sources == ("en", "de", "fr", "zh-Hans", "zh-Hant")
    assert set(languages.targets) == set(languages.sources)


def test_tags_and_options_choose_the_same_languages(run: Run) -> None:
    chosen = texts_of(run.between("fr", "zh-Hant"), TEXTS)
    assert chosen == texts_of(run, [f"<fr> <zh-Hant> {text}" for text in TEXTS])
    assert chosen == texts_of(run.between("fra_Latn"), [f"<zh-Hant> {text}" for text in TEXTS])
    pairs = [("fr", "zh-Hant"), ("de", "zh-Hant"), ("fr", "zh-Hans")]
    scores = {next(run.between(*pair).translate(TEXTS[:1])).score for pair in pairs}
    assert len(scores) == 3
    (lines,) = texts_of(run.between("fr", "zh-Hant"), ["\n".join(TEXTS)])
    assert lines == "\n".join(chosen)


def test_a_long_text_keeps_its_languages_in_every_piece(run: Run) -> None:
    long = " ".join(sentences(20))
    translator = run.between("fr", "de").translator
    (source,) = translator.read([long], 0)
    pieces = list(translator.pieces(source, translator.options, 0, 0))  # type: ignore[arg-type]
    assert len(pieces) > 1
    tokenizer: Any = translator.source
    assert {piece.source[0] for piece in pieces} == {tokenizer.language("fr")}
    assert {piece.prompt[1] for piece in pieces} == {tokenizer.language("de")}


def test_a_text_without_a_target_language_is_an_error_of_its_own(run: Run) -> None:
    results = run.translator.attempt([TEXTS[0], f"<de> {TEXTS[0]}", ""])
    assert "--target-language" in str(results[0])
    assert not isinstance(results[1], Exception) and not isinstance(results[2], Exception)
    with pytest.raises(SettingError, match="'xx' is not a target language"):
        run.between("en", "xx")


def test_a_run_of_one_pair_needs_no_tags(nllb: Path, run: Run, tmp_path: Path) -> None:
    """And its pairs for training begin with the tokens of their languages."""
    pair = ["languages.source=fr", "languages.target=de"]
    single = transduce.load(import_run(nllb.parent / "saved", tmp_path / "run", False, pair), "cpu")
    assert texts_of(single, TEXTS) == texts_of(run.between("fr", "de"), TEXTS)
    source: Any = single.translator.source
    target: Any = single.translator.target
    assert source.encode("ab")[0] == source.language("fr")
    assert target.encode("ab")[0] == target.language("de")
    scores = single.score([(TEXTS[0], TEXTS[1])])
    assert next(scores) < 0


def test_scores_and_confidence_are_of_the_languages(run: Run) -> None:
    """The log-probability of an output, given the token of its language."""
    chosen = run.between("fr", "de")
    (translation,) = chosen.translator.translate(TEXTS[:1])
    tagged = f"<fr> <de> {TEXTS[0]}"
    for translator, text in ((chosen.translator, TEXTS[0]), (run.translator, tagged)):
        (confidence,) = confidences(translator, [text], [translation])
        assert confidence is not None
        assert len(confidence.token_log_probs) == len(translation.tokens)
        total = sum((*confidence.token_log_probs, *confidence.end_log_probs))
        assert total == pytest.approx(translation.log_prob, abs=1e-4)


@pytest.mark.parametrize("family", ["nllb", "m2m100"])
def test_words_of_a_tagged_source_are_of_its_languages(family: str, tmp_path: Path) -> None:
    made(family, tmp_path / "saved")
    run = transduce.load(import_run(tmp_path / "saved", tmp_path / "run"), "cpu")
    source, target = TEXTS[:2]
    tagged = translated_words(run.translator, source, target, "<fr> <de> ")
    bare = translated_words(run.between("fr", "de").translator, source, target)
    assert tagged.source == bare.source and tagged.target == bare.target
    assert tagged.probabilities.tolist() == bare.probabilities.tolist()
    assert len(bare.source) == len(source.replace(".", " .").split())


def test_the_command_line_translates(nllb: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    out = tmp_path / "out"
    options = ["--source-language", "fr", "--target-language", "de", "--device", "cpu"]
    main(["translate", str(nllb), str(tmp_path / "in"), "--output", str(out), *options])
    expected = texts_of(run.between("fr", "de"), TEXTS)
    assert out.read_text(encoding="utf-8").splitlines() == expected
    records = "".join(json.dumps({"source": text}) + "\n" for text in TEXTS)
    (tmp_path / "in").write_text(records, encoding="utf-8")
    main(["translate", str(nllb), str(tmp_path / "in"), "--jsonl", "--output", str(out), *options])
    lines = out.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["translation"] for line in lines] == expected


def test_a_server_has_every_pair(nllb: Path) -> None:
    (spec,) = read_specs([nllb])
    assert len(spec.pairs) == 20 and ("de", "zh-Hant") in spec.pairs
    assert spec.tag("de", "zh-Hant") == "<de> <zh-Hant> "


def test_documents_are_translated_between_languages(nllb: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text(TEXTS[0] + "\n", encoding="utf-8")
    options = ["--source-language", "fr", "--target-language", "de", "--device", "cpu"]
    main(
        [
            "localise",
            str(nllb),
            str(tmp_path / "in.txt"),
            "--output",
            str(tmp_path / "out"),
            *options,
        ]
    )
    expected = texts_of(run.between("fr", "de"), TEXTS[:1])
    written = (tmp_path / "out" / "in.txt").read_text(encoding="utf-8")
    assert written.splitlines() == expected


@pytest.mark.system
def test_a_server_translates_every_pair(nllb: Path, run: Run) -> None:
    with served(nllb) as server:
        _, languages = server.ask("/languages")
        assert {entry["code"] for entry in languages} == {"en", "de", "fr", "zh-Hans", "zh-Hant"}
        for source, target in (("fr", "de"), ("de", "zh-Hant")):
            body = {"q": TEXTS[0], "source": source, "target": target}
            status, answer = server.ask("/translate", body)
            assert status == 200, answer
            assert [answer["translatedText"]] == texts_of(run.between(source, target), TEXTS[:1])

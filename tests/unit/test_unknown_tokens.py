"""Warnings of tokens that a vocabulary lacks, once for each run."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import transduce
from helpers.hugging_face import sentences, word_piece
from helpers.tiny_run import reversal_pairs, stack, tiny_settings, write_tsv
from transduce.errors import UnknownTextError
from transduce.interop.tokenizers import ENCODER, read_tokenizer
from transduce.recipes import parse_recipe
from transduce.tasks.language_model.dialogue import TrainedDialogue
from transduce.tasks.language_model.task import TrainedLanguageModel
from transduce.tasks.text_encoder.mask_filler import MaskFiller
from transduce.tasks.text_encoder.predictor import Answerer, TextClassifier, TextEmbedder
from transduce.tasks.translation.alignment import AlignmentOptions, align_pairs
from transduce.tasks.vocabularies import UnknownTokens, check_known
from transduce.text import (
    CharactersConfig,
    SubwordConfig,
    SymbolsConfig,
    Tokenizer,
    train_tokenizer,
)

TEXTS = ["<fwd> AB", "AB BA"]


def complaints(
    caplog: pytest.LogCaptureFixture, source: Tokenizer, *batches: list[str]
) -> list[str]:
    caplog.clear()
    unknown, first = UnknownTokens(source), 0
    for texts in batches:
        names = [f"line {first + i + 1}" for i in range(len(texts))]
        unknown.check([[text] for text in texts], source.encode_batch(texts), names)
        first += len(texts)
    return [record.getMessage() for record in caplog.records]


def test_the_first_line_with_unknown_letters_is_told(caplog: pytest.LogCaptureFixture) -> None:
    characters = train_tokenizer(CharactersConfig(), TEXTS)
    assert complaints(caplog, characters, ["<fwd> BA", ""], ["\t", "Abc", "ab"], ["ab"]) == [
        "line 4: 2 of 3 tokens are unknown to the model, such as 'b' (reported once)"
    ]
    lower = train_tokenizer(CharactersConfig(lowercase=True), TEXTS)
    assert complaints(caplog, lower, ["AB ab"]) == []


def test_what_a_normalizer_made_is_named(caplog: pytest.LogCaptureFixture) -> None:
    apart = train_tokenizer(CharactersConfig(normalization="nfd", lowercase=True), ["ane\u0300"])
    assert complaints(caplog, apart, ["ÀÑa"]) == [
        "line 1: 1 of 5 tokens are unknown to the model, such as '\u0303' (reported once)"
    ]


@pytest.mark.parametrize("config", [CharactersConfig(), SymbolsConfig()])
def test_a_text_is_unknown_if_none_of_its_words_is_known(
    config: CharactersConfig | SymbolsConfig,
) -> None:
    tokenizer = train_tokenizer(config, ["AB 12 .", "AB BA ."])
    for text in ("AB 打开", "12 .", "", "% %"):
        check_known(tokenizer, text, tokenizer.encode(text))
    for text in ("打开", "打开 . 12", "é"):
        with pytest.raises(UnknownTextError, match="all of its words are unknown"):
            check_known(tokenizer, text, tokenizer.encode(text))


def test_whole_symbols_are_named_and_subwords_know_everything(
    caplog: pytest.LogCaptureFixture,
) -> None:
    symbols = train_tokenizer(SymbolsConfig(), TEXTS)
    assert complaints(caplog, symbols, ["AB  BAB BA"]) == [
        "line 1: 1 of 3 tokens are unknown to the model, such as 'BAB' (reported once)"
    ]
    assert complaints(caplog, train_tokenizer(SubwordConfig(size=270), TEXTS), ["é 你"]) == []


def test_an_imported_vocabulary(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    word_piece(tmp_path, 200)
    names = {"unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]"}
    named = {f"{short}_token": name for short, name in names.items()}
    pieces = read_tokenizer(tmp_path, 200, ENCODER, named, usual="BertTokenizer")
    known = sentences(1)[0].rstrip(".")
    assert complaints(caplog, pieces, [known]) == []
    (said,) = complaints(caplog, pieces, [f"{known} 🎉 {known}"])
    assert said.startswith("line 1: 1 of ") and "such as '🎉'" in said


def test_a_run_tells(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = write_tsv(tmp_path / "pairs.tsv", reversal_pairs(60))
    run, _ = transduce.train(tiny_settings(data), tmp_path / "run")
    model = transduce.load(run, "cpu")
    model.translate_batch(["ab", "AB"])
    model.translate_batch(["AB"])
    list(model.stream("AB"))
    assert [record.getMessage() for record in caplog.records if "unknown" in record.msg] == [
        "line 2: 2 of 2 tokens are unknown to the model, such as 'A' (reported once)"
    ]


@pytest.mark.system
def test_the_unknown_letters_of_an_output_are_those_of_the_source(tmp_path: Path) -> None:
    letters = random.Random(1)
    words = ["".join(letters.choices("abcd", k=3)) for _ in range(400)]
    rare = [f"{word[: i % 4]}{chr(0x4E00 + i)}{word[i % 4 :]}" for i, word in enumerate(words)]
    pairs = [(word, f"{word}ed") for word in {*words, *rare}]
    data = write_tsv(tmp_path / "pairs.tsv", sorted(pairs))
    settings = tiny_settings(
        data,
        "model.preset=rnn-general",
        "model.d_model=32",
        "model.tie=three-way",
        "training.steps=250",
        "training.validate_every=250",
        "training.schedule.peak=1e-2",
    )
    settings["text"] = {"source": {"kind": "characters", "min_count": 3}}
    del settings["model"]["encoder"], settings["model"]["decoder"]
    run, _ = transduce.train(settings, tmp_path / "run")
    model = transduce.load(run, "cpu")
    sources = ["a学bc", "猫dcd", "bcd山", "bad", "ac\ufffdb"]
    outputs = [translation.text for translation in model.translate_batch(sources)]
    assert outputs == [f"{source}ed" for source in sources]
    assert ["".join(model.stream(source)) for source in sources] == outputs


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings of unknown tokens since the last call."""
    texts = [record.getMessage() for record in caplog.records]
    result = [text for text in texts if "unknown to" in text or "outside the vocabulary" in text]
    caplog.clear()
    return result


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("translator")
    data = write_tsv(directory / "pairs.tsv", reversal_pairs(60))
    return transduce.train(tiny_settings(data, "training.steps=1"), directory / "run")[0]


def test_scores_and_alignments_tell(translator: Path, caplog: pytest.LogCaptureFixture) -> None:
    pairs = [("ab", "b a"), ("aX", "b a"), ("aX", "b Y")]
    messages = [
        "pair 2: 1 of 2 tokens are unknown to the model, such as 'X' (reported once)",
        "pair 3: 1 of 2 tokens are unknown to the model, such as 'Y' (reported once)",
    ]
    model = transduce.load(translator, "cpu")
    list(model.score(pairs))
    list(model.score(pairs))
    assert said(caplog) == messages
    model = transduce.load(translator, "cpu").translator
    list(align_pairs(model, pairs, AlignmentOptions()))
    assert said(caplog) == messages
    transduce.load(translator, "cpu").align("aX", "b a")
    assert said(caplog) == [messages[0].replace("pair 2", "pair 1")]


def test_what_is_fine_tuned_on_is_told(
    translator: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = write_tsv(tmp_path / "more.tsv", reversal_pairs(60, letters="abXY"))
    more = tiny_settings(data, "training.steps=1", f"fine_tune.run={translator}")
    for name in ("model", "text"):
        del more[name]
    transduce.train(more, tmp_path / "tuned")
    result = [text for text in said(caplog) if "training texts" in text]
    assert len(result) == 2  # sources and targets
    for text in result:
        assert "training texts have tokens outside the vocabulary of the base run" in text
        assert "such as 'X'" in text or "such as 'Y'" in text
    same = tiny_settings(tmp_path / "more.tsv", "training.steps=1", f"fine_tune.run={translator}")
    write_tsv(data, reversal_pairs(60, seed=1))
    transduce.train(same, tmp_path / "same")
    assert said(caplog) == []


def test_every_task_on_texts_tells(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings: dict[str, dict[str, Any]] = {
        "language-model": {"decoder": stack()},
        "masked-language-model": {"encoder": stack()},
        "classification": {"encoder": stack()},
        "question-answering": {"encoder": stack()},
        "embedding": {"encoder": stack()},
        "dialogue": {"decoder": stack()},
    }
    for task, model in settings.items():
        text = {"tokenizer": {"kind": "characters"}}
        recipe: Any = parse_recipe(
            {"task": task, "data": {}, "text": text, "model": {"d_model": 16, **model}}, task
        )
        tokenizer = train_tokenizer(recipe.text.tokenizer, ["abc d"])
        made = {
            "language-model": TrainedLanguageModel.new,
            "masked-language-model": lambda r, t: MaskFiller(r, t),
            "classification": lambda r, t: TextClassifier(r, t, ("x", "y")),
            "question-answering": lambda r, t: Answerer(r, t),
            "embedding": lambda r, t: TextEmbedder(r, t),
            "dialogue": TrainedDialogue.new,
        }[task](recipe, tokenizer)
        made.model.eval()
        inputs = [["abc"] * len(made.inputs), ["ab", "aX"][-len(made.inputs) :], ["Y"] * 2]
        given = [tuple(texts[: len(made.inputs)]) for texts in inputs]
        made.predict(given, first=10)
        made.predict(given, first=10)
        (line,) = said(caplog)
        assert " 12: " in line and line.endswith(
            "unknown to the model, such as 'X' (reported once)"
        )

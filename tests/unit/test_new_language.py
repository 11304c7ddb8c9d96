"""A language added to a model of many: its token, its pieces, and all that must not change."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import transduce
from helpers.hugging_face import sentences
from helpers.native import needs_native
from helpers.text_to_text import made
from transduce import DataError, SettingError
from transduce.cli.main import main
from transduce.interop.new_language import NewLanguage
from transduce.runs.importing import import_run
from transduce.training.weights import read_tensors

NEW = sentences(300, 7, "äöüßñçx")
OLD = sentences(6, 0)


def texts_file(tmp_path: Path) -> Path:
    (tmp_path / "new.txt").write_text("\n".join(NEW), encoding="utf-8")
    return tmp_path / "new.txt"


@needs_native
@pytest.mark.parametrize("family", ["m2m100", "nllb"])
def test_token_and_pieces(family: str, tmp_path: Path) -> None:
    made(family, directory := tmp_path / "hf")
    language = NewLanguage("lld", "de", texts_file(tmp_path), 80)
    before = transduce.load(import_run(directory, tmp_path / "before"), "cpu")
    after = transduce.load(import_run(directory, tmp_path / "run", language=language), "cpu")
    old, new = before.translator.source, after.translator.source
    assert new.size > old.size + 20
    assert {"lld", "de"} <= {*after.recipe.languages.targets}  # type: ignore[attr-defined]
    for text in OLD:  # of letters that the new language has not
        assert new.encode(text)[1:] == old.encode(text)[1:]
    lengths = [sum(len(t.encode(text)) for text in NEW[:40]) for t in (old, new)]
    assert lengths[1] < 0.7 * lengths[0]
    assert [new.decode(new.encode(text)) for text in NEW[:9]] == NEW[:9]

    tables = [read_tensors(tmp_path / name / "weights.safetensors") for name in ("before", "run")]
    name = "front_end.embedding.weight"
    assert torch.equal(tables[1][name][: old.size], tables[0][name])
    tag, german = new.language("lld"), new.language("de")  # type: ignore[attr-defined]
    assert tag == old.size
    assert torch.equal(tables[1][name][tag], tables[1][name][german])
    piece = max(range(old.size + 1, new.size), key=lambda i: len(new.tokens([i])[0]))
    ids = old.encode(new.tokens([piece])[0].replace("▁", " ").strip())[1:]
    assert len(ids) > 1
    assert torch.allclose(tables[1][name][piece], tables[0][name][ids].mean(0), atol=1e-6)

    settings = ["languages.source=de", "languages.target=lld"]
    pair = import_run(tmp_path / "before", tmp_path / "pair", False, settings, language)
    assert transduce.load(pair, "cpu").translator.target.opening == (tag,)

    native = transduce.load(tmp_path / "run", "cpu", engine="native")
    line = f"<en> <lld> {OLD[0]}"
    assert native.translate(line).text == after.translate(line).text
    assert before.translate(f"<en> <de> {OLD[0]}") is not None


def test_a_token_alone_and_from_a_run(tmp_path: Path) -> None:
    made("m2m100", tmp_path / "hf")
    before = import_run(tmp_path / "hf", tmp_path / "before")
    run = tmp_path / "run"
    assert main(["import", str(before), str(run), "--add-language", "roh"]) == 0
    table = read_tensors(run / "weights.safetensors")["front_end.embedding.weight"]
    loaded = transduce.load(run, "cpu").translator.source
    known = [i for code, i in loaded.numbering.languages.items() if code != "roh"]  # type: ignore[attr-defined]
    here = [loaded.numbering.rows.index(i) for i in known]  # type: ignore[attr-defined]
    assert torch.allclose(table[-1], table[here].mean(0), atol=1e-6)
    assert main(["import", str(before), str(tmp_path / "x"), "--like", "de"]) == 2


def test_fine_tuning_keeps_the_languages(tmp_path: Path) -> None:
    made("m2m100", tmp_path / "hf")
    settings = ["languages.source=de", "languages.target=lld"]
    language = NewLanguage("lld", "de")
    start = import_run(tmp_path / "hf", tmp_path / "start", False, settings, language)
    pairs = "".join(f"{old}\t{new}\n" for old, new in zip(OLD * 4, NEW[:24], strict=True))
    (tmp_path / "pairs.tsv").write_text(pairs, encoding="utf-8")
    recipe = {
        "task": "translation",
        "fine_tune": {"run": str(start)},
        "data": {
            "train": {"kind": "tsv", "path": str(tmp_path / "pairs.tsv")},
            "hold_out": 0.2,
            "filters": {"max_length": 90},
        },
        "training": {"steps": 2, "validate_every": 2},
    }
    tuned = transduce.load(transduce.train(recipe, tmp_path / "tuned")[0], "cpu")
    base = transduce.load(start, "cpu")
    for side in ("source", "target"):
        opening = getattr(tuned.translator, side).opening
        assert len(opening) == 1 and opening == getattr(base.translator, side).opening
    recipe["languages"] = {"target": ["de", "lld"]}
    with pytest.raises(SettingError, match="is fine-tuned for a pair"):
        transduce.train(recipe, tmp_path / "other")


@pytest.mark.parametrize(
    ("language", "message"),
    [
        (NewLanguage("de"), "has the language 'de' already"),
        (NewLanguage("lld", "tlh"), "'tlh' is not a language of the model"),
        (NewLanguage("lld", texts=Path("empty.txt")), "no pieces can be learnt"),
    ],
)
def test_mistakes(language: NewLanguage, message: str, tmp_path: Path) -> None:
    made("m2m100", directory := tmp_path / "hf")
    if language.texts is not None:
        (tmp_path / "empty.txt").write_text("\n", encoding="utf-8")
        language = NewLanguage("lld", texts=tmp_path / "empty.txt")
    with pytest.raises((SettingError, DataError), match=message) as refused:
        import_run(directory, tmp_path / "run", language=language)
    assert "\n" not in str(refused.value) and not (tmp_path / "run").exists()


def test_a_unigram_of_numbered_pieces_gets_the_token_alone(tmp_path: Path) -> None:
    made("mbart", directory := tmp_path / "hf")
    with pytest.raises(DataError, match="of Unigram cannot grow"):
        language = NewLanguage("lld", "de", texts_file(tmp_path))
        import_run(directory, tmp_path / "run", language=language)
    run = import_run(directory, tmp_path / "run", language=NewLanguage("lld", "de"))
    assert transduce.load(run, "cpu").translate(f"<en> <lld> {OLD[0]}").text is not None

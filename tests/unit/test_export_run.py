"""An exported directory needs nothing of ours: CTranslate2 and SentencePiece give our lines."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

import transduce
from helpers.tiny_run import reversal_pairs, tiny_settings, write_tsv
from transduce import DecodingOptions, RunError
from transduce.cli.main import main
from transduce.errors import TransduceError
from transduce.runs.exporting import export_run
from transduce.text import load_tokenizer

ctranslate2 = pytest.importorskip("ctranslate2", reason="needs the extra ctranslate2")

RUN = Path(__file__).parents[1] / "runs" / "0.1.0" / "translation"
LINES = ["dog", "a good hat", "Zürich", "the cat and the red dog", "fine fine film", "a 犬 sad"]
OPTIONS = DecodingOptions(beam_size=4, length_penalty="mean", max_length_extra=30)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_other_programs_give_the_same_lines(tmp_path: Path, precision: Any) -> None:
    directory = export_run(RUN, tmp_path / "model", precision)
    names = {path.name for path in directory.iterdir()}
    assert names == {
        *("model.bin", "config.json", "shared_vocabulary.json"),
        *("sentencepiece.model", "README.md"),
    }
    pieces = sentencepiece.SentencePieceProcessor(str(directory / "sentencepiece.model"))
    model = ctranslate2.Translator(str(directory), intra_threads=1)
    found = model.translate_batch(
        [pieces.encode(line, out_type=str) for line in LINES], beam_size=4, max_decoding_length=30
    )
    right = transduce.load(RUN, "cpu").translate_batch(LINES, OPTIONS)
    texts = [pieces.decode(result.hypotheses[0]) for result in found]
    same = sum(a == b.text for a, b in zip(texts, right, strict=True))
    assert same == len(LINES) if precision == "float32" else same >= len(LINES) / 2


def test_as_argos_translate_and_libre_translate_ask(tmp_path: Path) -> None:
    """One tokenizer, no end of sentence, unknown words replaced, pieces joined by hand."""
    directory = export_run(RUN, tmp_path / "model")
    pieces = sentencepiece.SentencePieceProcessor(str(directory / "sentencepiece.model"))
    model = ctranslate2.Translator(str(directory), intra_threads=1)
    tokens = [pieces.encode(line, out_type=str) for line in LINES]
    found = model.translate_batch(
        tokens,
        replace_unknowns=True,
        max_batch_size=32,
        beam_size=4,
        num_hypotheses=1,
        length_penalty=0.2,
        return_scores=True,
    )
    options = DecodingOptions(beam_size=4, length_penalty="mean")
    right = transduce.load(RUN, "cpu").translate_batch(LINES, options)
    joined = ["".join(one.hypotheses[0]).replace("▁", " ").strip() for one in found]
    same = [a == b.text for a, b in zip(joined, right, strict=True)]
    assert sum(same) >= len(LINES) - 2  # its length penalty is another, and bytes are not joined


def test_int8_rounds_the_matrices(tmp_path: Path) -> None:
    sizes = [
        (export_run(RUN, tmp_path / name, name) / "model.bin").stat().st_size  # type: ignore[arg-type]
        for name in ("float32", "int8")
    ]
    # three of four bytes of nearly all weights; the table of positions stays
    assert sizes[0] - sizes[1] > 0.5 * (RUN / "weights.safetensors").stat().st_size


def test_the_snippet_of_its_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = export_run(RUN, tmp_path / "model")
    page = (directory / "README.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(directory)
    printed: list[str] = []
    exec(snippet, {"texts": LINES, "print": printed.append})
    options = DecodingOptions(beam_size=5, length_penalty="mean")
    right = transduce.load(RUN, "cpu").translate_batch(LINES, options)
    assert printed == [translation.text for translation in right]


def test_two_vocabularies_of_other_tokenizers(tmp_path: Path) -> None:
    pairs = [(source, target.upper()) for source, target in reversal_pairs(60)]
    data = write_tsv(tmp_path / "a.tsv", pairs)
    run, _ = transduce.train(tiny_settings(data), tmp_path / "run")
    directory = export_run(run, tmp_path / "model")
    source = load_tokenizer(directory / "source_tokenizer.json")
    target = load_tokenizer(directory / "target_tokenizer.json")
    vocabulary = json.loads((directory / "target_vocabulary.json").read_text(encoding="utf-8"))
    assert vocabulary == target.tokens(range(target.size))
    model = ctranslate2.Translator(str(directory), intra_threads=1)
    lines = ["abc", "edcba", "aab"]
    tokens = [source.tokens(source.encode(line)) for line in lines]
    found = model.translate_batch(tokens, beam_size=1, max_decoding_length=25)
    ids = [[vocabulary.index(name) for name in one.hypotheses[0]] for one in found]
    options = DecodingOptions(beam_size=1, max_length_ratio=0.0, max_length_extra=25)
    right = transduce.load(run, "cpu").translate_batch(lines, options)
    assert [target.decode(row) for row in ids] == [translation.text for translation in right]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("", "file", "link"):
        with pytest.raises(RunError, match="exists; give another DIRECTORY"):
            export_run(RUN, tmp_path / name)
    assert (tmp_path / "file").read_text() == "kept"


def test_again_replaces_a_file_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("old")
    with pytest.raises(RunError, match=r"page.html exists; --again replaces it"):
        export_run(RUN, page, form="html")
    assert page.read_text() == "old"
    assert main(["export", str(RUN), str(page), "--format", "html", "--again"]) == 0
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    (folder := tmp_path / "folder.html").mkdir()
    with pytest.raises(RunError, match="exists; give another FILE"):
        export_run(RUN, folder, form="html", again=True)
    with pytest.raises(RunError, match="exists; give another DIRECTORY"):
        export_run(RUN, page, form="marian", again=True)


def broken(*arguments: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("step", ["_write_tokenizers", "_card", "write_ctranslate2"])
def test_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    monkeypatch.setattr(f"transduce.runs.exporting.{step}", broken)
    with pytest.raises(KeyboardInterrupt):
        export_run(RUN, tmp_path / "new" / "model")
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda path: export_run(RUN.parent / "classification", path),
            "does not turn text into text",
        ),
        (lambda path: export_run(path / "none", path), "is not a directory"),
        (lambda path: export_run(RUN, Path("/proc") / path.name), "cannot be written"),
    ],
)
def test_what_cannot_be_is_one_line(
    tmp_path: Path, make: Callable[[Path], Path], said: str
) -> None:
    with pytest.raises(TransduceError, match=said) as caught:
        make(tmp_path / "model")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []

"""Synthetic pairs: made shard by shard, described, and mixed into training."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from helpers.tiny_run import reversal_pairs, tiny_recipe, tiny_settings, train_tiny, write_tsv
from transduce import DataError, RunError, SettingError
from transduce.data.pairs import JsonLines, read_pairs
from transduce.decoding.options import DecodingOptions
from transduce.loading import Run
from transduce.runs import synthetic
from transduce.runs.importing import average_runs
from transduce.runs.synthetic import (
    GenerationJob,
    back_translation,
    distillation,
    make_pairs,
    with_pairs,
)
from transduce.settings.sections import to_toml
from transduce.tasks.provenance import (
    provenance_text,
    read_provenance,
    record_provenance,
    write_provenance,
)
from transduce.tasks.translation.recipe import TranslationRecipe, read_pairs_of
from transduce.tasks.translation.training import encoded_pairs, vocabularies

OPTIONS = DecodingOptions(beam_size=2)


class Shouting:
    """A stand-in for a run: its translation is the text in capitals."""

    others: tuple[Shouting, ...] = ()
    precision, engine = "float32", "pytorch"

    def __init__(self, path: Path, fails_after: int = 10**9) -> None:
        path.mkdir(exist_ok=True)
        (path / "weights.safetensors").write_bytes(b"weights")
        (path / "tokenizer.json").write_bytes(b"vocabulary")
        self.path = path
        self.asked: list[tuple[int, list[str]]] = []
        self.fails_after = fails_after

    def translate_batch(
        self, texts: Sequence[str], options: DecodingOptions | None = None, first: int = 0
    ) -> list[Any]:
        if len(self.asked) == self.fails_after:
            raise KeyboardInterrupt
        self.asked.append((first, list(texts)))
        return [SimpleNamespace(text=text.upper().strip()) for text in texts]


def as_run(stand_in: Shouting) -> Run:
    return cast("Run", stand_in)


def pairs_in(file: Path) -> list[tuple[str, str]]:
    return list(read_pairs(JsonLines(path=file), Path()))


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "SHARD_TEXTS", 4)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    file = tmp_path / "texts.txt"
    file.write_text("".join(f"word{i} \u2028中\n" for i in range(9)) + "\n", encoding="utf-8")
    return file


def lines_of(texts: Path) -> list[str]:
    return texts.read_text(encoding="utf-8").split("\n")[:-1]


class TestMakePairs:
    def test_sides(self, texts: Path, tmp_path: Path) -> None:
        lines = lines_of(texts)
        run = Shouting(tmp_path / "reverse")
        job = back_translation([texts, texts], OPTIONS)
        made = pairs_in(make_pairs(as_run(run), job, tmp_path / "run" / "synthetic"))
        shouted = [(line.upper(), line) for line in lines]
        assert made == shouted + shouted
        assert [first for first, _ in run.asked] == [0, 4, 8, 12, 16]  # for sampling's streams

    def test_goes_on_where_it_stopped(self, texts: Path, tmp_path: Path) -> None:
        directory = tmp_path / "run" / "synthetic"
        job = back_translation([texts], OPTIONS)
        stopped = Shouting(tmp_path / "reverse", fails_after=2)
        with pytest.raises(KeyboardInterrupt):
            make_pairs(as_run(stopped), job, directory)
        assert sorted(file.name for file in directory.iterdir()) == [
            ".lock",
            "pairs.provenance.json",
            "shards",
        ]
        again = Shouting(tmp_path / "reverse")
        lighter = replace(job, options=replace(OPTIONS, batch_tokens=7))  # as after a full memory
        made = make_pairs(as_run(again), lighter, directory)
        assert [first for first, _ in again.asked] == [8]
        whole = make_pairs(as_run(Shouting(tmp_path / "b")), job, tmp_path / "other" / "x")
        assert made.read_bytes() == whole.read_bytes()
        assert not (directory / "shards").exists()
        done = Shouting(tmp_path / "reverse")
        (directory / "shards").mkdir()  # as when killed before they were deleted
        (directory / "shards" / "000000.jsonl").touch()
        assert make_pairs(as_run(done), job, directory) == made
        assert done.asked == []
        assert not (directory / "shards").exists()

    def test_half_a_shard_does_not_count(self, texts: Path, tmp_path: Path) -> None:
        directory = tmp_path / "run" / "synthetic"
        job = back_translation([texts], OPTIONS)
        with pytest.raises(KeyboardInterrupt):
            make_pairs(as_run(Shouting(tmp_path / "reverse", fails_after=1)), job, directory)
        (directory / "shards" / "000001.jsonl.tmp").write_text('{"sour', encoding="utf-8")
        made = make_pairs(as_run(Shouting(tmp_path / "reverse")), job, directory)
        assert [target for _, target in pairs_in(made)] == lines_of(texts)

    @pytest.mark.parametrize(
        ("change", "named"),
        [
            ({"options": replace(OPTIONS, beam_size=1)}, "decoding"),
            ({"made_side": "target"}, "made_side"),
            ({"texts": lambda: iter(["other"])}, "texts"),
            ({}, "weights"),
        ],
    )
    def test_other_work_is_not_gone_on_with(
        self, texts: Path, tmp_path: Path, change: dict[str, Any], named: str
    ) -> None:
        directory = tmp_path / "run" / "synthetic"
        job = back_translation([texts], OPTIONS)
        run = Shouting(tmp_path / "reverse")
        make_pairs(as_run(run), job, directory)
        if not change:
            (run.path / "weights.safetensors").write_bytes(b"others")
        job = replace(job, **change)
        with pytest.raises(RunError, match=f"with different {named};"):
            make_pairs(as_run(run), job, directory)
        made = make_pairs(as_run(run), job, directory, overwrite=True)
        assert pairs_in(made) == [
            tuple(job.pair(text, text.upper().strip()).values()) for text in job.texts()
        ]

    @pytest.mark.parametrize(("name", "value"), [("precision", "int8"), ("engine", "native")])
    def test_how_the_run_is_loaded_is_part_of_the_work(
        self, texts: Path, tmp_path: Path, name: str, value: str
    ) -> None:
        job, run = back_translation([texts], OPTIONS), Shouting(tmp_path / "reverse")
        made = make_pairs(as_run(run), job, tmp_path / "run" / "synthetic")
        setattr(run, name, value)
        with pytest.raises(RunError, match=f"with different {name};"):
            make_pairs(as_run(run), job, made.parent)

    def test_runs_beside_it_are_part_of_the_work(self, texts: Path, tmp_path: Path) -> None:
        job = back_translation([texts], OPTIONS)
        run, second = Shouting(tmp_path / "first"), Shouting(tmp_path / "second")
        alone = make_pairs(as_run(run), job, tmp_path / "alone" / "synthetic")
        assert "runs_beside" not in (read_provenance(alone) or {})
        run.others = (second,)
        with pytest.raises(RunError, match="with different runs_beside;"):
            make_pairs(as_run(run), job, alone.parent)
        together = make_pairs(as_run(run), job, tmp_path / "together" / "synthetic")
        facts = read_provenance(together) or {}
        assert facts["runs_beside"] == [str(second.path.resolve())]
        assert make_pairs(as_run(run), job, together.parent) == together
        (second.path / "weights.safetensors").write_bytes(b"others")
        with pytest.raises(RunError, match="with different runs_beside;"):
            make_pairs(as_run(run), job, together.parent)

    def test_only_its_own_directory_matters(self, texts: Path, tmp_path: Path) -> None:
        (tmp_path / "python").symlink_to("/usr/bin/env")  # as in a virtual environment beside it
        job = back_translation([texts], OPTIONS)
        make_pairs(as_run(Shouting(tmp_path / "reverse")), job, tmp_path / "pairs")
        assert not (tmp_path / ".lock").exists()

    def test_provenance(self, texts: Path, tmp_path: Path) -> None:
        run = Shouting(tmp_path / "reverse")
        file = make_pairs(as_run(run), back_translation([texts], OPTIONS), tmp_path / "r" / "s")
        facts = read_provenance(file)
        assert facts is not None
        assert facts["made_by"] == "transduce backtranslate"
        assert facts["run"] == str(run.path.resolve())
        assert facts["files"] == [str(texts.resolve())]
        assert facts["texts"] == 10 and facts["decoding"]["beam_size"] == 2
        # printf weights | sha256sum
        assert facts["weights_sha256"].startswith("9a129038d9a00aed")  # of b"weights"
        assert set(facts["vocabularies_sha256"]) == {"tokenizer.json"}
        assert facts["begun"] <= facts["finished"]

    def test_nothing_to_translate(self, tmp_path: Path) -> None:
        job = GenerationJob("x", list, ("none.txt",), "target", OPTIONS)
        with pytest.raises(DataError, match="no texts to translate"):
            make_pairs(as_run(Shouting(tmp_path / "r")), job, tmp_path / "run" / "synthetic")


class TestMix:
    @pytest.fixture
    def data(self, tmp_path: Path) -> Path:
        return write_tsv(tmp_path / "pairs.tsv", reversal_pairs(300))

    @pytest.fixture
    def more(self, tmp_path: Path) -> Path:
        """All sources of the first corpus once more, and other ones."""
        pairs = [(source, "x") for source, _ in reversal_pairs(300)]
        return write_tsv(tmp_path / "more.tsv", [*pairs, ("zz", "z z")])

    def test_what_is_set_aside_is_of_the_first_corpus_and_in_none(
        self, data: Path, more: Path
    ) -> None:
        alone = tiny_recipe(data).data
        mixed = tiny_recipe(data, f"data.mix=[{{pairs={{kind='tsv', path='{more}'}}}}]").data
        for split in ("valid", "test"):
            assert list(read_pairs_of(mixed, split)) == list(read_pairs_of(alone, split))
        held_out = {s for split in ("valid", "test") for s, _ in read_pairs_of(mixed, split)}
        trained = list(read_pairs_of(mixed, "train"))
        assert trained[: len(trained) // 2] == list(read_pairs_of(alone, "train"))
        assert {s for s, t in trained if t == "x"} == {s for s, _ in reversal_pairs(300)} - held_out
        assert trained[-1] == ("zz", "z z") and len(held_out) > 30

    def test_weight_0_leaves_out(self, data: Path, more: Path) -> None:
        mix = f"data.mix=[{{pairs={{kind='tsv', path='{more}'}}}}]"
        only = tiny_recipe(data, mix, "data.train_weight=0").data
        assert {t for _, t in read_pairs_of(only, "train")} == {"x", "z z"}
        assert len(list(read_pairs_of(only, "valid"))) > 10
        with pytest.raises(SettingError, match="raise one of them"):
            tiny_recipe(data, "data.train_weight=0")

    def test_messages_say_which_corpus(
        self, data: Path, more: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        def encode(*mixed: Path) -> str:
            entries = ", ".join(f"{{pairs={{kind='tsv', path='{path}'}}}}" for path in mixed)
            recipe = tiny_recipe(data, f"data.mix=[{entries}]")
            caplog.clear()
            with caplog.at_level("INFO", "transduce"):
                encoded_pairs(recipe, *vocabularies(recipe, data.parent), data.parent / "cache")
            return caplog.text

        assert "train: " in encode()
        both = encode(more)
        assert f"train, {data}: " in both and f"train, {more}: " in both
        empty = write_tsv(data.parent / "empty.tsv", [(" ", "x")] * 3)
        with pytest.raises(DataError, match=f"^train, {empty}: no pairs left after filtering"):
            encode(empty)

    def test_mistakes_in_a_list_of_sections(self, data: Path) -> None:
        def refusal(entry: str) -> str:
            with pytest.raises(SettingError) as caught:
                tiny_recipe(data, f"data.mix=[{entry}]")
            return str(caught.value)

        pairs = "pairs={kind='tsv', path='a.tsv'}"
        assert "data.mix.0.wieght is not a setting; did you mean 'weight'?" in refusal(
            f"{{{pairs}, wieght=2}}"
        )
        assert "data.mix.1.pairs is missing" in refusal(f"{{{pairs}}}, {{}}")
        assert "data.mix.0.pairs.kind is missing" in refusal("{pairs={path='a.tsv'}}")
        assert "data.mix.0.pairs.file is not a setting" in refusal(
            "{pairs={kind='tsv', path='a', file='b'}}"
        )
        assert "data.mix.0.weight" in refusal(f"{{{pairs}, weight=-1}}")

    def test_a_recipe_with_a_mix_survives_the_run_directory(self, data: Path, more: Path) -> None:
        recipe = tiny_recipe(
            data, f"data.mix=[{{weight=0.5, pairs={{kind='tsv', path='{more}'}}}}]"
        )
        assert TranslationRecipe.parse(tomllib.loads(to_toml(recipe)), "r") == recipe

    def test_student_recipes(self, data: Path, more: Path, tmp_path: Path) -> None:
        recipe = tiny_recipe(data, f"data.mix=[{{pairs={{kind='tsv', path='{more}'}}}}]")
        both = with_pairs(recipe, tmp_path / "p.jsonl", 2.0, keep=True).data
        assert [weight for _, weight in both.corpora()] == [1.0, 1.0, 2.0]
        alone = with_pairs(recipe, tmp_path / "p.jsonl", 1.0, keep=False).data
        assert [part.train for part, _ in alone.corpora()] == [both.mix[-1].pairs]
        assert distillation(recipe.data, OPTIONS).files == (str(data), str(more))

    def test_training_on_a_mix_tells_where_it_is_from(self, data: Path, tmp_path: Path) -> None:
        teacher = Shouting(tmp_path / "teacher")
        recipe = tiny_recipe(data)
        job = distillation(recipe.data, OPTIONS)
        pairs = make_pairs(as_run(teacher), job, tmp_path / "data" / "synthetic")
        assert [s for s, _ in pairs_in(pairs)] == [
            s for s, _ in read_pairs_of(recipe.data, "train")
        ]
        mix = f"data.mix=[{{weight=0.3, pairs={{kind='jsonl', path='{pairs}'}}}}]"
        run, _ = train_tiny(data, tmp_path / "run", mix, "training.steps=2")
        (told,) = json.loads((run / "provenance.json").read_text(encoding="utf-8"))["synthetic"]
        assert told == {"file": str(pairs), **(read_provenance(pairs) or {})}
        card = (run / "README.md").read_text(encoding="utf-8")
        assert provenance_text(run).strip() in card and f"`{teacher.path.name}`" in card
        assert f"`{pairs.name}`" in card and str(tmp_path) not in card
        average_runs([run, run], tmp_path / "mean")
        assert provenance_text(tmp_path / "mean") == provenance_text(run)
        card = (tmp_path / "mean" / "README.md").read_text(encoding="utf-8")
        assert f"`{teacher.path.name}`" in card and "The mean of the weights of `run`" in card
        plain, _ = train_tiny(data, tmp_path / "plain", "training.steps=2")
        assert not (plain / "provenance.json").exists()
        assert "synthetic" not in (plain / "README.md").read_text(encoding="utf-8")

    def test_one_description_of_both_sides_and_of_what_is_compressed(self, tmp_path: Path) -> None:
        write_provenance(tmp_path / "back.jsonl", {"texts": 300})
        files = [tmp_path / name for name in ("back.jsonl.gz", "back.en", "back.de", "other.tsv")]
        record_provenance(files, tmp_path)
        told = json.loads((tmp_path / "provenance.json").read_text(encoding="utf-8"))
        assert [one["texts"] for one in told["synthetic"]] == [300]

    @pytest.mark.system
    def test_resume_is_exact(self, data: Path, more: Path, tmp_path: Path) -> None:
        mix = f"data.mix=[{{weight=0.3, pairs={{kind='tsv', path='{more}'}}}}]"
        options = (mix, "training.validate_every=10", "data.train_weight=0.2")
        whole, _ = train_tiny(data, tmp_path / "whole", "training.steps=30", *options)
        part, _ = train_tiny(data, tmp_path / "part", "training.steps=20", *options)
        train_tiny(data, part, "training.steps=30", *options, resume=True)
        assert (whole / "weights.safetensors").read_bytes() == (
            part / "weights.safetensors"
        ).read_bytes()
        assert tiny_settings(data)["training"]["batch_tokens"] == 256  # so 30 steps are epochs


def test_a_weight_too_small_for_any_pair_is_refused_at_once(texts: Path, tmp_path: Path) -> None:
    run, job = Shouting(tmp_path / "run"), back_translation([texts], OPTIONS)
    with pytest.raises(
        SettingError, match=r"--weight 0.05 leaves an epoch with none of the 10 pairs; raise it"
    ):
        make_pairs(as_run(run), job, tmp_path / "synthetic", weight=0.05)
    assert not run.asked
    assert len(pairs_in(make_pairs(as_run(run), job, tmp_path / "synthetic", weight=0.2))) == 10

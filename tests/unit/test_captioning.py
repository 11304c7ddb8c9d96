"""Captions: an image front end under a text decoder learns, decodes and is measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import transduce
from helpers.pictures import png, squares, write_table
from helpers.tiny_run import training
from transduce import DataError, SettingError
from transduce.decoding.options import DecodingOptions
from transduce.sequence import Padded
from transduce.settings.sections import apply_overrides
from transduce.text import BOS, EOS, PAD, SymbolsConfig, train_tokenizer
from transduce.vision.captioning import Caption, Captioner, CaptioningRecipe, new_captioner
from transduce.vision.explaining import explain_captioning
from transduce.vision.images import normalise_pixels, read_image
from transduce.vision.splits import read_images_of

STACK = {"n_layers": 1, "n_heads": 2, "d_ff": 64, "norm_order": "pre", "dropout": 0.0}
MODEL = {
    "vision": {"d_model": 32, "patch_size": 5, "encoder": {**STACK, "positions": "learned"}},
    "decoder": STACK,
}
GREEDY = DecodingOptions(beam_size=1)


def settings(train: dict[str, Any], /, *overrides: str, **sections: Any) -> dict[str, Any]:
    """A recipe for the images and captions that a section names."""
    recipe = {
        "task": "captioning",
        "data": {"train": train, "hold_out": 0.1},
        "image": {"size": 15},
        "text": {"tokenizer": {"kind": "symbols"}, "max_length": 16},
        "model": MODEL,
        "training": training(8, 288, 5e-3, warmup=10, validate_every=4, label_smoothing=0.0),
        **sections,
    }
    return apply_overrides(recipe, overrides)


def fresh(*overrides: str) -> Captioner:
    """A captioner with first weights, which says anything but the same of every picture."""
    torch.manual_seed(1)
    recipe = CaptioningRecipe.parse(
        settings({"kind": "table", "path": "a.tsv"}, *overrides), "recipe"
    )
    tokenizer = train_tokenizer(SymbolsConfig(), squares(50)[1])
    captioner = new_captioner(recipe, tokenizer, Path("unused"))
    with torch.no_grad():
        for name, parameter in captioner.model.named_parameters():
            if "cross_attention" in name:
                parameter.mul_(6)
    return captioner


def write_files(directory: Path, n: int, seed: int = 7) -> list[tuple[str]]:
    """Paths of so many pictures."""
    paths = [directory / f"{i}.png" for i in range(n)]
    for path, picture in zip(paths, squares(n, seed)[0], strict=True):
        path.write_bytes(png(picture))
    return [(str(path),) for path in paths]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return write_table(tmp_path_factory.mktemp("data") / "squares", *squares(100))


@pytest.fixture(scope="module")
def run(data: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return transduce.train(settings(data), tmp_path_factory.mktemp("runs") / "run")[0]


def texts(captions: Sequence[Caption]) -> list[str]:
    return [caption.text for caption in captions]


class TestLearning:
    @pytest.mark.system
    def test_learns_to_count_and_to_tell_colours(self, tmp_path: Path) -> None:
        recipe = settings(
            write_table(tmp_path / "train", *squares(600)),
            "training.steps=300",
            "training.validate_every=100",
            'evaluation.metrics=["bleu", "accuracy"]',
        )
        recipe["data"]["test"] = write_table(tmp_path / "test", *squares(80, seed=1))
        path, _ = transduce.train(recipe, tmp_path / "run")
        loaded = transduce.load(path)
        evaluation = loaded.evaluate()
        assert evaluation.scores["accuracy"] > 90
        assert evaluation.scores["bleu"] > 90
        assert loaded.evaluate(options=GREEDY).scores["accuracy"] > 90

    def test_fine_tuned_from_another_run(self, data: Any, run: Path, tmp_path: Path) -> None:
        recipe = settings(data, "training.steps=1", "training.schedule.peak=1e-9")
        del recipe["model"], recipe["image"], recipe["text"]["tokenizer"]
        recipe["fine_tune"] = {"run": str(run)}
        path, _ = transduce.train(recipe, tmp_path / "run")
        before, after = transduce.load(run), transduce.load(path)
        assert (after.recipe.model, after.recipe.image) == (
            before.recipe.model,
            before.recipe.image,
        )
        paths = write_files(tmp_path, 5)
        scores = [caption.score for caption in after.predict(paths)]
        assert scores == pytest.approx([caption.score for caption in before.predict(paths)])


class TestPredicting:
    @pytest.mark.parametrize("beam_size", [1, 4])
    def test_the_batch_changes_nothing(self, beam_size: int, tmp_path: Path) -> None:
        captioner, options = fresh(), DecodingOptions(beam_size=beam_size, min_length=3)
        paths = write_files(tmp_path, 40)  # more than go together
        together = captioner.predict(paths, options)
        assert len(set(texts(together))) > 3
        for i in (0, 7, 31, 32, 39):
            (alone,) = captioner.predict([paths[i]], options)
            assert alone.text == together[i].text
            assert alone.score == pytest.approx(together[i].score, abs=1e-4)

    def test_greedy_takes_the_likeliest_token(self, tmp_path: Path) -> None:
        captioner, paths = fresh(), write_files(tmp_path, 4)
        for path, caption in zip(paths, captioner.predict(paths, GREEDY), strict=True):
            image = normalise_pixels(read_image(Path(path[0]), 3)[None], captioner.recipe.image)
            ids = [BOS]
            while ids[-1] != EOS and len(ids) <= 14:
                logits = captioner.model(image, Padded.from_rows([ids]))[0, -1]
                logits[[BOS, PAD]] = -torch.inf
                ids.append(int(logits.argmax()))
            assert caption.text == captioner.tokenizer.decode([i for i in ids[1:] if i != EOS])

    def test_a_wider_beam_finds_nothing_worse(self, tmp_path: Path) -> None:
        captioner, paths = fresh(), write_files(tmp_path, 4)
        wide, narrow = (
            captioner.predict(paths, DecodingOptions(beam_size=size, length_penalty="none"))
            for size in (6, 1)
        )
        assert all(w.score >= n.score - 1e-5 for w, n in zip(wide, narrow, strict=True))

    def test_a_sample_goes_by_the_number_of_its_line(self, tmp_path: Path) -> None:
        captioner, paths = fresh(), write_files(tmp_path, 6)
        options = DecodingOptions(method="sample", seed=3)
        together = captioner.predict(paths, options)
        assert texts(captioner.predict(paths[2:], options, first=2)) == texts(together[2:])
        assert texts(captioner.predict(paths, options)) == texts(together)

    def test_the_search_of_an_explained_sample_is_that_of_its_line(self, tmp_path: Path) -> None:
        captioner, paths = fresh(), write_files(tmp_path, 3)
        captioner.options = DecodingOptions(method="sample", seed=3)
        together = texts(captioner.predict(paths))
        for number, path in enumerate(paths):
            explanation = explain_captioning(captioner, path, number)
            assert explanation.answer == together[number]
            words = [word for word in explanation.sequences["written"] if word != "</s>"]
            assert " ".join(words).replace("<unk>", "\ufffd") == together[number]

    def test_lengths(self, tmp_path: Path) -> None:
        paths = write_files(tmp_path, 3)
        long = DecodingOptions(beam_size=1, min_length=200)
        assert {len(text.split()) for text in texts(fresh().predict(paths, long))} == {14}
        short = DecodingOptions(beam_size=1, min_length=200, max_tokens=3)
        assert {len(text.split()) for text in texts(fresh().predict(paths, short))} == {3}

    def test_a_caption_without_its_constraint_is_said(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        captioner, paths = fresh(), write_files(tmp_path, 2)
        phrase = " ".join(squares(1)[1][0].split()[:3])
        held = DecodingOptions(beam_size=4, constraints=(phrase,))
        assert all(phrase in text for text in texts(captioner.predict(paths, held)))
        assert not caplog.records
        captioner.predict(paths, dataclasses.replace(held, max_tokens=1), first=4)
        said = "the caption does not meet its constraints: they do not fit; raise max_tokens"
        assert caplog.messages == [f"line {n}: {said}" for n in (5, 6)]

    def test_blank_paths_have_no_caption(self, tmp_path: Path) -> None:
        ((path,),) = write_files(tmp_path, 1)
        with pytest.raises(SettingError, match="TRANSDUCE_LIMIT_BEAM"):
            fresh().predict([(path,)], DecodingOptions(beam_size=10_000))
        found = fresh().predict([("",), (path,), ("  ",)], DecodingOptions(min_length=2))
        assert [bool(text) for text in texts(found)] == [False, True, False]
        assert found[0] == Caption() and fresh().predict([]) == []

    def test_a_broken_file_is_named_with_its_number(self, tmp_path: Path) -> None:
        (good,) = write_files(tmp_path, 1)
        with pytest.raises(DataError, match=r"^input 12: nowhere\.png: no such file$"):
            fresh().predict([good, ("nowhere.png",)], first=10)


class TestEvaluating:
    def test_an_image_with_several_captions_is_one_item(self, run: Path, tmp_path: Path) -> None:
        a, b = squares(2)[0]
        section = write_table(
            tmp_path / "test", [a, b, a], ["one  thing", "there is", "two things"]
        )
        loaded = transduce.load(run)
        paths = [f"{tmp_path}/test/000{i}.png" for i in (0, 1, 0)]
        given = loaded.evaluate(
            examples=zip(paths, ["one  thing", "there is", "two things"], strict=True)
        )
        assert given.references == [["one thing", "two things"], ["there is"]]
        assert given.sources == paths[:2]
        recipe = settings(section, data={"train": section, "test": section})
        parsed = CaptioningRecipe.parse(recipe, "recipe")
        split = replace(loaded.predictor, recipe=parsed, cache=tmp_path)
        stored = split.evaluate("test")
        assert stored.references == given.references
        assert stored.hypotheses == given.hypotheses
        assert stored.sources == ["test image 0", "test image 1"]

    def test_validation_loss_is_that_of_each_caption_by_itself(self, run: Path) -> None:
        loaded = transduce.load(run)
        recipe, model = loaded.recipe, loaded.model
        images = read_images_of(recipe.data, recipe.image, "valid", run.parent / ".cache")
        nll, count = 0.0, 0
        encoded = loaded.predictor.tokenizer.encode_batch(images.labels)
        pictures = images.normalised(range(len(images)), recipe.image, 1)
        for ids, picture in zip(encoded, pictures, strict=True):
            scores = model(picture, Padded.from_rows([[BOS, *ids]]))[0].log_softmax(-1)
            nll -= scores.gather(1, torch.tensor([*ids, EOS])[:, None]).sum().item()
            count += len(ids) + 1
        assert loaded.info()["validation"]["loss"] == pytest.approx(nll / count, rel=1e-4)


class TestMistakes:
    @pytest.mark.parametrize(
        ("override", "message"),
        [
            ("training.select_by=bleu", "measures 'loss'"),
            ("image.size=16", "a patch of 5 pixels .* does not divide image.size = 16"),
            ("augmentation.cutout=99", "augmentation.cutout is 99, but images of"),
            ("evaluation.metrics=['blue']", "'blue' is not a metric; did you mean 'bleu'"),
            ("model.decoder.n_heads=5", "n_heads = 5 does not divide d_model = 32"),
            (
                "model.decoder={positions='learned', max_positions=9, n_heads=2}",
                "text.max_length = 16 exceeds the 9 learned positions",
            ),
        ],
    )
    def test_settings_that_cannot_be(self, override: str, message: str, tmp_path: Path) -> None:
        nowhere = {"kind": "table", "path": str(tmp_path / "nowhere.tsv")}
        with pytest.raises(SettingError, match=message) as raised:
            transduce.train(settings(nowhere, override), tmp_path / "run")
        assert "\n" not in str(raised.value)

    def test_a_named_image_is_missing(self, tmp_path: Path) -> None:
        section = write_table(tmp_path / "a", *squares(5))
        (tmp_path / "a" / "0003.png").unlink()
        with pytest.raises(DataError, match=r"0003\.png"):
            transduce.train(settings(section), tmp_path / "run")

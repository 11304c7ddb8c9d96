"""Images to learn labels from: what is held out, which labels count, and mistakes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import transduce
from helpers.labelled_images import settings
from helpers.pictures import stripes, write_folder, write_parquet, write_table
from transduce import DataError, SettingError
from transduce.settings.sections import apply_overrides, parse
from transduce.vision.images import ImageConfig
from transduce.vision.splits import ImageDataConfig, equal_images, read_images_of


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return write_folder(tmp_path_factory.mktemp("data") / "stripes", *stripes(120))


class TestHoldingOut:
    def split(self, section: dict[str, Any], cache: Path, **data: Any) -> dict[str, set[int]]:
        config = parse(ImageDataConfig, {"train": section, "hold_out": 0.2, **data}, "x")
        shape = ImageConfig(size=8)
        return {
            name: {int(row) for row in read_images_of(config, shape, name, cache).rows}
            for name in ("train", "valid", "test")
        }

    def test_equal_images_stay_together(self, tmp_path: Path) -> None:
        pictures, labels = stripes(40)
        section = write_table(tmp_path / "a", pictures * 3, labels * 3)
        rows = self.split(section, tmp_path)
        assert all(result for result in rows.values())
        assert sorted(row for result in rows.values() for row in result) == list(range(120))
        for actual in rows.values():
            assert actual == {row + 40 * copy for row in actual for copy in range(-2, 3)} & set(
                range(120)
            )

    def test_the_order_of_the_images_does_not_matter(self, tmp_path: Path) -> None:
        pictures, labels = stripes(60)
        section = write_table(tmp_path / "a", pictures, labels)
        turned = write_table(tmp_path / "b", pictures[::-1], labels[::-1])
        rows, other = self.split(section, tmp_path), self.split(turned, tmp_path)
        assert rows["valid"] == {59 - row for row in other["valid"]}

    def test_a_given_split_is_taken_whole(self, tmp_path: Path) -> None:
        section = write_table(tmp_path / "a", *stripes(30))
        config = parse(ImageDataConfig, {"train": section, "valid": section}, "x")
        shape = ImageConfig(size=8)
        for name in ("train", "valid"):
            assert len(read_images_of(config, shape, name, tmp_path)) == 30
        with pytest.raises(DataError, match="no test images; set data"):
            read_images_of(config, shape, "test", tmp_path)

    def test_two_sizes_of_the_same_images_do_not_drive_each_other_out(self, tmp_path: Path) -> None:
        section = write_table(tmp_path / "a", *stripes(9))
        config = parse(ImageDataConfig, {"valid": section}, "x")
        small, large = (
            read_images_of(config, ImageConfig(size=size), "valid", tmp_path / "cache")
            for size in (4, 8)
        )
        stores = sorted((tmp_path / "cache").rglob("*.u8"))
        assert len(stores) == 2
        before = stores[0].stat().st_mtime_ns
        read_images_of(config, ImageConfig(size=4), "valid", tmp_path / "cache")
        assert sorted((tmp_path / "cache").rglob("*.u8")) == stores
        assert stores[0].stat().st_mtime_ns == before
        assert small.pixels(np.arange(9)).shape[-1] == 4
        assert large.pixels(np.arange(9)).shape[-1] == 8

    def test_equal_images_are_found(self, tmp_path: Path) -> None:
        a, b = stripes(2)[0]
        section = write_table(tmp_path / "a", [a, b, a, a], ["w", "x", "y", "z"])
        config = parse(ImageDataConfig, {"valid": section}, "x")
        images = read_images_of(config, ImageConfig(size=8), "valid", tmp_path)
        assert equal_images(images) == [[0, 2, 3], [1]]

    def test_labels_of_a_folder_keep_the_order_set(self, data: Any, tmp_path: Path) -> None:
        order = ["upright", "none  of these", "diagonal", "flat", "flat"]
        recipe = settings({**data, "labels": order}, "training.steps=4")
        run, _ = transduce.train(recipe, tmp_path / "run")
        expected = ["upright", "none of these", "diagonal", "flat"]
        assert transduce.load(run).info()["labels"] == expected

    def test_labels_are_one_line(self, tmp_path: Path) -> None:
        section = write_parquet(tmp_path / "a", stripes(2)[0], [" hot\ndog", "cat\t"])
        config = parse(ImageDataConfig, {"valid": section}, "x")
        images = read_images_of(config, ImageConfig(size=8), "valid", tmp_path)
        assert images.labels == ["hot dog", "cat"]


class TestMistakes:
    def fails(self, message: str, kind: type[Exception], recipe: Any, path: Path) -> None:
        with pytest.raises(kind, match=message) as raised:
            transduce.train(recipe, path / "run")
        assert "\n" not in str(raised.value)

    @pytest.mark.parametrize(
        ("override", "message"),
        [
            ("training.select_by=bleu", "measures 'loss', 'accuracy'"),
            ("image.size=10", "a patch of 4 pixels .* does not divide image.size = 10"),
            ("model.stem=[4, 4]", "a patch of 16 pixels .* does not divide image.size = 8"),
            ("model.encoder.n_heads=5", "n_heads = 5 does not divide d_model = 24"),
            ("augmentation.shift=8", "augmentation.shift is 8, but images of 8 pixels"),
            ("augmentation.flipp=true", "did you mean 'flip'"),
        ],
    )
    def test_settings_that_cannot_be(self, override: str, message: str, tmp_path: Path) -> None:
        nowhere = {"kind": "folder", "path": str(tmp_path / "nowhere")}
        self.fails(message, SettingError, settings(nowhere, override), tmp_path)

    def test_one_label_only(self, tmp_path: Path) -> None:
        section = write_folder(tmp_path / "a", stripes(40)[0], ["cat"] * 40)
        self.fails("have the label 'cat'", DataError, settings(section), tmp_path)

    def test_a_folder_whose_name_is_not_utf8(self, tmp_path: Path) -> None:
        section = write_folder(tmp_path / "a", stripes(40)[0], ["cat", "caf\udce9"] * 20)
        self.fails(r"'caf\\udce9' is not valid UTF-8", DataError, settings(section), tmp_path)

    def test_an_image_without_a_label(self, tmp_path: Path) -> None:
        pictures, labels = stripes(40)
        section = write_table(tmp_path / "a", pictures, [*labels[:-1], ""])
        recipe = settings(section, data={"train": section, "valid": section})
        self.fails("training image 39, counted from 0, has no label", DataError, recipe, tmp_path)

    def test_nothing_is_left_to_validate_with(self, tmp_path: Path) -> None:
        section = write_table(tmp_path / "a", *stripes(3))
        recipe = settings(section, "data.hold_out=0.0001")
        self.fails("hold_out leaves no images to valid with", DataError, recipe, tmp_path)

    def test_labels_of_another_set(self, data: Any, tmp_path: Path) -> None:
        valid = write_folder(tmp_path / "valid", stripes(9)[0], ["cat"] * 9)
        recipe = settings(data, data={"train": data, "valid": valid})
        self.fails("no valid image has a label of the training", DataError, recipe, tmp_path)

    def test_resumed_with_other_labels(self, tmp_path: Path) -> None:
        pictures, labels = stripes(40)
        section = write_table(tmp_path / "a", pictures, labels)
        recipe = settings(section, data={"train": section, "valid": section})
        transduce.train(apply_overrides(recipe, ["training.steps=4"]), tmp_path / "run")
        shutil.rmtree(tmp_path / "a")
        write_table(tmp_path / "a", pictures, ["spots", *labels[1:]])
        with pytest.raises(DataError, match="labels of the training images have changed"):
            transduce.train(recipe, tmp_path / "run", resume=True)

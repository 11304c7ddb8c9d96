"""Data sets of images: folders, archives, IDX, Parquet and tables; what is kept of them."""

from __future__ import annotations

import gzip
import json
import os
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from numpy.typing import NDArray
from pyarrow import parquet

from helpers.images import encoded, idx, noise, written
from transduce.errors import DataError
from transduce.settings.sections import parse, to_dict
from transduce.vision import data
from transduce.vision.data import (
    IdxFiles,
    ImageFolder,
    ImagesConfig,
    ImageStore,
    ImageTable,
    LabelledImage,
    ParquetImages,
    cached_images,
    fingerprint,
    read_images,
)
from transduce.vision.images import ImageConfig, fit_square, read_image


def found(config: ImagesConfig, root: Path) -> list[tuple[str, int]]:
    """Label and first pixel of each image."""
    images = read_images(config, root)
    return [(image.label, int(image.decode(1)[0, 0, 0])) for image in images]


def plain(value: int) -> bytes:
    return encoded(np.full((4, 4), value, np.uint8))


FILES = {
    "b/10.png": plain(10),
    "b/2.PNG": plain(2),
    "a/deep/er/7.png": plain(7),
    "c c/8.png": plain(8),
    "a/notes.txt": b"passed over",
    "README.md": b"passed over",
    ".hidden/1.png": b"passed over",
    "b/._10.png": b"passed over",
    "__MACOSX/b/10.png": b"passed over",
}
EXPECTED = [("a", 7), ("b", 10), ("b", 2), ("c c", 8)]


def folder(path: Path, files: dict[str, bytes] = FILES, zipped: bool = False) -> Path:
    if not zipped:
        for name, data in files.items():
            written(path / name, data)
        return path
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize("zipped", [False, True])
class TestFolder:
    def test_sorted_by_class(self, tmp_path: Path, zipped: bool) -> None:
        folder(tmp_path / "data", zipped=zipped)
        assert found(ImageFolder(path=Path("data")), tmp_path) == EXPECTED

    def test_folders_around_those_of_the_classes(self, tmp_path: Path, zipped: bool) -> None:
        files = {f"my/train/{name}": data for name, data in FILES.items()}
        path = folder(tmp_path / "data", files, zipped)
        assert found(ImageFolder(path=path), tmp_path) == EXPECTED
        files = {"train/a/1.png": plain(1), "train/a/b/2.png": plain(2)}
        path = folder(tmp_path / "one", files, zipped)
        assert found(ImageFolder(path=path), tmp_path) == [("a", 1), ("a", 2)]
        expected = [("train", 1), ("train", 2)]
        assert found(ImageFolder(path=path, labels=("train",)), tmp_path) == expected

    def test_labels_set_the_order(self, tmp_path: Path, zipped: bool) -> None:
        path = folder(tmp_path / "data", zipped=zipped)
        config = ImageFolder(path=path, labels=("c c", "b", "none of these", "a"))
        assert found(config, tmp_path) == [EXPECTED[3], EXPECTED[1], EXPECTED[2], EXPECTED[0]]
        with pytest.raises(
            DataError, match=r"data: folder 'c c' is not listed in `labels`; did you mean 'cc'"
        ):
            found(ImageFolder(path=path, labels=("a", "b", "cc")), tmp_path)

    def test_image_outside_of_every_class(self, tmp_path: Path, zipped: bool) -> None:
        path = folder(tmp_path / "data", {**FILES, "lost.png": plain(1)}, zipped)
        with pytest.raises(DataError, match=r"data: lost\.png is outside the class folders"):
            found(ImageFolder(path=path), tmp_path)

    def test_no_image(self, tmp_path: Path, zipped: bool) -> None:
        path = folder(tmp_path / "data", {"a/b.txt": b""}, zipped)
        with pytest.raises(DataError, match="data contains no images"):
            found(ImageFolder(path=path), tmp_path)

    def test_broken_image_is_named(self, tmp_path: Path, zipped: bool) -> None:
        path = folder(tmp_path / "data", {"a/b.png": plain(1)[:-30]}, zipped)
        with pytest.raises(DataError, match=r"data(: |/)a/b\.png cannot be read as an image"):
            found(ImageFolder(path=path), tmp_path)


class TestZip:
    def test_damaged(self, tmp_path: Path) -> None:
        data = bytearray(folder(tmp_path / "a.zip", zipped=True).read_bytes())
        with pytest.raises(DataError, match=r"b\.zip is a damaged zip archive"):
            found(ImageFolder(path=written(tmp_path / "b.zip", bytes(data[:-40]))), tmp_path)
        data[data.index(plain(10)) + 20] ^= 1
        with pytest.raises(DataError, match=r"c\.zip: b/10\.png is a damaged zip .*CRC"):
            found(ImageFolder(path=written(tmp_path / "c.zip", bytes(data))), tmp_path)

    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"a\.zip: no such file or directory"):
            found(ImageFolder(path=Path("a.zip")), tmp_path)

    def test_encrypted(self, tmp_path: Path) -> None:
        data = bytearray(folder(tmp_path / "a.zip", {"a/1.png": plain(1)}, True).read_bytes())
        for signature, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
            data[data.index(signature) + offset] |= 1  # the bit that says so
        with pytest.raises(DataError, match=r"b\.zip cannot be read: .*password.*; unpack it"):
            found(ImageFolder(path=written(tmp_path / "b.zip", bytes(data))), tmp_path)

    def test_bomb(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TRANSDUCE_LIMIT_IMAGE", "1")
        path = tmp_path / "a.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a/1.png", bytes(2**21))
        message = r"a/1\.png would unpack to 2 MiB; .* TRANSDUCE_LIMIT_IMAGE "
        with pytest.raises(DataError, match=message):
            found(ImageFolder(path=path), tmp_path)


class TestIdxFiles:
    def files(self, directory: Path, images: NDArray[Any], labels: NDArray[Any]) -> IdxFiles:
        written(directory / "images", idx(images))
        written(directory / "labels.gz", gzip.compress(idx(labels)))
        return IdxFiles(images=Path("images"), labels=Path("labels.gz"))

    def test_images_and_labels(self, tmp_path: Path) -> None:
        pixels = np.stack([noise(5, 4, 1, seed) for seed in range(3)])
        config = self.files(tmp_path, pixels, np.array([7, 0, 10], np.uint8))
        images = list(read_images(config, tmp_path))
        assert [image.label for image in images] == ["7", "0", "10"]
        assert np.array_equal(images[2].decode(1)[0], pixels[2])
        assert np.array_equal(images[2].decode(3)[2], pixels[2])

    def test_what_does_not_fit(self, tmp_path: Path) -> None:
        three = np.zeros(3, np.uint8)
        with pytest.raises(DataError, match=r"has 2 images but .* has 3 labels"):
            found(self.files(tmp_path, np.zeros((2, 4, 4), np.uint8), three), tmp_path)
        with pytest.raises(DataError, match="images has 1 dimensions of uint8"):
            found(self.files(tmp_path, three, three), tmp_path)
        with pytest.raises(DataError, match=r"labels\.gz must contain labels"):
            found(self.files(tmp_path, *[np.zeros((2, 4, 4), np.uint8)] * 2), tmp_path)
        with pytest.raises(DataError, match="contains no images"):
            found(self.files(tmp_path, np.zeros((0, 4, 4), np.uint8), three[:0]), tmp_path)


class TestParquet:
    def file(self, path: Path, rows: Sequence[dict[str, Any]], names: Any = None) -> ParquetImages:
        table = pyarrow.Table.from_pylist(list(rows))
        if names is not None:
            label = {"names": names, "_type": "ClassLabel"}
            note = {"info": {"features": {"image": {"_type": "Image"}, "label": label}}}
            table = table.replace_schema_metadata({"huggingface": json.dumps(note)})
        parquet.write_table(table, path)
        return ParquetImages(path=path)

    def test_bytes_and_text(self, tmp_path: Path) -> None:
        rows = [{"image": plain(i), "label": f"l{i}", "other": i} for i in range(200)]
        config = self.file(tmp_path / "a.parquet", rows)
        assert found(config, tmp_path) == [(f"l{i}", i) for i in range(200)]

    def test_structs_as_the_datasets_library_writes_them(self, tmp_path: Path) -> None:
        written(tmp_path / "images" / "5.png", plain(5))
        rows = [
            {"image": {"bytes": plain(4), "path": "gone.png"}, "label": 1},
            {"image": {"bytes": None, "path": "images/5.png"}, "label": 0},
        ]
        config = self.file(tmp_path / "a.parquet", rows)
        assert found(config, tmp_path) == [("1", 4), ("0", 5)]
        config = self.file(tmp_path / "a.parquet", rows, ["cat", "dog"])
        assert found(config, tmp_path) == [("dog", 4), ("cat", 5)]
        config = self.file(tmp_path / "a.parquet", rows, ["cat"])
        with pytest.raises(
            DataError, match=r"row 1: label 1 is out of range; the classes are 0 to 0"
        ):
            found(config, tmp_path)

    def test_shards(self, tmp_path: Path) -> None:
        for i in range(3):
            self.file(tmp_path / f"train-{i}.parquet", [{"image": plain(i), "label": "x"}])
        assert found(ParquetImages(path=tmp_path), tmp_path) == [("x", 0), ("x", 1), ("x", 2)]

    @pytest.mark.parametrize(
        ("row", "message"),
        [
            ({"image": plain(1), "labels": 1}, "no column 'label'; did you mean 'labels'"),
            ({"image": None, "label": 1}, "row 1 has no image"),
            ({"image": {"bytes": None, "path": None}, "label": 1}, "row 1 has no image"),
            ({"image": plain(1), "label": 0.5}, "row 1: the label must be text .* not 0.5"),
            ({"image": plain(1), "label": None}, "not None"),
            ({"image": plain(1)[:50], "label": 1}, "row 1 cannot be read as an image"),
            ({"image": b"text", "label": 1}, "row 1 is not an image"),
        ],
    )
    def test_what_does_not_fit(self, tmp_path: Path, row: dict[str, Any], message: str) -> None:
        with pytest.raises(DataError, match=rf"a\.parquet.* {message}"):
            found(self.file(tmp_path / "a.parquet", [row]), tmp_path)

    def test_not_parquet_missing_and_empty(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"has no image|cannot be read"):
            found(ParquetImages(path=tmp_path), tmp_path)
        with pytest.raises(DataError, match="cannot be read as Parquet"):
            found(ParquetImages(path=written(tmp_path / "a", b"text")), tmp_path)
        with pytest.raises(DataError, match="no such file"):
            found(ParquetImages(path=Path("b")), tmp_path)

    def test_without_pyarrow(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(DataError, match="needs the extra 'parquet'"):
            found(ParquetImages(path=Path("b")), tmp_path)


class TestTable:
    def test_paths_from_the_table_and_columns_by_number_or_name(self, tmp_path: Path) -> None:
        written(tmp_path / "sub" / "images" / "1.png", plain(1))
        row = 'a dog, "running"\timages/1.png\n'
        written(tmp_path / "sub" / "a.tsv", row.encode())
        config = ImageTable(path=Path("sub/a.tsv"), image=1, label=0)
        assert found(config, tmp_path) == [('a dog, "running"', 1)]
        written(tmp_path / "sub" / "b.tsv", f"caption\tfile\n{row}".encode())
        config = ImageTable(path=Path("sub/b.tsv"), image="file", label="caption")
        assert found(config, tmp_path) == [('a dog, "running"', 1)]

    def test_mistakes_name_the_line(self, tmp_path: Path) -> None:
        path = written(tmp_path / "a.tsv", b"image\tcaption\n1.png\tone\n\ttwo\n")
        config = ImageTable(path=path, image="image")
        with pytest.raises(DataError, match=r"1\.png \(line 2 of a\.tsv\): no such file"):
            found(config, tmp_path)
        written(tmp_path / "1.png", plain(1))
        with pytest.raises(DataError, match=r"a\.tsv: line 3 has no image path"):
            found(config, tmp_path)
        with pytest.raises(DataError, match="has no column 'label'"):
            found(ImageTable(path=path, image="image", label="label"), tmp_path)


def test_the_kind_tells_the_settings_apart() -> None:
    folders = parse(ImagesConfig, {"kind": "folder", "path": "x", "labels": ["b", "a"]})
    assert folders == ImageFolder(path=Path("x"), labels=("b", "a"))
    for config in (folders, ImageTable(path=Path("t"), label="c"), ParquetImages(path=Path("p"))):
        assert parse(ImagesConfig, to_dict(config)) == config


class TestFingerprint:
    def test_of_the_settings(self, tmp_path: Path) -> None:
        folder(tmp_path / "data")
        plain_config = ImageFolder(path=Path("data"))
        marks = {
            fingerprint(plain_config, tmp_path),
            fingerprint(plain_config, tmp_path),
            fingerprint(ImageFolder(path=Path("data"), labels=("b", "a", "c c")), tmp_path),
        }
        assert len(marks) == 2

    def test_of_every_image_in_a_directory(self, tmp_path: Path) -> None:
        path = folder(tmp_path / "data")
        config = ImageFolder(path=path)
        marks = [fingerprint(config, tmp_path)]
        written(path / "README.md", b"no image, no matter")
        assert fingerprint(config, tmp_path) == marks[0]
        written(path / "a" / "new.png", plain(1))
        marks.append(fingerprint(config, tmp_path))
        os.utime(path / "b" / "10.png", ns=(1, 1))
        marks.append(fingerprint(config, tmp_path))
        (path / "b" / "10.png").rename(path / "a" / "10.png")
        marks.append(fingerprint(config, tmp_path))
        assert len(set(marks)) == 4

    def test_of_archives_tables_and_missing_files(self, tmp_path: Path) -> None:
        archive = folder(tmp_path / "a.zip", zipped=True)
        before = fingerprint(ImageFolder(path=archive), tmp_path)
        os.utime(archive, ns=(1, 1))
        assert fingerprint(ImageFolder(path=archive), tmp_path) != before
        table = ImageTable(path=written(tmp_path / "a.tsv", b"1.png\tone\n"))
        with pytest.raises(DataError, match=r"1\.png cannot be read"):
            fingerprint(table, tmp_path)
        nul = ImageTable(path=written(tmp_path / "b.tsv", b"1\0.png\tone\n"))
        with pytest.raises(DataError, match=r"b\.tsv contains an invalid file name"):
            fingerprint(nul, tmp_path)
        with pytest.raises(DataError, match="line 1 of b"):
            found(nul, tmp_path)
        written(tmp_path / "1.png", plain(1))
        before = fingerprint(table, tmp_path)
        os.utime(tmp_path / "1.png", ns=(1, 1))
        assert fingerprint(table, tmp_path) != before
        for config in (ImageFolder(path=Path("x")), IdxFiles(images=Path("x"), labels=Path("y"))):
            with pytest.raises(DataError, match="x cannot be read"):
                fingerprint(config, tmp_path)


class TestStore:
    SHAPE = ImageConfig(size=6)

    def stored(
        self, root: Path, shape: ImageConfig = SHAPE, mark: str = "1", **options: Any
    ) -> ImageStore:
        config = ImageFolder(path=Path("data"))
        return cached_images(config, root, shape, root / "cache" / "train", mark, **options)

    def test_what_is_stored(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(data, "CHUNK_IMAGES", 4)
        pictures = [noise(6, 6, seed=seed) for seed in range(9)]
        files = {f"{'ab'[i % 2]}/{i}.png": encoded(p) for i, p in enumerate(pictures)}
        folder(tmp_path / "data", files)
        counts: list[int] = []
        store = self.stored(tmp_path, progress=counts.append)
        assert store.labels == ["a"] * 5 + ["b"] * 4
        assert store.images.shape == (9, 3, 6, 6)
        assert len(store) == 9
        assert counts == [4, 8, 9]
        assert isinstance(store.images.base, np.memmap)
        for i, picture in zip([0, 2, 4, 6, 8, 1, 3, 5, 7], store.images, strict=True):
            assert np.array_equal(picture, pictures[i].transpose(2, 0, 1))

    def test_size_channels_and_fit(self, tmp_path: Path) -> None:
        picture = noise(20, 30)
        folder(tmp_path / "data", {"a/1.png": encoded(picture)})
        shape = ImageConfig(size=5, channels=1, fit="crop")
        image = fit_square(read_image(encoded(picture), 1), 5, "crop")
        assert np.array_equal(self.stored(tmp_path, shape).images, image[None].numpy())

    def test_decoded_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder(tmp_path / "data")
        first = self.stored(tmp_path)
        monkeypatch.setattr(LabelledImage, "decode", None)
        other = ImageConfig(size=6, mean=(0.1,), std=(0.2,))  # these are left to the batch
        again = self.stored(tmp_path, other)
        assert np.array_equal(again.images, first.images)
        assert again.labels == first.labels

    def test_replaced_when_anything_changes(self, tmp_path: Path) -> None:
        folder(tmp_path / "data")
        for shape, mark in [
            (self.SHAPE, "1"),
            (ImageConfig(size=7), "1"),
            (ImageConfig(size=6, channels=1), "1"),
            (ImageConfig(size=6, fit="crop"), "1"),
            (self.SHAPE, "2"),
        ]:
            counts: list[int] = []
            self.stored(tmp_path, shape, mark, progress=counts.append)
            assert counts == [4]
            assert len(list((tmp_path / "cache" / "train").iterdir())) == 2

    @pytest.mark.parametrize("damage", ["cut", "gone", "manifest"])
    def test_incomplete_is_made_anew(self, tmp_path: Path, damage: str) -> None:
        folder(tmp_path / "data")
        expected = np.array(self.stored(tmp_path).images)
        directory = tmp_path / "cache" / "train"
        (pixels,) = directory.glob("*.u8")
        match damage:
            case "cut":
                written(pixels, pixels.read_bytes()[:-1])
            case "gone":
                pixels.unlink()
            case "manifest":
                written(directory / "images.json", b'{"version": 1, "fing')
        assert np.array_equal(self.stored(tmp_path).images, expected)

    def test_failure_leaves_the_old_one_and_no_litter(self, tmp_path: Path) -> None:
        folder(tmp_path / "data")
        self.stored(tmp_path)
        before = sorted((tmp_path / "cache" / "train").iterdir())
        written(tmp_path / "data" / "b" / "10.png", plain(1)[:-30])
        with pytest.raises(DataError, match=r"b/10\.png cannot be read as an image"):
            self.stored(tmp_path, mark="2")
        assert sorted((tmp_path / "cache" / "train").iterdir()) == before
        assert len(self.stored(tmp_path)) == 4

    def test_where_nothing_can_be_written(self, tmp_path: Path) -> None:
        folder(tmp_path / "data")
        written(tmp_path / "cache", b"a file")
        with pytest.raises(DataError, match="train cannot be written"):
            self.stored(tmp_path)

    def test_what_killed_processes_left_is_cleared(self, tmp_path: Path) -> None:
        folder(tmp_path / "data")
        directory = tmp_path / "cache" / "train"
        old = written(directory / ".images-x.partial", b"")
        recent = written(directory / ".images-y.partial", b"")
        os.utime(old, (0, 0))
        self.stored(tmp_path)
        assert not old.exists()
        assert recent.exists()

from __future__ import annotations

import gzip
import io
import json
import os
import struct
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from pyarrow import parquet
from torch import Tensor

from transduce.config import parse, to_dict
from transduce.data import image_store
from transduce.data.image_store import ImageStore, cached_images
from transduce.data.images import (
    IdxFiles,
    ImageFolder,
    ImagesConfig,
    ImageTable,
    LabelledImage,
    ParquetImages,
    fingerprint,
    read_images,
)
from transduce.errors import DataError, SettingError
from transduce.image import (
    AugmentationConfig,
    ImageConfig,
    augment,
    fit_square,
    normalise,
    read_idx,
    read_image,
    resize,
)

Pixels = NDArray[np.uint8]


def noise(h: int, w: int, channels: int = 3, seed: int = 0) -> Pixels:
    shape = (h, w, channels) if channels > 1 else (h, w)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def encoded(pixels: Any, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    (pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)).save(
        file, kind, **options
    )
    return file.getvalue()


def written(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def idx(array: NDArray[Any], code: int = 0x08) -> bytes:
    header = bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.tobytes()


def as_array(image: Tensor) -> Pixels:
    return image.permute(1, 2, 0).squeeze(-1).numpy()


class TestReadImage:
    @pytest.mark.parametrize(
        ("kind", "options"),
        [("PNG", {}), ("BMP", {}), ("TIFF", {}), ("PPM", {}), ("WEBP", {"lossless": True})],
    )
    def test_exact_formats(self, tmp_path: Path, kind: str, options: dict[str, Any]) -> None:
        pixels = noise(5, 7)
        image = read_image(written(tmp_path / "a", encoded(pixels, kind, **options)), 3)
        assert image.dtype == torch.uint8
        assert image.is_contiguous()
        assert np.array_equal(as_array(image), pixels)

    def test_jpeg_is_near(self) -> None:
        pixels = np.broadcast_to(np.arange(64, dtype=np.uint8)[:, None, None] * 4, (64, 64, 3))
        image = as_array(read_image(encoded(pixels.copy(), "JPEG", quality=95), 3))
        assert np.abs(image.astype(int) - pixels).max() < 8

    def test_grey_and_colour(self) -> None:
        grey, colour = noise(4, 6, 1), noise(4, 6)
        assert np.array_equal(as_array(read_image(encoded(grey), 1)), grey)
        assert np.array_equal(as_array(read_image(encoded(grey), 3)), np.stack([grey] * 3, -1))
        luminance = colour @ np.array([0.299, 0.587, 0.114])
        assert np.abs(as_array(read_image(encoded(colour), 1)) - luminance).max() <= 1

    def test_palette_bilevel_and_cmyk(self) -> None:
        colour = Image.new("RGB", (3, 2), (200, 30, 90))
        for image in (colour.quantize(4), colour):
            assert read_image(encoded(image), 3)[:, 1, 1].tolist() == [200, 30, 90]
        bilevel = Image.new("1", (3, 2), 1)
        assert read_image(encoded(bilevel), 3).unique().tolist() == [255]
        cmyk = read_image(encoded(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "TIFF"), 3)
        assert cmyk[:, 0, 0].tolist() == [255, 0, 0]

    @pytest.mark.parametrize("mode", ["RGBA", "LA"])
    def test_transparency_is_laid_over_white(self, mode: str) -> None:
        pixels = np.zeros((1, 3, len(mode)), np.uint8)
        pixels[0, :, -1] = [0, 128, 255]
        image = read_image(encoded(Image.fromarray(pixels, mode)), 1)
        assert image[0, 0].tolist() == [255, 127, 0]

    def test_transparent_colour_of_a_palette(self) -> None:
        image = Image.new("P", (2, 1))
        image.putpalette([10, 20, 30, 40, 50, 60])
        image.putdata([0, 1])
        read = read_image(encoded(image, transparency=0), 3)
        assert read[:, 0].T.tolist() == [[255, 255, 255], [40, 50, 60]]

    @pytest.mark.parametrize(("kind", "dtype"), [("PNG", np.uint16), ("TIFF", np.uint16)])
    def test_sixteen_bits(self, kind: str, dtype: Any) -> None:
        pixels = np.array([[0, 128, 129, 257, 32768, 65535]], dtype)
        assert read_image(encoded(pixels, kind), 1).tolist() == [[[0, 0, 1, 1, 128, 255]]]
        assert read_image(encoded(pixels, kind), 3)[:, 0, -1].tolist() == [255, 255, 255]

    def test_more_bits_than_sixteen(self) -> None:
        for pixels in (np.full((2, 2), 70_000, np.int32), np.full((2, 2), 0.5, np.float32)):
            with pytest.raises(DataError, match=r"x\.tif cannot be read .* with 8 or 16"):
                read_image(encoded(pixels, "TIFF"), 3, "x.tif")

    def test_rotation_by_the_camera(self) -> None:
        pixels = noise(4, 6)
        exif = Image.Exif()
        exif[0x0112] = 6  # lay it a quarter turn to the right
        image = as_array(read_image(encoded(pixels, exif=exif), 3))
        assert np.array_equal(image, np.rot90(pixels, -1))

    def test_first_picture_of_several(self) -> None:
        first, second = (Image.new("L", (2, 2), value) for value in (0, 255))
        data = encoded(first, "GIF", save_all=True, append_images=[second])
        assert read_image(data, 1).unique().tolist() == [0]

    @pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "TIFF", "WEBP"])
    def test_cut_off(self, tmp_path: Path, kind: str) -> None:
        data = encoded(noise(40, 40), kind)
        path = written(tmp_path / "half.img", data[: len(data) // 2])
        with pytest.raises(DataError, match=r"half\.img [^\n]*\Z"):
            read_image(path, 3)

    def test_damaged_in_the_middle(self) -> None:
        data = bytearray(encoded(noise(40, 40)))
        data[len(data) // 2] ^= 255
        with pytest.raises(DataError, match="cannot be read as an image"):
            read_image(bytes(data), 3, "a.png")

    @pytest.mark.parametrize("data", [b"", b"no image\n" * 9, b"\x89PNG\r\n\x1a\n"])
    def test_what_is_no_image(self, data: bytes) -> None:
        with pytest.raises(DataError, match=r"row 7 is not an image of a known format \(PNG, JPEG"):
            read_image(data, 3, "row 7")

    def test_formats_that_start_programs_are_unknown(self) -> None:
        with pytest.raises(DataError, match="known format"):
            read_image(encoded(noise(4, 4), "EPS"), 3)

    def test_missing_and_directory(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"a\.png: no such file"):
            read_image(tmp_path / "a.png", 3)
        with pytest.raises(DataError, match="is a directory"):
            read_image(tmp_path, 3)

    def test_decompression_bomb(self, monkeypatch: pytest.MonkeyPatch) -> None:
        data = encoded(np.zeros((3000, 1000), np.uint8))
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10**6)
        with pytest.raises(DataError, match=r"big\.png has more than 2 million pixels"):
            read_image(data, 3, "big.png")

    def test_without_pillow(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "PIL", None)
        with pytest.raises(DataError, match=r"pip install transduce\[vision\]"):
            read_image(b"", 3)


class TestReadIdx:
    @pytest.mark.parametrize("suffix", ["", ".gz"])
    def test_bytes(self, tmp_path: Path, suffix: str) -> None:
        array = noise(6, 4, 5)
        data = gzip.compress(idx(array)) if suffix else idx(array)
        read = read_idx(written(tmp_path / f"x{suffix}", data))
        assert read.dtype == np.uint8
        assert np.array_equal(read, array)

    def test_compression_is_seen_in_the_file_not_in_its_name(self, tmp_path: Path) -> None:
        array = noise(6, 4, 1)
        assert np.array_equal(read_idx(written(tmp_path / "x.gz", idx(array))), array)
        assert np.array_equal(read_idx(written(tmp_path / "x", gzip.compress(idx(array)))), array)

    @pytest.mark.parametrize(
        ("code", "dtype"), [(9, "i1"), (0x0B, ">i2"), (0x0C, ">i4"), (0x0D, ">f4"), (0x0E, ">f8")]
    )
    def test_other_types(self, tmp_path: Path, code: int, dtype: str) -> None:
        array = np.array([[-1, 2, 100]], dtype)
        read = read_idx(written(tmp_path / "x", idx(array, code)))
        assert read.dtype.isnative
        assert read.tolist() == [[-1, 2, 100]]

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (b"", "not an IDX file: it begins with nothing"),
            (b"\x89PNG....", "not an IDX file: it begins with 89 50 4e 47"),
            (b"\0\0\x07\1\0\0\0\0", "not an IDX file"),
            (b"\0\0\x08\0", "not an IDX file"),
            (b"\0\0\x08\3\0\0\0\1", "ends within its header"),
            (b"\0\0\x08\1\0\0\0\4abc", "tells 4 values, 4 bytes, but only 3 follow"),
            (b"\0\0\x08\1\0\0\0\2abc", "2 bytes, but more follow"),
            (b"\0\0\x0e\4" + b"\xff" * 16 + b"abc", "(but only 3 follow|unpacks to .* MiB)"),
        ],
    )
    @pytest.mark.parametrize("compressed", [False, True])
    def test_damaged(self, tmp_path: Path, data: bytes, message: str, compressed: bool) -> None:
        path = written(tmp_path / "x-idx3", gzip.compress(data) if compressed else data)
        with pytest.raises(DataError, match=f"x-idx3.* {message}"):
            read_idx(path)

    def test_cut_off_gzip_and_missing(self, tmp_path: Path) -> None:
        data = gzip.compress(idx(noise(30, 30, 1)))
        with pytest.raises(DataError, match="not a whole gzip file"):
            read_idx(written(tmp_path / "x.gz", data[:-20]))
        with pytest.raises(DataError, match="no such file"):
            read_idx(tmp_path / "y")
        with pytest.raises(DataError, match="is a directory"):
            read_idx(tmp_path)


class TestResize:
    def test_bytes_and_floats_of_any_rank(self) -> None:
        images = torch.randint(0, 256, (2, 2, 3, 20, 30), dtype=torch.uint8)
        small = resize(images, (10, 12))
        assert small.shape == (2, 2, 3, 10, 12)
        assert small.dtype == torch.uint8
        exact = resize(images.float(), (10, 12))
        assert (small - exact).abs().max() <= 0.5
        assert torch.equal(resize(images[1, 1], (10, 12)), small[1, 1])
        assert resize(images, (20, 30)) is images

    def test_shrinking_averages(self) -> None:
        """Without smoothing, a chessboard would become one of its colours."""
        board = (torch.arange(32)[:, None] + torch.arange(32)).remainder(2).mul(255)
        small = resize(board.to(torch.uint8)[None], (4, 4)).float()
        assert (small - 127.5).abs().max() <= 2

    def test_squash_and_crop(self) -> None:
        image = torch.zeros(1, 4, 8)
        image[..., 2:6] = 1
        squashed = fit_square(image, 4, "squash")[0, 0]
        assert squashed[0] < 0.2 < 0.8 < squashed[1]
        assert torch.equal(squashed, squashed.flip(-1))
        assert torch.equal(fit_square(image, 4, "crop"), torch.ones(1, 4, 4))
        assert torch.equal(fit_square(image.mT, 4, "crop"), torch.ones(1, 4, 4))
        assert fit_square(image, 3, "crop").shape == (1, 3, 3)


class TestNormalise:
    def test_range_of_the_defaults(self) -> None:
        images = torch.tensor([0, 255], dtype=torch.uint8)[:, None, None, None].expand(2, 3, 5, 4)
        values = normalise(images, ImageConfig(size=4))
        assert values.shape == (2, 3, 4, 4)
        assert values.dtype == torch.float32
        assert values[0].unique().tolist() == [-1]
        assert values[1].unique().tolist() == [1]

    def test_channel_by_channel(self) -> None:
        config = ImageConfig(size=2, mean=(0, 0.2, 1), std=(1, 0.5, 2))
        values = normalise(torch.full((1, 3, 2, 2), 51, dtype=torch.uint8), config)
        torch.testing.assert_close(values[0, :, 0, 0], torch.tensor([0.2, 0.0, -0.4]))

    def test_settings(self) -> None:
        config = parse(ImageConfig, {"size": 8, "channels": 1, "mean": [0.1], "fit": "crop"})
        assert parse(ImageConfig, to_dict(config)) == config
        with pytest.raises(SettingError, match=r"mean has 2 numbers; .* of the 3 channels"):
            parse(ImageConfig, {"size": 8, "mean": [0.5, 0.5]})
        with pytest.raises(SettingError, match="std must be greater than 0"):
            parse(ImageConfig, {"size": 8, "std": [0.0]})
        with pytest.raises(SettingError, match="channels"):
            parse(ImageConfig, {"size": 8, "channels": 4})


def changed(images: Tensor, seed: int = 0, **settings: Any) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return augment(images, parse(AugmentationConfig, settings), generator)


class TestAugment:
    EVERYTHING = {"flip": True, "shift": 3, "rotate": 20.0, "cutout": 4}  # noqa: RUF012

    def test_nothing_by_default(self) -> None:
        images = torch.randn(4, 3, 8, 8)
        assert changed(images) is images

    def test_determined_by_the_generator_alone(self) -> None:
        images = torch.randn(16, 3, 12, 10)
        kept = images.clone()
        first = changed(images, **self.EVERYTHING)
        torch.manual_seed(9)
        assert torch.equal(first, changed(images, **self.EVERYTHING))
        assert not torch.equal(first, changed(images, seed=1, **self.EVERYTHING))
        assert torch.equal(images, kept)
        assert first.shape == images.shape
        assert len({row.numpy().tobytes() for row in first}) == 16

    def test_flip_is_about_half(self) -> None:
        image = torch.arange(6.0).view(1, 1, 2, 3)
        images = changed(image.expand(2000, -1, -1, -1), flip=True)
        flipped = (images == image.flip(-1)).flatten(1).all(1)
        assert torch.equal(flipped, ~(images == image).flatten(1).all(1))
        assert 900 < int(flipped.sum()) < 1100

    def test_shift_reaches_its_bounds_evenly_and_no_further(self) -> None:
        image = torch.arange(81.0).view(1, 1, 9, 9)
        images = changed(image.expand(5000, -1, -1, -1), shift=2)
        rows = images[:, 0, 4, 4].div(9, rounding_mode="floor") - 4  # what moved to the middle
        columns = images[:, 0, 4, 4].remainder(9) - 4
        for offsets in (rows, columns):
            values, counts = offsets.unique(return_counts=True)
            assert values.tolist() == [-2, -1, 0, 1, 2]
            assert counts.min() > 850
        assert abs(float(torch.corrcoef(torch.stack([rows, columns]))[0, 1])) < 0.06

    def test_shift_mirrors_at_the_border(self) -> None:
        image = torch.randn(1, 2, 5, 6)
        padded = torch.nn.functional.pad(image, (2, 2, 2, 2), mode="reflect")
        crops = [padded[0, :, i : i + 5, j : j + 6] for i in range(5) for j in range(5)]
        for shifted in changed(image.expand(50, -1, -1, -1), shift=2):
            assert any(torch.equal(shifted, crop) for crop in crops)

    def test_rotation_stays_within_its_bounds(self) -> None:
        """A bright spot to the right of the middle; where it goes tells the angle."""
        h, w = 41, 61
        row, column = torch.arange(h)[:, None] - 20.0, torch.arange(w) - 30.0
        spot = torch.exp(-(row**2 + (column - 15) ** 2) / 8)
        turned = changed(spot.expand(500, 1, h, w), rotate=30)[:, 0]
        mass = turned.sum((1, 2))
        y, x = (turned * row).sum((1, 2)) / mass, (turned * column).sum((1, 2)) / mass
        angle = torch.atan2(y, x).rad2deg()
        torch.testing.assert_close((x**2 + y**2).sqrt(), torch.full((500,), 15.0), atol=0.2, rtol=0)
        assert 28 < angle.max() < 30.2
        assert -30.2 < angle.min() < -28
        assert abs(float(angle.mean())) < 3

    def test_cutout_is_one_square_of_the_mean(self) -> None:
        images = changed(torch.ones(400, 2, 8, 9), cutout=3)
        erased = images == 0
        assert torch.equal(erased[:, 0], erased[:, 1])
        heights, widths = erased[:, 0].any(2).sum(1), erased[:, 0].any(1).sum(1)
        assert heights.max() == widths.max() == 3
        assert heights.min() == widths.min() == 2  # the middle of the square is in the image
        assert torch.equal(erased[:, 0].sum((1, 2)), heights * widths)
        assert bool(erased.any(0).all())

    @pytest.mark.parametrize("name", ["shift", "cutout"])
    def test_too_much_for_the_image(self, name: str) -> None:
        with pytest.raises(SettingError, match=f"{name} is 8, but images of 8 .* at most 7"):
            changed(torch.zeros(1, 1, 8, 9), **{name: 8})
        with pytest.raises(SettingError, match=name):
            changed(torch.zeros(1, 1, 8, 9), **{name: -1})


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
        with pytest.raises(DataError, match=r"data: 'c c' is not .* labels set; did you mean 'cc'"):
            found(ImageFolder(path=path, labels=("a", "b", "cc")), tmp_path)

    def test_image_outside_of_every_class(self, tmp_path: Path, zipped: bool) -> None:
        path = folder(tmp_path / "data", {**FILES, "lost.png": plain(1)}, zipped)
        with pytest.raises(DataError, match=r"data: lost\.png lies in no folder of a class"):
            found(ImageFolder(path=path), tmp_path)

    def test_no_image(self, tmp_path: Path, zipped: bool) -> None:
        path = folder(tmp_path / "data", {"a/b.txt": b""}, zipped)
        with pytest.raises(DataError, match="data holds no image"):
            found(ImageFolder(path=path), tmp_path)

    def test_broken_image_is_named(self, tmp_path: Path, zipped: bool) -> None:
        path = folder(tmp_path / "data", {"a/b.png": plain(1)[:-30]}, zipped)
        with pytest.raises(DataError, match=r"data(: |/)a/b\.png cannot be read as an image"):
            found(ImageFolder(path=path), tmp_path)


class TestZip:
    def test_damaged(self, tmp_path: Path) -> None:
        data = bytearray(folder(tmp_path / "a.zip", zipped=True).read_bytes())
        with pytest.raises(DataError, match=r"b\.zip is not a whole zip archive"):
            found(ImageFolder(path=written(tmp_path / "b.zip", bytes(data[:-40]))), tmp_path)
        data[data.index(plain(10)) + 20] ^= 1
        with pytest.raises(DataError, match=r"c\.zip: b/10\.png is not a whole zip .*CRC"):
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
        monkeypatch.setattr("transduce.data.images.LARGEST_FILE", 2**20)
        path = tmp_path / "a.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a/1.png", bytes(2**21))
        with pytest.raises(DataError, match=r"a/1\.png would unpack to 2 MiB"):
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
        with pytest.raises(DataError, match="images holds uint8 of 1 dimensions"):
            found(self.files(tmp_path, three, three), tmp_path)
        with pytest.raises(DataError, match=r"labels\.gz does not hold a row of whole numbers"):
            found(self.files(tmp_path, *[np.zeros((2, 4, 4), np.uint8)] * 2), tmp_path)
        with pytest.raises(DataError, match="holds no image"):
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
        with pytest.raises(DataError, match=r"row 1: the label is 1, but the classes are 0 to 0"):
            found(config, tmp_path)

    def test_shards(self, tmp_path: Path) -> None:
        for i in range(3):
            self.file(tmp_path / f"train-{i}.parquet", [{"image": plain(i), "label": "x"}])
        assert found(ParquetImages(path=tmp_path), tmp_path) == [("x", 0), ("x", 1), ("x", 2)]

    @pytest.mark.parametrize(
        ("row", "message"),
        [
            ({"image": plain(1), "labels": 1}, "no column 'label'; did you mean 'labels'"),
            ({"image": None, "label": 1}, "row 1 holds no image"),
            ({"image": {"bytes": None, "path": None}, "label": 1}, "row 1 holds no image"),
            ({"image": plain(1), "label": 0.5}, "row 1: the label is neither text .* but 0.5"),
            ({"image": plain(1), "label": None}, "but None"),
            ({"image": plain(1)[:50], "label": 1}, "row 1 cannot be read as an image"),
            ({"image": b"text", "label": 1}, "row 1 is not an image"),
        ],
    )
    def test_what_does_not_fit(self, tmp_path: Path, row: dict[str, Any], message: str) -> None:
        with pytest.raises(DataError, match=rf"a\.parquet.* {message}"):
            found(self.file(tmp_path / "a.parquet", [row]), tmp_path)

    def test_not_parquet_missing_and_empty(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"holds no image|cannot be read"):
            found(ParquetImages(path=tmp_path), tmp_path)
        with pytest.raises(DataError, match="cannot be read as Parquet"):
            found(ParquetImages(path=written(tmp_path / "a", b"text")), tmp_path)
        with pytest.raises(DataError, match="no such file"):
            found(ParquetImages(path=Path("b")), tmp_path)

    def test_without_pyarrow(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(DataError, match=r"pip install transduce\[parquet\]"):
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
        with pytest.raises(DataError, match=r"a\.tsv: line 3 names no image"):
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
        with pytest.raises(DataError, match=r"b\.tsv names a file that cannot be"):
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
        monkeypatch.setattr(image_store, "CHUNK_IMAGES", 4)
        pictures = [noise(6, 6, seed=seed) for seed in range(9)]
        files = {f"{'ab'[i % 2]}/{i}.png": encoded(p) for i, p in enumerate(pictures)}
        folder(tmp_path / "data", files)
        told: list[int] = []
        store = self.stored(tmp_path, progress=told.append)
        assert store.labels == ["a"] * 5 + ["b"] * 4
        assert store.images.shape == (9, 3, 6, 6)
        assert len(store) == 9
        assert told == [4, 8, 9]
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
            told: list[int] = []
            self.stored(tmp_path, shape, mark, progress=told.append)
            assert told == [4]
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

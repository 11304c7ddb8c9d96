"""Images as arrays: reading, resizing, normalising, augmenting."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from helpers.images import Pixels, encoded, idx, noise, written
from transduce.errors import DataError, SettingError
from transduce.settings.sections import parse, to_dict
from transduce.vision.images import (
    AugmentationConfig,
    ImageConfig,
    augment,
    fit_square,
    normalise_pixels,
    read_idx,
    read_image,
    resize,
)


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

    def test_large_pictures_and_damaged_exif_print_no_warning(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Warnings are errors in tests; a size above the double is an error in a line."""
        picture = encoded(noise(10, 10), "PNG")
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 60)
        assert read_image(picture, 3).shape == (3, 10, 10)
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40)
        with pytest.raises(DataError, match="million pixels; reduce its size"):
            read_image(picture, 3)
        monkeypatch.undo()
        damaged = encoded(noise(10, 10), "JPEG", exif=b"Exif\0\0II*\0" + b"\xff" * 40)
        assert read_image(damaged, 3).shape == (3, 10, 10)

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
        with pytest.raises(
            DataError, match=r"row 7 is not an image in a supported format \(PNG, JPEG"
        ):
            read_image(data, 3, "row 7")

    def test_formats_that_start_programs_are_unknown(self) -> None:
        with pytest.raises(DataError, match="supported format"):
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
        with pytest.raises(DataError, match="needs the extra 'vision'"):
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
            (b"\0\0\x08\3\0\0\0\1", "has a truncated header"),
            (b"\0\0\x08\1\0\0\0\4abc", r"declares 4 values \(4 bytes\), but only 3 bytes follow"),
            (b"\0\0\x08\1\0\0\0\2abc", r"\(2 bytes\), but more bytes follow"),
            (b"\0\0\x0e\4" + b"\xff" * 16 + b"abc", "(but only 3 bytes follow|unpacks to .* MiB)"),
        ],
    )
    @pytest.mark.parametrize("compressed", [False, True])
    def test_damaged(self, tmp_path: Path, data: bytes, message: str, compressed: bool) -> None:
        path = written(tmp_path / "x-idx3", gzip.compress(data) if compressed else data)
        with pytest.raises(DataError, match=f"x-idx3.* {message}"):
            read_idx(path)

    def test_cut_off_gzip_and_missing(self, tmp_path: Path) -> None:
        data = gzip.compress(idx(noise(30, 30, 1)))
        with pytest.raises(DataError, match="a damaged gzip file"):
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
        values = normalise_pixels(images, ImageConfig(size=4))
        assert values.shape == (2, 3, 4, 4)
        assert values.dtype == torch.float32
        assert values[0].unique().tolist() == [-1]
        assert values[1].unique().tolist() == [1]

    def test_channel_by_channel(self) -> None:
        config = ImageConfig(size=2, mean=(0, 0.2, 1), std=(1, 0.5, 2))
        values = normalise_pixels(torch.full((1, 3, 2, 2), 51, dtype=torch.uint8), config)
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
        with pytest.raises(
            SettingError, match=f"augmentation.{name} is 8, but images of 8 .* at most 7"
        ):
            changed(torch.zeros(1, 1, 8, 9), **{name: 8})
        with pytest.raises(SettingError, match=name):
            changed(torch.zeros(1, 1, 8, 9), **{name: -1})

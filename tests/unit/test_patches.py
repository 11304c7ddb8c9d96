from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from transformers import ViTConfig, ViTModel

from transduce.errors import DataError, SettingError
from transduce.vision.vit import PatchFrontEnd, interpolate_positions

M = 12


def test_patches_equal_an_explicit_loop() -> None:
    front_end = PatchFrontEnd(8, 3, 4, M, class_token=False)
    images = torch.randn(2, 3, 8, 12)
    expected = []
    for row in range(2):
        for column in range(3):
            patch = images[:, :, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
            expected.append(front_end.projection(patch.reshape(2, -1)))
    vectors = front_end(images)
    torch.testing.assert_close(vectors.values, torch.stack(expected, 1))
    assert vectors.padding == "none"
    assert vectors.real.shape == (2, 6)
    assert bool(vectors.real.all())


def test_the_class_token_goes_in_front() -> None:
    front_end = PatchFrontEnd(8, 1, 2, M, class_token=True)
    assert front_end.class_token is not None
    vectors = front_end(torch.randn(3, 1, 8, 8)).values
    assert vectors.shape == (3, 17, M)
    assert torch.equal(vectors[:, 0], front_end.class_token.expand(3, M))
    vectors.sum().backward()
    assert torch.equal(front_end.class_token.grad, torch.full((M,), 3.0))


def test_the_class_token_begins_small() -> None:
    token = PatchFrontEnd(8, 1, 8, 4096, class_token=True).class_token
    assert token is not None
    assert 0.019 < token.std().item() < 0.021


def test_grid_and_positions() -> None:
    assert PatchFrontEnd(224, 3, 16, M, class_token=True).grid == (14, 14)
    assert PatchFrontEnd(224, 3, 16, M, class_token=True).n_positions == 197
    assert PatchFrontEnd(224, 3, 16, M, class_token=False).n_positions == 196


def test_the_stem_comes_before_the_patches_and_halves_the_sides() -> None:
    front_end = PatchFrontEnd(16, 3, 2, M, class_token=False, stem=(6, 5))
    convolutions = [layer for layer in front_end.stem if isinstance(layer, nn.Conv2d)]
    assert [(c.in_channels, c.out_channels) for c in convolutions] == [(3, 6), (6, 5)]
    images = torch.randn(2, 3, 16, 16)
    plain = PatchFrontEnd(4, 5, 2, M, class_token=False)
    plain.projection = front_end.projection
    torch.testing.assert_close(front_end(images).values, plain(front_end.stem(images)).values)
    assert front_end.n_positions == 4
    assert front_end(images).values.shape == (2, 4, M)


def test_the_stem_neither_swells_nor_fades_at_first() -> None:
    front_end = PatchFrontEnd(32, 3, 4, M, class_token=False, stem=(32, 32))
    scale = front_end.stem(torch.randn(4, 3, 32, 32)).pow(2).mean().sqrt().item()
    assert 0.3 < scale < 4


def test_an_image_size_that_patches_do_not_fill() -> None:
    with pytest.raises(SettingError, match=r"a patch of 16 pixels .* divide image_size, 30"):
        PatchFrontEnd(30, 3, 16, M, class_token=True)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 3, 8, 10), "10 x 8 pixels cannot be cut .* 4 x 4; resize it to 8 x 8"),
        ((1, 3, 0, 8), "8 x 0 pixels"),
        ((1, 1, 8, 8), "images have 1 channels; this model expects 3"),
    ],
)
def test_images_that_do_not_fit(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(DataError, match=message):
        PatchFrontEnd(8, 3, 4, M, class_token=True)(torch.zeros(shape))


@pytest.fixture(scope="module")
def reference() -> ViTModel:
    config = ViTConfig(
        hidden_size=M,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        image_size=32,
        patch_size=4,
    )
    model = ViTModel(config, add_pooling_layer=False).double().eval()
    with torch.no_grad():
        for parameter in model.embeddings.parameters():
            parameter.normal_()
    return model


@pytest.mark.parametrize("size", [(32, 32), (48, 48), (16, 40), (12, 4)])
def test_agrees_with_the_reference(reference: ViTModel, size: tuple[int, int]) -> None:
    theirs = reference.embeddings
    front_end = PatchFrontEnd(32, 3, 4, M, class_token=True).double()
    assert front_end.class_token is not None
    convolution = theirs.patch_embeddings.projection
    with torch.no_grad():
        front_end.projection.weight.copy_(convolution.weight.flatten(1))
        front_end.projection.bias.copy_(convolution.bias)
        front_end.class_token.copy_(theirs.cls_token[0, 0])
        images = torch.randn(2, 3, *size, dtype=torch.float64)
        grid = (size[0] // 4, size[1] // 4)
        table = theirs.position_embeddings[0]
        positions = interpolate_positions(table, front_end.grid, grid, class_token=True)
        ours = front_end(images).values + positions
        expected = theirs(images, interpolate_pos_encoding=True)
    # Positions are interpolated in float32.
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-5)


def test_positions_stay_where_grids_agree() -> None:
    table = torch.randn(13, M)
    assert interpolate_positions(table, (3, 4), (3, 4), class_token=True) is table


def test_positions_without_class_token_and_in_half_precision() -> None:
    table = torch.randn(13, M)
    with_token = interpolate_positions(table, (3, 4), (6, 5), class_token=True)
    without = interpolate_positions(table[1:], (3, 4), (6, 5), class_token=False)
    assert torch.equal(with_token[0], table[0])
    assert torch.equal(with_token[1:], without)
    half = interpolate_positions(table.bfloat16(), (3, 4), (6, 5), class_token=True)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), with_token, rtol=0, atol=0.1)


def test_positions_pass_gradients_on() -> None:
    table = torch.randn(10, M, requires_grad=True)
    interpolate_positions(table, (3, 3), (7, 7), class_token=True).sum().backward()
    assert table.grad is not None
    assert math.isclose(table.grad[0].sum().item(), M, rel_tol=1e-5)
    assert math.isclose(table.grad[1:].sum().item(), 49 * M, rel_tol=1e-4)

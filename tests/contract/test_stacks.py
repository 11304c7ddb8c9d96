"""Promises of every stack, whatever it is made of: rows, steps and recordings."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from helpers.stacks import (
    CLOSE,
    LAYOUTS,
    LENGTHS,
    MEMORY_LENGTHS,
    WITH_MEMORY,
    Decoding,
    M,
    assert_same_rows,
    each_row,
    lay,
    vectors,
)
from transduce.nn.attention import record_into
from transduce.sequence import Padded

# --- padding and batches ---------------------------------------------------------------------


@pytest.mark.usefixtures("no_gradient")
def test_encoder_reads_each_row_as_if_alone(encoder: nn.Module) -> None:
    rows = vectors(LENGTHS)
    alone = [encoder(Padded.unpadded(row[None])).values[0] for row in rows]
    for layout in LAYOUTS:
        assert_same_rows(encoder(lay(rows, **layout)), alone)
    assert_same_rows(encoder(lay(rows[::-1])), alone[::-1])
    assert_same_rows(encoder(lay(rows[1:2] * 3, extra=1)), alone[1:2] * 3)


@pytest.mark.usefixtures("no_gradient")
def test_decoder_reads_each_row_as_if_alone(decoding: Decoding) -> None:
    rows = vectors(LENGTHS)
    alone = []
    for i, row in enumerate(rows):
        memory = None
        if decoding.memory is not None:
            memory = Padded.unpadded(each_row(decoding.memory)[i][None])
        alone.append(Decoding(decoding.decoder, memory)(Padded.unpadded(row[None])).values[0])
    for layout in LAYOUTS:
        assert_same_rows(decoding(lay(rows, **layout)), alone)
    if decoding.memory is not None:
        for layout in LAYOUTS:
            memory = lay(each_row(decoding.memory), **layout)
            assert_same_rows(Decoding(decoding.decoder, memory)(lay(rows)), alone)


@pytest.mark.usefixtures("no_gradient")
def test_decoder_does_not_look_ahead(decoding: Decoding) -> None:
    values = torch.randn(4, 6, M, dtype=torch.float64)
    changed = torch.cat([values[:, :4], torch.randn(4, 2, M, dtype=torch.float64)], 1)
    before, after = (decoding(Padded.unpadded(v)).values[:, :4] for v in (values, changed))
    torch.testing.assert_close(before, after, **CLOSE)


@pytest.mark.usefixtures("no_gradient")
@pytest.mark.parametrize("decoding", WITH_MEMORY, indirect=True)
def test_the_memory_is_looked_at(decoding: Decoding) -> None:
    target = Padded.unpadded(torch.randn(4, 2, M, dtype=torch.float64))
    other = Decoding(decoding.decoder, lay(vectors(MEMORY_LENGTHS)))
    assert not torch.allclose(decoding(target).values, other(target).values, atol=1e-3)


# --- steps and states ------------------------------------------------------------------------


def in_steps(decoding: Decoding, target: Padded, sizes: tuple[int, ...]) -> Padded:
    """The output of decoding in chunks of these sizes, put together."""
    state = decoding.start()
    edges = [0]
    for size in sizes:
        edges.append(edges[-1] + size)
    outputs = []
    for start, end in pairwise(edges):
        here = slice(start, end)
        chunk = Padded(target.values[:, here], target.real[:, here], target.padding)
        outputs.append(decoding.decoder(chunk, state).values)
        assert state.length == end
    return target.with_values(torch.cat(outputs, 1))


@pytest.mark.usefixtures("no_gradient")
@pytest.mark.parametrize("layout", ["even", "right", "left"])
def test_cached_steps_equal_one_pass(decoding: Decoding, layout: str) -> None:
    if layout == "even":
        target = Padded.unpadded(torch.randn(4, 6, M, dtype=torch.float64))
    else:
        target = lay(vectors(LENGTHS), side=layout)
    expected = each_row(decoding(target))
    for sizes in ((1,) * 6, (2, 2, 2), (3, 1, 2), (1, 5)):
        assert_same_rows(in_steps(decoding, target, sizes), expected)


SELECTIONS = {
    "repeat, then reorder within and across groups": [
        [0, 0, 1, 1, 2, 2, 3, 3],
        [1, 0, 3, 3, 6, 7, 4, 4],
    ],
    "drop a sentence": [[0, 0, 1, 1, 2, 2, 3, 3], [0, 1, 4, 4, 7, 6]],
    "irregular groups": [[1, 1, 1, 0], [3, 0, 0, 2, 1], [4, 2, 1, 0]],
    "groups apart": [[0, 1, 0, 1], [3, 0, 2, 2]],
    "reorder, then keep one": [[2, 0, 3, 1], [3], [0, 0], [1]],
}


@pytest.mark.usefixtures("no_gradient")
@pytest.mark.parametrize("selections", SELECTIONS.values(), ids=SELECTIONS)
def test_selecting_rows_selects_their_future(
    decoding: Decoding, selections: list[list[int]]
) -> None:
    nothing = Padded.unpadded(torch.empty(4, 0, M, dtype=torch.float64))
    even = lay(vectors((4, 4, 4, 4)), told="none")
    ragged = lay(vectors(LENGTHS), side="left")
    for past in (nothing, even, ragged):
        assert_future_follows(decoding, past, selections)


def assert_future_follows(decoding: Decoding, past: Padded, selections: list[list[int]]) -> None:
    """After each selection a step gives what the chosen rows, read in one pass, would give."""
    state, origin = decoding.start(), list(range(4))
    if past.real.shape[1]:
        decoding.decoder(past, state)
    for chosen in selections:
        state.select(torch.tensor(chosen))
        origin = [origin[i] for i in chosen]
        step = Padded.unpadded(torch.randn(len(chosen), 1, M, dtype=torch.float64))
        result = decoding.decoder(step, state).values
        past = past.select(torch.tensor(chosen))
        past = Padded(
            torch.cat([past.values, step.values], 1), torch.cat([past.real, step.real], 1), "any"
        )
        expected = decoding.decoder(past, decoding.start(origin)).values[:, -1:]
        torch.testing.assert_close(result, expected, **CLOSE)


# --- recording -------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_gradient")
def test_recording_an_encoder_changes_nothing(encoder: nn.Module) -> None:
    for side in ("right", "left"):
        source = lay(vectors(LENGTHS), side=side)
        plain = encoder(source)
        recorded = record_into(encoder, on=True)
        assert_same_rows(encoder(source), each_row(plain))
        record_into(encoder, on=False)
        for (weights,) in recorded.values():
            assert_weights(weights, source.real, source.real[:, None, :].expand(-1, 6, -1))
        encoder(source)
        assert all(len(calls) == 1 for calls in recorded.values())


@pytest.mark.usefixtures("no_gradient")
@pytest.mark.parametrize("side", ["right", "left"])
def test_recording_a_decoder_changes_nothing(decoding: Decoding, side: str) -> None:
    target = lay(vectors(LENGTHS), side=side)
    plain = decoding(target)
    recorded = record_into(decoding, on=True)
    assert_same_rows(decoding(target), each_row(plain))
    not_ahead = torch.ones(6, 6, dtype=torch.bool).tril()
    for name, (weights,) in recorded.items():
        if "cross" in name:
            assert decoding.memory is not None
            may_look = decoding.memory.real[:, None, :].expand(-1, 6, -1)
        else:
            may_look = target.real[:, None, :] & not_ahead
        assert_weights(weights, target.real, may_look)


def assert_weights(weights: Tensor, real: Tensor, may_look: Tensor) -> None:
    """Weights (b, h, t, s) of real queries sum to one, and are above zero just where allowed."""
    of_real = weights.transpose(1, 2)[real]  # (n, h, s)
    torch.testing.assert_close(of_real.sum(-1), torch.ones_like(of_real[..., 0]), **CLOSE)
    assert torch.equal(of_real > 0, may_look[real][:, None].expand_as(of_real))

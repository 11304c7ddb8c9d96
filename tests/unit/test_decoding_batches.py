"""Source tokens of a batch, bounded with the hypotheses of each input."""

import pytest

from transduce.decoding.options import DecodingOptions
from transduce.decoding.session import tokens_of_batch


@pytest.mark.parametrize(
    ("settings", "tokens"),
    [
        ({}, 4096),
        ({"beam_size": 8}, 4096),
        ({"beam_size": 16}, 2048),
        ({"beam_size": 100}, 327),
        ({"beam_size": 100, "batch_tokens": 1}, 1),
        ({"method": "sample", "n_best": 32}, 1024),
        ({"method": "sample", "n_best": 2, "beam_size": 64}, 4096),
    ],
)
def test_batches_shrink_with_hypotheses(settings: dict[str, object], tokens: int) -> None:
    assert tokens_of_batch(DecodingOptions(**settings)) == tokens  # type: ignore[arg-type]

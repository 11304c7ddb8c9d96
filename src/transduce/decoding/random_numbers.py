"""Random numbers of sampling by seed, sentence and sample, in any batch.  Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from transduce.decoding.options import DecodingOptions

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def uniforms(
    options: DecodingOptions, streams: Sequence[int], limits: Sequence[int]
) -> NDArray[np.float64]:
    """Numbers (n, samples, steps) from [0, 1), by streams (n), up to limits (n)."""
    import numpy as np

    numbers = np.zeros((len(limits), options.n_best, max(limits, default=0) + 1))
    for i, (stream, limit) in enumerate(zip(streams, limits, strict=True)):
        for sample in range(options.n_best):
            # SeedSequence mixes the three into 128 bits; torch.Generator would keep 32 of them
            seed = np.random.SeedSequence((options.seed, stream, sample))
            generator = np.random.Generator(np.random.PCG64(seed))
            numbers[i, sample, : limit + 1] = generator.random(limit + 1)
    return numbers

"""An encoder of texts in the engine, with its head, or of vectors.  Imports no torch."""

import itertools
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transduce.engine.inference import EngineWeights, Weights
from transduce.engine.library import ModelShape

Ids = Sequence[int] | NDArray[np.integer[Any]]
Rows = Sequence[tuple[Ids, Ids]]
"""Token ids of each text, and their segments."""


class EngineEncoder(EngineWeights):
    """An encoder in the engine.  Results do not depend on the batch, to the bit."""

    def __init__(self, shape: ModelShape, weights: Weights, threads: Callable[[], int]) -> None:
        """threads: called at each run.  The rest is as in `EngineWeights`."""
        super().__init__(shape, weights)
        self._shape, self._threads = shape, threads

    def outputs(self, rows: Rows) -> list[NDArray[np.float32]]:
        """The head's scores of each text (k,), or of each of its positions (t, k); without a head
        the pooled vector (m,)."""
        if not self._shape.scores:
            return list(self.run(rows, [], vectors=True)[0])
        if self._shape.pooling:
            return list(self.run(rows, None)[1])
        ends = list(itertools.accumulate(len(ids) for ids, _ in rows))
        return np.split(self.run(rows, range(ends[-1]))[1], ends[:-1]) if rows else []

    def layers(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Vectors (b, t, m) before positions are added -> outputs (b, t, m) of the last layer."""
        n, length, _ = vectors.shape
        self.check_lengths(length, 0)
        rows, lengths = np.ascontiguousarray(vectors), np.full(n, length, np.int32)
        outputs = np.empty_like(rows)
        read, sizes, written = (array.ctypes.data for array in (rows, lengths, outputs))
        if not self.library.frames_run(self.pointer, read, sizes, n, written, self._threads()):
            raise MemoryError("the native engine ran out of memory")
        return outputs

    def run(
        self, rows: Rows, positions: Sequence[int] | None, vectors: bool = False
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Pooled vectors (n, m) if asked for, and scores (k, scores).

        positions: places (k,) of the scores, ascending, counted over all rows; None for the scores
        of the pooled vectors.
        """
        lengths = array("i", (len(ids) for ids, _ in rows))
        self.check_lengths(max(lengths, default=0), 0)
        parts = (itertools.chain.from_iterable(row[side] for row in rows) for side in range(2))
        ids, segments = (np.fromiter(part, np.int32, sum(lengths)) for part in parts)
        at = None if positions is None else np.array(positions, np.int32)
        pooled = np.empty((len(rows) if vectors else 0, self._shape.width), np.float32)
        count = len(rows) if at is None else len(at)
        scores = np.empty((count, self._shape.scores), np.float32)
        if rows and not self.library.encoder_run(
            self.pointer,
            ids.ctypes.data,
            segments.ctypes.data if self._shape.segments else None,
            lengths.buffer_info()[0],
            len(rows),
            None if at is None else at.ctypes.data,
            count,
            pooled.ctypes.data if vectors else None,
            scores.ctypes.data if scores.size else None,
            self._threads(),
        ):
            raise MemoryError("the native engine ran out of memory")
        return pooled, scores

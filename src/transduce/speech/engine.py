"""A speech model in the engine.  Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from transduce.engine.inference import EngineWeights, Weights
from transduce.engine.library import ModelShape
from transduce.engine.pair_shape import FRONT_ENDS, model_shape
from transduce.nn.precision import Precision

if TYPE_CHECKING:
    from transduce.speech.model_config import SpeechConfig


Rows = NDArray[np.float32]
Lengths = NDArray[np.int32]


def speech_shape(
    config: SpeechConfig, bins: int, target_size: int, precision: Precision
) -> ModelShape:
    """The shape of a supported model of speech, for frames of `bins` features.

    config: of the model.  target_size: tokens of the vocabulary.  precision: of matrix products.
    """
    shape = model_shape(config, 0, target_size, precision)
    shape.bins, front_end = bins, config.front_end
    shape.front_end = FRONT_ENDS.index(front_end.kind)
    if front_end.kind == "gated":
        shape.convolutions, shape.taps = front_end.n_layers, front_end.width
        shape.channels = front_end.channels
    return shape


class EngineSpeech(EngineWeights):
    """A speech model in the engine, without its CTC head.

    Recordings stand one after another; results do not depend on their number, to the bit.
    """

    def __init__(
        self,
        config: SpeechConfig,
        sizes: tuple[int, int],
        weights: Weights,
        precision: Precision,
        threads: Callable[[], int],
    ) -> None:
        """sizes: bins of a frame, and of the vocabulary.  threads: of the encoder, called at each
        run.  The rest is as in `EngineWeights`."""
        super().__init__(speech_shape(config, *sizes, precision), weights)
        self._front_end, self._threads = config.front_end, threads

    def positions(self, lengths: Sequence[int]) -> Lengths:
        """Positions of recordings, given by their frames."""
        return np.array([self._front_end.positions(n) for n in lengths], np.int32)

    def memory_of(self, frames: Rows, lengths: Lengths) -> Rows:
        """Frames (t, f) of recordings, normalised -> memory (positions, m)."""
        positions = self.positions(lengths.tolist())
        self.check_lengths(int(positions.max()), 0)
        memory = np.empty((positions.sum(), self.shape.width), np.float32)
        read, sizes, written = (array.ctypes.data for array in (frames, lengths, memory))
        n, threads = len(lengths), self._threads()
        if not self.library.frames_run(self.pointer, read, sizes, n, written, threads):
            raise MemoryError("the native engine ran out of memory")
        return memory

    def state_over(self, memory: Rows, lengths: Lengths) -> int:
        """Address of an initial state over memories (positions, m); it is the caller's."""
        arrays = memory.ctypes.data, lengths.ctypes.data
        pointer: int | None = self.library.state_over(self.pointer, *arrays, len(lengths))
        if not pointer:
            raise MemoryError("the native engine ran out of memory")
        return pointer

    def logits_after(self, ids: Sequence[int], memory: Rows, lengths: Lengths) -> Rows:
        """Logits (n, t, v) after each of some ids, over memories (positions, m).

        memory: vectors of all recordings, one after the other.  lengths: positions of each.
        """
        n = len(lengths)
        logits = np.empty((n, len(ids), self.shape.target_size), np.float32)
        rows, counts = np.tile(np.array(ids, np.int32), n), np.full(n, len(ids), np.int32)
        inputs: Any = (rows.ctypes.data, counts.ctypes.data, n)
        state = self.state_over(memory, lengths)
        try:
            done = self.library.state_step(state, *inputs, None, logits.ctypes.data, None, None, 0)
        finally:
            self.library.state_delete(state)
        if done != 1:
            raise MemoryError("the native engine ran out of memory")
        return logits

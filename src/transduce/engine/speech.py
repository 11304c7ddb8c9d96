"""A speech model in the engine, with the interface of `SpeechModel` for decoding."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.engine.model import NativeDecoder, NativeState
from transduce.engine.pair_shape import speech_shape
from transduce.engine.weights import Weights
from transduce.nn.kernels.float_weight import FloatWeight
from transduce.nn.kernels.precision import Precision
from transduce.sequence import Padded

if TYPE_CHECKING:
    from transduce.models.speech import SpeechConfig


class NativeSpeech(NativeDecoder):
    """A speech model in the engine; its CTC head is PyTorch's."""

    device = torch.device("cpu")

    def __init__(
        self,
        config: SpeechConfig,
        sizes: tuple[int, int],
        weights: Weights,
        precision: Precision = "float32",
        threads: Callable[[], int] = torch.get_num_threads,
    ) -> None:
        """sizes: bins of a frame, and of the vocabulary.  threads: of the encoder, called at each
        run.  The rest is as in `EngineWeights`."""
        ctc = [weights.get(f"ctc.{kind}") for kind in ("weight", "bias")]
        self.ctc = [_tensor(weight) for weight in ctc if weight is not None] or None
        engine = {name: weight for name, weight in weights.items() if not name.startswith("ctc.")}
        super().__init__(speech_shape(config, *sizes, precision), engine)
        self._front_end, self._threads = config.front_end, threads

    def encode(self, frames: Padded) -> Padded:
        """Frames (b, t, f) -> memory (b, t', m)."""
        lengths = frames.lengths.to("cpu", torch.int32)
        rows = frames.values[frames.real].float().contiguous()
        counts = torch.tensor([self._front_end.positions(n) for n in lengths.tolist()])
        self.check_lengths(int(counts.max()), 0)
        real = torch.arange(int(counts.max())) < counts[:, None]
        memory = torch.empty(int(counts.sum()), self.shape.width)
        if not self.library.frames_run(
            self.pointer,
            rows.data_ptr(),
            lengths.data_ptr(),
            len(lengths),
            memory.data_ptr(),
            self._threads(),
        ):
            raise MemoryError("the native engine ran out of memory")
        values = memory.new_zeros(*real.shape, self.shape.width)
        values[real] = memory
        return Padded(values, real, "none" if bool(real.all()) else "right")

    def over(self, memory: Padded) -> NativeState:
        """Initial state over a memory (b, t, m)."""
        rows, lengths = memory.values[memory.real].contiguous(), memory.lengths.to(torch.int32)
        pointer = self.library.state_over(
            self.pointer, rows.data_ptr(), lengths.data_ptr(), len(lengths)
        )
        if not pointer:
            raise MemoryError("the native engine ran out of memory")
        return NativeState(self, pointer, lengths.tolist())

    def ctc_log_probs(self, memory: Padded) -> Padded:
        """Memory (b, t, m) -> log-probabilities of CTC (b, t, v)."""
        assert self.ctc is not None, "a model without a CTC head"
        return memory.with_values(F.linear(memory.values, *self.ctc).log_softmax(-1))


def _tensor(weight: FloatWeight) -> Tensor:
    return torch.frombuffer(weight.read(), dtype=torch.float32).view(weight.shape).clone()

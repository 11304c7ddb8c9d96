"""A speech model in the engine, with the interface of `SpeechModel` for decoding."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.engine.model import NativeDecoder, NativeState
from transduce.engine.speech import EngineSpeech
from transduce.engine.weights import Weights
from transduce.nn.kernels.float_weight import FloatWeight
from transduce.nn.kernels.precision import Precision
from transduce.sequence import Padded

if TYPE_CHECKING:
    from transduce.models.speech_config import SpeechConfig


class NativeSpeech(EngineSpeech, NativeDecoder):
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
        """As in `EngineSpeech`."""
        ctc = [weights.get(f"ctc.{kind}") for kind in ("weight", "bias")]
        self.ctc = [_tensor(weight) for weight in ctc if weight is not None] or None
        engine = {name: weight for name, weight in weights.items() if not name.startswith("ctc.")}
        super().__init__(config, sizes, engine, precision, threads)

    def encode(self, frames: Padded) -> Padded:
        """Frames (b, t, f) -> memory (b, t', m)."""
        lengths = frames.lengths.to("cpu", torch.int32).numpy()
        rows = frames.values[frames.real].float().contiguous()
        memory = torch.from_numpy(self.memory_of(rows.numpy(), lengths))
        counts = torch.from_numpy(self.positions(lengths.tolist()))
        real = torch.arange(int(counts.max())) < counts[:, None]
        values = memory.new_zeros(*real.shape, self.shape.width)
        values[real] = memory
        return Padded(values, real, "none" if bool(real.all()) else "right")

    def over(self, memory: Padded) -> NativeState:
        """Initial state over a memory (b, t, m)."""
        rows, lengths = memory.values[memory.real].contiguous(), memory.lengths.to(torch.int32)
        return NativeState(self, self.state_over(rows.numpy(), lengths.numpy()), lengths.tolist())

    def ctc_log_probs(self, memory: Padded) -> Padded:
        """Memory (b, t, m) -> log-probabilities of CTC (b, t, v)."""
        assert self.ctc is not None, "a model without a CTC head"
        return memory.with_values(F.linear(memory.values, *self.ctc).log_softmax(-1))


def _tensor(weight: FloatWeight) -> Tensor:
    return torch.frombuffer(weight.read(), dtype=torch.float32).view(weight.shape).clone()

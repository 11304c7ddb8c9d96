"""A model in the engine, with the interface of `EncoderDecoder` for decoding."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import torch
from torch import Tensor

from transduce.engine.shape import model_shape, unsupported
from transduce.engine.weights import EngineWeights
from transduce.errors import SettingError
from transduce.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transduce.models.stacks import max_sequence_length
from transduce.nn.heads.vocabulary import VocabularyHead
from transduce.nn.kernels.linear import Precision
from transduce.sequence import Padded


class NativeState:
    """The past of a batch of hypotheses, in the engine.

    length: positions decoded so far, padding included.
    """

    def __init__(self, model: NativeModel, pointer: int, lengths: Sequence[int]) -> None:
        """pointer: of the engine's state.  lengths: (n) of the sources."""
        self.length = 0
        self.pointer = pointer
        self.rows = len(lengths)
        self.memory_length = max(lengths)
        self._library = model.library
        self._finalizer = weakref.finalize(self, self._library.state_delete, pointer)
        self._model = model  # its weights are read by every step

    def select(self, rows: Tensor) -> None:
        """Select hypotheses `rows` (r',), in order; repeats and omissions allowed."""
        ids = rows.to("cpu", torch.int32).contiguous()
        done = self._library.state_select(self.pointer, ids.data_ptr(), len(ids))
        assert done, "rows out of range"
        self.rows = len(ids)

    def rewind(self, count: int) -> None:
        """Forget the last `count` positions of every hypothesis."""
        self._library.state_rewind(self.pointer, count)
        self.length -= count


class NativeModel(EngineWeights):
    """An encoder-decoder in the engine, with `start`, `advance` and `step` as in PyTorch.

    Results agree with PyTorch's to rounding, and do not depend on the batch: to the bit.  Calls of
    different states may run in different threads.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        config: EncoderDecoderConfig,
        precision: Precision = "float32",
        instructions: str | None = None,
    ) -> None:
        """precision: of products.  instructions: see `instructions`; by default the best.

        Raises SettingError where the engine cannot be compiled or does not support the model,
        RunError for damaged weights.
        """
        if (reason := unsupported(config)) is not None:
            raise SettingError(f"the native engine does not support {reason}")
        self.head: VocabularyHead = model.head
        self.config = config
        weights = {
            name: weight.detach().to("cpu", torch.float32).numpy()
            for name, weight in model.state_dict().items()
        }
        limits = max_sequence_length(config.encoder), max_sequence_length(config.decoder)
        super().__init__(model_shape(model, config, precision), weights, limits, instructions)

    @property
    def can_rewind(self) -> bool:
        """True: every state has `rewind`."""
        return True

    def start(self, source: Padded) -> NativeState:
        """Encode the source ids (b, s)."""
        lengths = source.lengths.tolist()
        self.check_lengths(max(lengths), 0)
        ids = source.values[source.real].to("cpu", torch.int32).contiguous()
        assert int(ids.min()) >= 0 and int(ids.max()) < self.source_size, "ids out of range"
        sizes = torch.tensor(lengths, dtype=torch.int32)
        pointer = self.library.state_new(
            self.pointer, ids.data_ptr(), sizes.data_ptr(), len(lengths)
        )
        if not pointer:
            raise MemoryError("the native engine ran out of memory")
        return NativeState(self, pointer, lengths)

    def advance(self, target: Padded, state: NativeState) -> Padded:
        """Decoder outputs (r, t, m) below the head, for `target` ids (r, t)."""
        outputs = torch.empty(target.values.shape[1], state.rows, self.config.d_model)
        for at, ids in self._columns(target, state):
            self._step(state, ids, outputs=outputs[at])
        return target.with_values(outputs.transpose(0, 1))

    def step(self, target: Padded, state: NativeState) -> Tensor:
        """Logits (r, t, v) of the next token after each of `target` (r, t); `state` advances by
        t."""
        logits = torch.empty(target.values.shape[1], state.rows, len(self.head.weight))
        for at, ids in self._columns(target, state):
            self._step(state, ids, logits=logits[at])
        return logits.transpose(0, 1)

    def step_attended(self, target: Padded, state: NativeState) -> tuple[Tensor, Tensor]:
        """Logits as of `step`, and the cross-attention (r, t, s) of the last layer, the mean of
        its heads."""
        t = target.values.shape[1]
        logits = torch.empty(t, state.rows, len(self.head.weight))
        weights = torch.zeros(t, state.rows, state.memory_length)
        for at, ids in self._columns(target, state):
            self._step(state, ids, logits=logits[at], attention=weights[at])
        return logits.transpose(0, 1), weights.transpose(0, 1)

    def _columns(self, target: Padded, state: NativeState) -> list[tuple[int, Tensor]]:
        """The ids (r,) of each position, -1 for padding; the state is counted forward."""
        rows, t = target.values.shape
        assert rows == state.rows, (rows, state.rows)
        state.length += t
        self.check_lengths(0, state.length)
        ids = target.values.to("cpu", torch.int32)
        if target.padding != "none":
            ids = ids.masked_fill(~target.real.cpu(), -1)
        return list(enumerate(ids.t().contiguous()))

    def _step(
        self,
        state: NativeState,
        ids: Tensor,
        outputs: Tensor | None = None,
        logits: Tensor | None = None,
        attention: Tensor | None = None,
    ) -> None:
        done = self.library.state_step(
            state.pointer,
            ids.data_ptr(),
            None if outputs is None else outputs.data_ptr(),
            None if logits is None else logits.data_ptr(),
            None if attention is None else attention.data_ptr(),
            state.memory_length,
        )
        if done < 0:
            raise MemoryError("the native engine ran out of memory")
        assert done, "ids out of range"

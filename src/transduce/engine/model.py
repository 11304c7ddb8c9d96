"""A PyTorch model in the engine: its shape, its steps, and linear layers in bf16 and int8."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from transduce.engine.inference import EngineWeights
from transduce.engine.library import engine_library
from transduce.engine.pair_shape import PRECISIONS, model_shape, unsupported_settings
from transduce.errors import RunError, SettingError
from transduce.models.config import EncoderDecoderConfig
from transduce.models.decoder_only import DecoderOnly, DecoderOnlyConfig
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn.front_ends.front_end import FrontEnd
from transduce.nn.front_ends.text import TextFrontEnd
from transduce.nn.heads.vocabulary import VocabularyHead
from transduce.nn.kernels import replace_linear
from transduce.nn.precision import FloatWeight, Precision
from transduce.nn.stack_configs import beyond_positions
from transduce.sequence import Padded


def unsupported(config: object) -> str | None:
    """The setting that rules the engine out for a model, or None if it supports the model."""
    return next(_unsupported(config), None)


def _unsupported(config: object) -> Iterator[str]:
    if isinstance(config, DecoderOnlyConfig) and config.decoder.kind == "ssru":
        yield "model.decoder.kind = 'ssru' without an encoder"
    if isinstance(config, EncoderDecoderConfig | DecoderOnlyConfig):
        yield from unsupported_settings(config)
    else:
        yield "models other than encoder-decoders and decoders of text"


def vocabulary_sizes(model: EncoderDecoder | DecoderOnly) -> tuple[int, int]:
    """Sizes of the source vocabulary, 0 for a decoder alone, and of the target vocabulary.

    Raises SettingError for a front end of another class, such as a script's own.
    """
    source = _size(model.front_end)
    if isinstance(model, EncoderDecoder):
        return source, _size(model.target_front_end)
    return 0, source


def _size(front_end: FrontEnd) -> int:
    if not isinstance(front_end, TextFrontEnd) or front_end.segments is not None:
        raise SettingError(
            f"the native engine does not support the front end {type(front_end).__name__}"
        )
    return front_end.embedding.num_embeddings


# Results of `state_step`, as in interface.cpp.
_STEPPED, _STEP_NO_MEMORY, _NO_POSITIONS_LEFT = 1, 2, 3


class NativeState:
    """State of a batch of hypotheses in the engine, `length` positions after its start."""

    def __init__(self, model: NativeDecoder, pointer: int, lengths: Sequence[int] = ()) -> None:
        """pointer: of the engine's state.  lengths: (n) of the sources, if any."""
        self.length = 0
        self.pointer = pointer
        self.memory_length = max(lengths, default=0)
        self._library = model.library
        weakref.finalize(self, self._library.state_delete, pointer)
        self._model = model  # its weights are read by every step

    def select(self, rows: Tensor) -> None:
        """Select hypotheses `rows` (r',), in order; repeats and omissions allowed."""
        ids = rows.to("cpu", torch.int32).contiguous()
        done = self._library.state_select(self.pointer, ids.data_ptr(), len(ids))
        assert done, "rows out of range"


class NativeDecoder(EngineWeights):
    """A model in the engine, with `advance` and `step` as in PyTorch.

    Results agree with PyTorch's to rounding, and do not depend on the batch, nor on the number of
    tokens of a step: to the bit.  Calls of different states may run in different threads.
    """

    has_cross_attention = True

    def eval(self) -> Self:
        """This model, which has no dropout."""
        return self

    def advance(self, target: Padded, state: NativeState) -> Padded:
        """Decoder outputs (r, t, m) below the head, for `target` ids (r, t)."""
        outputs = torch.empty(_tokens(target), self.shape.width)
        self._step(target, state, outputs=outputs)
        return target.with_values(_spread(outputs, target))

    def step(self, target: Padded, state: NativeState) -> Tensor:
        """Logits (r, t, v) after each of `target` (r, t); `state` advances by t."""
        logits = torch.empty(_tokens(target), self.shape.target_size)
        self._step(target, state, logits=logits)
        return _spread(logits, target)

    def last_logits(self, target: Padded, state: NativeState) -> Tensor:
        """Logits (r, 1, v) of the next token after `target` (r, t), padded on the left alone."""
        logits = torch.empty(len(target.values), 1, self.shape.target_size)
        self._step(target, state, last_logits=logits)
        return logits

    def step_attended(self, target: Padded, state: NativeState) -> tuple[Tensor, Tensor]:
        """Logits, and the last cross-attention (r, t, s), the mean of its heads."""
        logits = torch.empty(_tokens(target), self.shape.target_size)
        weights = torch.zeros(len(logits), state.memory_length)
        self._step(target, state, logits=logits, attention=weights)
        return _spread(logits, target), _spread(weights, target)

    def _step(
        self,
        target: Padded,
        state: NativeState,
        outputs: Tensor | None = None,
        logits: Tensor | None = None,
        last_logits: Tensor | None = None,
        attention: Tensor | None = None,
    ) -> None:
        """Advance the state by the tokens of `target`, row by row; fills the given arrays."""
        rows, t = target.values.shape
        if target.padding == "none":
            ids, counts = target.values, torch.full((rows,), t, dtype=torch.int32)
        else:
            ids, counts = target.values[target.real], target.real.sum(1, dtype=torch.int32).cpu()
        ids = ids.to("cpu", torch.int32).contiguous()
        written = (outputs, logits, last_logits, attention)
        done = self.library.state_step(
            state.pointer,
            ids.data_ptr(),
            counts.data_ptr(),
            rows,
            *(None if array is None else array.data_ptr() for array in written),
            state.memory_length,
        )
        if done == _STEP_NO_MEMORY:
            raise MemoryError("the native engine ran out of memory")
        if done == _NO_POSITIONS_LEFT:
            raise beyond_positions(self.shape.decoder.max_positions)
        assert done == _STEPPED, "ids out of range"
        state.length += t


class NativeModel(NativeDecoder):
    """A model of texts in the engine, with `start` besides."""

    def __init__(
        self,
        model: EncoderDecoder | DecoderOnly,
        config: EncoderDecoderConfig | DecoderOnlyConfig,
        precision: Precision = "float32",
        instructions: str | None = None,
    ) -> None:
        """precision: of products.  instructions: by default the best.  Raises SettingError if the
        engine cannot be compiled or does not support the model, RunError for damaged weights."""
        if (reason := unsupported(config)) is not None:
            raise SettingError(f"the native engine does not support {reason}")
        self.head: VocabularyHead = model.head
        for parameter in model.parameters():  # tables are read in place
            parameter.data = parameter.data.contiguous()
        weights = {name: plain_weight(weight) for name, weight in model.state_dict().items()}
        shape = model_shape(config, *vocabulary_sizes(model), precision)
        super().__init__(shape, weights, instructions)

    def start(self, source: Padded | None = None) -> NativeState:
        """Encode the source ids (b, s); None for a decoder alone."""
        if source is None:
            return NativeState(self, self._made(None, None, 0))
        lengths = source.lengths.tolist()
        self.check_lengths(max(lengths), 0)
        ids = source.values[source.real].to("cpu", torch.int32).contiguous()
        assert int(ids.min()) >= 0 and int(ids.max()) < self.shape.source_size, "ids out of range"
        sizes = torch.tensor(lengths, dtype=torch.int32)
        pointer = self._made(ids.data_ptr(), sizes.data_ptr(), len(lengths))
        return NativeState(self, pointer, lengths)

    def _made(self, ids: int | None, lengths: int | None, n: int) -> int:
        pointer: int | None = self.library.state_new(self.pointer, ids, lengths, n)
        if not pointer:
            raise MemoryError("the native engine ran out of memory")
        return pointer


def _tokens(target: Padded) -> int:
    return target.real.numel() if target.padding == "none" else int(target.real.sum())


def _spread(rows: Tensor, target: Padded) -> Tensor:
    """Rows (n, ...) of the real positions of `target` (r, t), as (r, t, ...); zeros elsewhere."""
    if target.padding == "none":
        return rows.view(*target.real.shape, -1)
    spread = rows.new_zeros(*target.real.shape, rows.shape[1])
    spread[target.real.cpu()] = rows
    return spread


def plain_weight(weight: Tensor) -> FloatWeight:
    """A tensor in float32, as the engine reads it."""
    return FloatWeight(
        tuple(weight.shape), lambda: weight.detach().to("cpu", torch.float32).contiguous().numpy()
    )


class NativeLinear(nn.Module):
    """y = x Wᵀ + b for inference on a CPU, made from the float32 matrix."""

    def __init__(self, weight: Tensor, bias: Tensor | None, precision: Precision) -> None:
        """weight (n, m), bias (n,).  Raises SettingError or, if damaged, RunError."""
        super().__init__()
        self.n_outputs, self.n_inputs = weight.shape
        self.precision = precision
        self._library: Any = engine_library()
        weight = weight.detach().float().contiguous()
        self.bias: Tensor | None
        self.register_buffer("bias", None if bias is None else bias.detach().float().contiguous())
        self._pointer = self._library.linear_new(
            PRECISIONS.index(precision),
            weight.data_ptr(),
            None if self.bias is None else self.bias.data_ptr(),
            self.n_outputs,
            self.n_inputs,
        )
        if not self._pointer:
            raise RunError("a matrix of the model is not finite, or too large for the memory")
        weakref.finalize(self, self._library.linear_delete, self._pointer)

    def forward(self, x: Tensor) -> Tensor:
        """(…, m) -> (…, n)."""
        rows = x.reshape(-1, self.n_inputs).float().contiguous()
        y = torch.empty(len(rows), self.n_outputs)
        done = self._library.linear_apply(
            self._pointer, rows.data_ptr(), len(rows), y.data_ptr(), torch.get_num_threads()
        )
        if not done:
            raise MemoryError("the native engine ran out of memory")
        return y.view(*x.shape[:-1], self.n_outputs)


def to_native(model: nn.Module, precision: Precision) -> None:
    """Turn a CPU model's matrices into bf16 or int8, for inference alone; embeddings stay."""
    replace_linear(model, lambda weight, bias: NativeLinear(weight, bias, precision))

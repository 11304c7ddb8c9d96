"""ONNX graphs of encoder-decoders and encoders of texts, traced by PyTorch's exporter.

Inputs and outputs have the names of transformers.js and optimum.  A single graph of a decoder
serves every step: cached keys and values are inputs, empty at first, and the memory is projected
only at positions that the cache lacks.
"""

import logging
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transduce.errors import RunError, SettingError, extra_module
from transduce.interop.tokenizer_json import exported_id
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.encoder_only import EncoderOnly
from transduce.nn.attention import record_attention
from transduce.nn.heads.label import PoolingHead, SpanHead
from transduce.nn.heads.vocabulary import MaskedTokenHead
from transduce.nn.positions import LearnedPositions, SinusoidalPositions
from transduce.nn.state import DecoderState, KeyValue, KeyValueCache, StepPositions
from transduce.nn.transformer import TransformerDecoder, TransformerEncoder
from transduce.sequence import Padded
from transduce.text import BOS, UNK, Tokenizer

PARTS = ("decoder.key", "decoder.value", "encoder.key", "encoder.value")
"""Cached tensors of a layer."""
OPERATORS = 18
LARGEST_FILE = 1_900_000_000
"""Bytes of weights above which they have a file of their own; protobuf ends at 2 GiB."""
Inputs = list[tuple[str, Tensor, tuple[str, ...]]]
"""Name of each input, an example, whose sizes mean nothing, and names of its dimensions; those of
no name are fixed."""


class _Cache(KeyValueCache):
    """Cache that joins past and present, without room for more."""

    def __init__(self, past: Iterable[Tensor]) -> None:
        super().__init__()
        self.past = KeyValue(*past)

    def append(self, present: KeyValue) -> KeyValue:
        self.past = _joined(self.past, present)
        return self.past


class _State(DecoderState):
    """State of hypotheses with a given past, without padding, each in a row of the cache."""

    def extend(self, target: Padded) -> StepPositions:
        before, self.length = self.length, self.length + target.values.shape[1]
        keys = torch.arange(self.length)
        at = keys[before:]
        return StepPositions(at, at, keys, (keys <= at[:, None])[None])


class _Graph(nn.Module):
    """Computation with the weights of a model; `here` (v,): our ids by the exported ones, EOS where
    several of ours are one there, `first` the exported id of BOS."""

    here: Tensor

    def __init__(self, model: Any, tokenizer: Tokenizer, compute: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self.compute = model, compute
        size = tokenizer.size + (not isinstance(model, EncoderDecoder))  # others have MASK
        ours = {exported_id(tokenizer, i): i for i in range(size)}
        here = torch.tensor([ours.get(i, UNK) for i in range(max(ours) + 1)])
        self.register_buffer("here", here)
        self.first = exported_id(tokenizer, BOS)

    def forward(self, *inputs: Tensor) -> Any:
        return self.compute(self, *inputs)


def _memory(graph: _Graph, ids: Tensor, mask: Tensor) -> Tensor:
    encoded: Padded = graph.model.encode(Padded(graph.here[ids], mask != 0, "right"))
    return encoded.values


def _step(
    graph: _Graph, memory_mask: Tensor, ids: Tensor, memory: Tensor, *cached: Tensor
) -> tuple[Tensor, ...]:
    """Logits (b, t, v) of ids (b, t) after the cached ones, and the cache with them."""
    layers = [cached[i : i + len(PARTS)] for i in range(0, len(cached), len(PARTS))]
    known = layers[0][2].shape[2]
    torch._check(known <= memory.shape[1])  # type: ignore[no-untyped-call]
    modules = zip(graph.model.decoder.layers, layers, strict=True)
    rest = memory[:, known:]
    of_memory = [_joined(past[2:], layer.cross_attention.project(rest)) for layer, past in modules]
    state = _State(len(layers), Padded(memory, memory_mask != 0, "right"), of_memory)
    caches = [_Cache(layer[:2]) for layer in layers]
    state.caches, state.length = [*caches], layers[0][0].shape[2]
    target = graph.here[ids].masked_fill(ids == graph.first, BOS)
    logits = graph.model.step(Padded.unpadded(target), state)[..., graph.here]
    present = zip(caches, of_memory, strict=True)
    return logits, *(part for cache, cross in present for part in (*cache.past, *cross))


def _joined(past: Sequence[Tensor], present: Sequence[Tensor]) -> KeyValue:
    return KeyValue(*(torch.cat(pair, 2) for pair in zip(past, present, strict=True)))


def _scores(graph: _Graph, ids: Tensor, mask: Tensor, *segments: Tensor) -> Any:
    """Output of the head for ids, mask and perhaps segments (b, t)."""
    model, ids = graph.model, graph.here[ids]
    tokens = Padded(torch.stack([ids, *segments], 2) if segments else ids, mask != 0, "right")
    if isinstance(model.head, PoolingHead):
        vectors = model.encode(tokens)
        return vectors.values, model.head(vectors)
    scores = model(tokens)
    if isinstance(model.head, SpanHead):
        return scores.unbind(2)
    return scores[..., graph.here] if isinstance(model.head, MaskedTokenHead) else scores


def write_encoder_decoder(
    model: EncoderDecoder, source: Tokenizer, target: Tokenizer, positions: int, directory: Path
) -> None:
    """Write `encoder_model.onnx` and `decoder_model_merged.onnx`; the model is changed.

    source, target: tokenizers.  directory: of the two files.  positions: of tables of sinusoids.
    Raises RunError for stacks other than Transformers, SettingError if the extra `onnx` is missing.
    """
    _prepare(model, positions)
    decoder: Any = model.decoder
    attention = decoder.layers[0].self_attention
    heads, width = attention.n_heads, attention.width // attention.n_heads
    long, short = (("batch_size", f"{side}_sequence_length") for side in ("encoder", "decoder"))
    ids = torch.zeros(2, 7, dtype=torch.long)
    mask = torch.ones_like(ids)
    _write(
        _Graph(model, source, _memory),
        [("input_ids", ids, long), ("attention_mask", mask, long)],
        ["last_hidden_state"],
        directory / "encoder_model.onnx",
    )
    names = [f"{i}.{part}" for i in range(len(decoder.layers)) for part in PARTS]
    inputs: Inputs = [
        ("encoder_attention_mask", mask, long),
        ("input_ids", ids[:, :3], short),
        ("encoder_hidden_states", torch.zeros(2, 7, attention.output.out_features), long),
    ]
    for name in names:
        side = name.split(".")[1]
        past = torch.zeros(2, heads, 4 + (side == "encoder"), width)
        axes = ("batch_size", "", f"past_{side}_sequence_length")
        inputs.append((f"past_key_values.{name}", past, axes))
    _write(
        _Graph(model, target, _step),
        inputs,
        ["logits", *(f"present.{name}" for name in names)],
        directory / "decoder_model_merged.onnx",
    )


def write_encoder(model: Any, tokenizer: Tokenizer, positions: int, directory: Path) -> None:
    """Write `model.onnx` of an encoder of texts; the model is changed.  Raises as
    `write_encoder_decoder`.

    tokenizer: of the texts.  positions: of tables of sinusoids.  directory: of the file.
    """
    _prepare(model, positions)
    ids = torch.zeros(2, 7, dtype=torch.long)
    names = ["input_ids", "attention_mask", "token_type_ids"]
    names = names if model.front_end.segments is not None else names[:2]
    axes = ("batch_size", "sequence_length")
    outputs = ["logits"]
    if isinstance(model.head, PoolingHead):
        outputs = ["last_hidden_state", "sentence_embedding"]
    elif isinstance(model.head, SpanHead):
        outputs = ["start_logits", "end_logits"]
    inputs: Inputs = [(name, ids + (name == "attention_mask"), axes) for name in names]
    _write(_Graph(model, tokenizer, _scores), inputs, outputs, directory / "model.onnx")


def _prepare(model: EncoderDecoder | EncoderOnly, positions: int) -> None:
    """Give stacks with sinusoids a table of so many positions."""
    for side in ("encoder", "decoder"):
        stack: Any = getattr(model, side, None)
        if not isinstance(stack, TransformerEncoder | TransformerDecoder | None):
            raise RunError(f"ONNX export needs model.{side}.kind = 'transformer'; train with that")
        if stack is not None and isinstance(stack.positions, SinusoidalPositions):
            layer: Any = stack.layers[0]
            m = layer.self_attention.output.out_features
            table = LearnedPositions(m, positions)
            at = torch.arange(positions)
            table.table.weight.data = stack.positions.embed(torch.zeros(positions, m), at)
            stack.positions = table


def _write(graph: nn.Module, inputs: Inputs, outputs: Sequence[str], path: Path) -> None:
    extra_module("onnxscript", "ONNX export", "onnx", SettingError)
    axes = [{i: name for i, name in enumerate(names) if name} for _, _, names in inputs]
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), record_attention(graph):  # by plain matrix products
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            graph.eval(),
            tuple(example for _, example, _ in inputs),
            input_names=[name for name, _, _ in inputs],
            output_names=outputs,
            dynamic_shapes={"inputs": tuple(axes)},
            opset_version=OPERATORS,
            dynamo=True,
            verbose=False,
        )
        assert program is not None
        for node in program.model.graph.all_nodes():
            node.metadata_props.clear()  # of the tracing, as large as a small model
        size = sum(parameter.nbytes for parameter in graph.parameters())
        program.save(path, external_data=size > LARGEST_FILE)

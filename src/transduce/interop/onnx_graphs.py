"""ONNX graphs of encoder-decoders and encoders of texts, traced by PyTorch's exporter.

Inputs and outputs have the names of transformers.js and optimum.  A single graph of a decoder
serves every step: cached keys and values are inputs, empty at first, and the memory is projected
only at positions that the cache lacks.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from transduce.errors import RunError, SettingError, extra_module
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.encoder_only import EncoderOnly, TextEmbedding
from transduce.nn.attention import record_attention
from transduce.nn.heads.label import SpanHead
from transduce.nn.heads.vocabulary import MaskedTokenHead
from transduce.nn.positions import LearnedPositions, SinusoidalPositions
from transduce.nn.state import DecoderState, KeyValue, KeyValueCache, StepPositions
from transduce.nn.transformer import TransformerDecoder, TransformerEncoder
from transduce.sequence import Padded
from transduce.support.version import __version__
from transduce.text import BOS, Tokenizer
from transduce.text.imported import ImportedTokenizer

PARTS = ("decoder.key", "decoder.value", "encoder.key", "encoder.value")
"""Cached tensors of a layer."""
OPERATORS = 18
LARGEST_FILE = 1_900_000_000
"""Bytes of weights above which they have a file of their own; protobuf ends at 2 GiB."""
Axes = dict[int, str]
"""Names of variable dimensions."""


class GraphInput(NamedTuple):
    """Input of a graph: an example, whose sizes mean nothing, and its variable dimensions."""

    name: str
    example: Tensor
    axes: Axes


class VocabularyIds(nn.Module):
    """Ids of an imported vocabulary as ours, and logits in the order of that vocabulary; the
    identity for other tokenizers."""

    here: Tensor | None

    def __init__(self, tokenizer: Tokenizer, output: bool = False) -> None:
        """output: BOS rather than EOS for an id that both have, as at the start of an output."""
        super().__init__()
        here = None
        if isinstance(tokenizer, ImportedTokenizer):
            numbering = tokenizer.numbering
            ids = {there: i for i, there in enumerate(numbering.rows_and_mask)}
            if output and numbering.bos is not None:
                ids[numbering.bos] = BOS
            here = torch.tensor([ids[there] for there in range(numbering.size)])
        self.register_buffer("here", here)

    def forward(self, ids: Tensor) -> Tensor:
        """Ids of any shape -> ours."""
        return ids if self.here is None else self.here[ids]

    def logits(self, ours: Tensor) -> Tensor:
        """(…, v) -> (…, v)."""
        return ours if self.here is None else ours.index_select(-1, self.here)


class _MemoryGraph(nn.Module):
    """Encoder under a decoder: ids and mask (b, s) -> memory (b, s, m)."""

    def __init__(self, model: EncoderDecoder, source: Tokenizer) -> None:
        super().__init__()
        self.model = model
        self.ids = VocabularyIds(source)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.model.encode(Padded(self.ids(ids), mask != 0, "right")).values


class _AppendedCache(KeyValueCache):
    """Cache that joins past and present, without room for more."""

    def __init__(self, past: KeyValue) -> None:
        super().__init__()
        self.past = past

    def append(self, present: KeyValue) -> KeyValue:
        self.past = _joined(self.past, present)
        return self.past


def _joined(past: Sequence[Tensor], present: Sequence[Tensor]) -> KeyValue:
    return KeyValue(*(torch.cat(pair, 2) for pair in zip(past, present, strict=True)))


class _CachedState(DecoderState):
    """State of hypotheses whose past is given, without padding, each in a row of the cache."""

    def __init__(
        self, memory: Padded, memory_layers: list[KeyValue], past: Sequence[KeyValue]
    ) -> None:
        super().__init__(len(past), memory, memory_layers)
        self.appended = [_AppendedCache(layer) for layer in past]
        self.caches = [*self.appended]
        self.length = past[0].key.shape[2]

    def extend(self, target: Padded) -> StepPositions:
        before, self.length = self.length, self.length + target.values.shape[1]
        keys = torch.arange(self.length)
        at = keys[before:]
        return StepPositions(at, at, keys, (keys <= at[:, None])[None])


class _StepGraph(nn.Module):
    """Decoder: ids (b, t) after cached positions -> logits (b, t, v), and the cache with them."""

    def __init__(self, model: EncoderDecoder, target: Tokenizer) -> None:
        super().__init__()
        self.model = model
        self.inputs, self.outputs = VocabularyIds(target, output=True), VocabularyIds(target)

    def forward(
        self, memory_mask: Tensor, ids: Tensor, memory: Tensor, cached: list[Tensor]
    ) -> tuple[Tensor, ...]:
        layers = [cached[i : i + len(PARTS)] for i in range(0, len(cached), len(PARTS))]
        known = layers[0][2].shape[2]
        torch._check(known <= memory.shape[1])  # type: ignore[no-untyped-call]
        rest = memory[:, known:]
        modules: Any = self.model.decoder.layers  # type: ignore[attr-defined]
        of_memory = [
            _joined(layer[2:], module.cross_attention.project(rest))
            for module, layer in zip(modules, layers, strict=True)
        ]
        source = Padded(memory, memory_mask != 0, "right")
        state = _CachedState(source, of_memory, [KeyValue(*layer[:2]) for layer in layers])
        logits = self.model.step(Padded.unpadded(self.inputs(ids)), state)
        present = zip(state.appended, of_memory, strict=True)
        return (
            self.outputs.logits(logits),
            *(part for own, memory in present for part in (*own.past, *memory)),
        )


class _EncoderGraph(nn.Module):
    """Encoder under its head: ids, mask and perhaps segments (b, t) -> the head's scores."""

    def __init__(self, model: EncoderOnly | TextEmbedding, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.model = model
        self.ids = VocabularyIds(tokenizer)

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor | None = None) -> Any:
        ids = self.ids(ids)
        if segments is not None:
            ids = torch.stack([ids, segments], 2)
        model, tokens = self.model, Padded(ids, mask != 0, "right")
        if isinstance(model, TextEmbedding):
            vectors = model.encoder(model.front_end(tokens))
            return vectors.values, model.pooled(vectors)
        scores = model(tokens)
        if isinstance(model.head, SpanHead):
            return scores.unbind(2)
        return self.ids.logits(scores) if isinstance(model.head, MaskedTokenHead) else scores


def write_encoder_decoder(
    model: EncoderDecoder, source: Tokenizer, target: Tokenizer, positions: int, directory: Path
) -> None:
    """Write `encoder_model.onnx` and `decoder_model_merged.onnx`; the model is changed.

    positions: of tables of sinusoids.  Raises RunError for stacks other than Transformers,
    SettingError if the extra `onnx` is missing.
    """
    decoder: Any = model.decoder
    prepare(model, positions)
    batch = {0: "batch_size"}
    long, short = ({**batch, 1: f"{side}_sequence_length"} for side in ("encoder", "decoder"))
    ids = torch.zeros(2, 7, dtype=torch.long)
    mask = torch.ones_like(ids)
    inputs = [GraphInput("input_ids", ids, long), GraphInput("attention_mask", mask, long)]
    path = directory / "encoder_model.onnx"
    _write(_MemoryGraph(model, source), inputs, ["last_hidden_state"], path)
    attention = decoder.layers[0].self_attention
    d_head = attention.width // attention.n_heads
    memory = torch.zeros(2, 7, attention.output.out_features)
    inputs = [
        GraphInput("encoder_attention_mask", mask, long),
        GraphInput("input_ids", ids[:, :3], short),
        GraphInput("encoder_hidden_states", memory, long),
    ]
    names = [f"{i}.{part}" for i in range(len(decoder.layers)) for part in PARTS]
    cached = []
    for name in names:
        side = name.split(".")[1]
        past = torch.zeros(2, attention.n_heads, 4 + (side == "encoder"), d_head)
        axes = {**batch, 2: f"past_{side}_sequence_length"}
        cached.append(GraphInput(f"past_key_values.{name}", past, axes))
    outputs = ["logits", *(f"present.{name}" for name in names)]
    path = directory / "decoder_model_merged.onnx"
    _write(_StepGraph(model, target), inputs, outputs, path, cached)


def write_encoder(
    model: EncoderOnly | TextEmbedding, tokenizer: Tokenizer, positions: int, directory: Path
) -> None:
    """Write `model.onnx` of an encoder of texts under its head; the model is changed.  Raises as
    `write_encoder_decoder`."""
    prepare(model, positions)
    axes = {0: "batch_size", 1: "sequence_length"}
    ids = torch.zeros(2, 7, dtype=torch.long)
    inputs = [
        GraphInput("input_ids", ids, axes),
        GraphInput("attention_mask", torch.ones_like(ids), axes),
    ]
    if model.front_end.segments is not None:  # type: ignore[union-attr]
        inputs.append(GraphInput("token_type_ids", torch.zeros_like(ids), axes))
    outputs = ["logits"]
    if isinstance(model, TextEmbedding):
        outputs = ["last_hidden_state", "sentence_embedding"]
    elif isinstance(model.head, SpanHead):
        outputs = ["start_logits", "end_logits"]
    _write(_EncoderGraph(model, tokenizer), inputs, outputs, directory / "model.onnx")


def prepare(model: nn.Module, positions: int) -> None:
    """Give stacks with sinusoids a table of so many positions.  Raises RunError for stacks other
    than Transformers."""
    for side in ("encoder", "decoder"):
        stack = getattr(model, side, None)
        if not isinstance(stack, TransformerEncoder | TransformerDecoder | None):
            raise RunError(f"ONNX export needs model.{side}.kind = 'transformer'; train with that")
        if stack is not None and isinstance(stack.positions, SinusoidalPositions):
            layer: Any = stack.layers[0]
            m = layer.self_attention.output.out_features
            table = LearnedPositions(m, positions)
            at = torch.arange(positions)
            table.table.weight.data = stack.positions.embed(torch.zeros(positions, m), at)
            stack.positions = table


def _write(
    graph: nn.Module,
    inputs: Sequence[GraphInput],
    outputs: Sequence[str],
    path: Path,
    cached: Sequence[GraphInput] = (),
) -> None:
    """Trace a graph and write it; cached inputs follow as a list, if there are any."""
    extra_module("onnxscript", "ONNX export", "onnx", SettingError)
    examples: list[Any] = [part.example for part in inputs]
    axes: list[Any] = [part.axes for part in inputs]
    if cached:
        examples.append([part.example for part in cached])
        axes.append([part.axes for part in cached])
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), record_attention(graph):  # by plain matrix products
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            graph.eval(),
            tuple(examples),
            input_names=[part.name for part in (*inputs, *cached)],
            output_names=outputs,
            dynamic_shapes=axes,
            opset_version=OPERATORS,
            dynamo=True,
            verbose=False,
        )
        assert program is not None
        program.model.producer_name, program.model.producer_version = "transduce", __version__
        for node in program.model.graph.all_nodes():
            node.metadata_props.clear()  # of the tracing, as large as a small model
        size = sum(parameter.nbytes for parameter in graph.parameters())
        program.save(path, external_data=size > LARGEST_FILE)

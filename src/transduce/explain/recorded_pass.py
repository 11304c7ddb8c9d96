"""Explanations of all tasks: a recorded pass, and its parts laid out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from transduce.decoding.topk import topk
from transduce.explain.explanation import Explanation
from transduce.explain.heads import head_pattern, sharpness
from transduce.explain.parts import (
    Attention,
    Guess,
    HeadVectors,
    Step,
    Vectors,
    as_guesses,
)
from transduce.explain.recording import (
    Recording,
    as_array,
    describe_stack,
    record_pass,
    stacks_of,
    without_positions,
)
from transduce.nn.heads.label import LabelHead
from transduce.sequence import Padded

logger = logging.getLogger("transduce")

MAX_TOKENS = 256
"""Tokens of a sequence that are explained."""
RIVALS = 8
"""Tokens shown for a step, the written token included."""
MAX_LABELS = 10
LENS = 3
"""Tokens shown for each position after each layer."""
SHOWN_LAYER = (".layers.0.", ".residuals.0.")


def guesses_of(
    probabilities: Tensor, names: Callable[[Sequence[int]], list[str]], count: int
) -> tuple[Guess, ...]:
    """The likeliest ids of probabilities (v,), by name."""
    (values,), (ids,) = topk(probabilities[None], min(count, len(probabilities)))
    return as_guesses(names(ids.tolist()), values.tolist())


def fitting(ids: Iterable[int], what: str) -> list[int]:
    """The ids, or the first `MAX_TOKENS` of them with a warning."""
    known = list(ids)
    if len(known) > MAX_TOKENS:
        message = "the %s has %d tokens; the first %d of them are explained"
        logger.warning(message, what, len(known), MAX_TOKENS)
    return known[:MAX_TOKENS]


class Pass:
    """A pass over a row, recorded, and once more without positions for the work by hand.

    sequences: of each attention (its rows and columns), by the stack and kind that it belongs to:
    "encoder", "decoder" and "cross".  first: positions of a decoder by itself before this pass are
    read, but left out of all that is shown.
    """

    def __init__(
        self,
        model: nn.Module,
        run: Callable[[], Tensor],
        sequences: Mapping[str, tuple[str, str]],
        tokens: Mapping[str, Sequence[str]],
        first: int = 0,
    ) -> None:
        model.eval()
        self.model, self._first = model, first
        self._sequences, self._tokens = sequences, tokens
        with torch.inference_mode():
            with record_pass(model) as recording:
                self.output = run()
            with without_positions(model) as left_out, record_pass(model) as bare:
                if left_out:
                    run()
        self.seen = recording
        self.attention = tuple(
            named_attention(name, as_array(weights[:, first:, first:]), sequences, tokens)
            for name, weights in recording.attention.items()
        )
        self.by_hand = tuple(self._by_hand(bare))
        self.shapes = {
            name: shape
            for name, shape in recording.shapes.items()
            if ("layers." not in name and "residuals." not in name)
            or any(part in f"{name}." for part in SHOWN_LAYER)
        }

    def laid_out(self, bare: Explanation, d_model: int) -> Explanation:
        """The explanation with all that every pass has: attention, vectors, stacks, shapes."""
        stacks = {
            name: describe_stack(stack, self._sequences[name][0], d_model)
            for name, stack in stacks_of(self.model).items()
        }
        return replace(
            bare,
            sequences=self._tokens,
            attention=self.attention,
            by_hand=self.by_hand,
            stacks=stacks,
            shapes=self.shapes,
        )

    @torch.inference_mode()
    def lens(self, stack: str, read: Callable[[Tensor], Tensor]) -> list[Tensor]:
        """`read` of the vectors (t, m) after each layer of a stack, its last norm applied."""
        whole: Any = stacks_of(self.model)[stack]
        norm = getattr(whole, "norm", None) or nn.Identity()
        return [
            read(norm(layer[self._first :])).float().cpu()
            for layer in self.seen.layers.get(stack, ())
        ]

    def _by_hand(self, bare: Recording) -> list[HeadVectors]:
        by_role: dict[tuple[str, str], list[tuple[float, int, int]]] = {}
        for number, attention in enumerate(self.attention):
            if attention.name in self.seen.heads:
                for head, weights in enumerate(attention.weights):
                    ranked = by_role.setdefault((attention.rows, attention.columns), [])
                    ranked.append((-sharpness(weights), number, head))
        chosen = []
        for ranked in by_role.values():
            _, number, head = min(ranked)
            name = self.attention[number].name
            vectors = self.seen.heads[name].after(self._first)
            other: Vectors | None = None
            if name in bare.heads:
                other = bare.heads[name].after(self._first).vectors(head)
            bias = vectors.bias_of(head)
            chosen.append(HeadVectors(number, head, vectors.vectors(head), bias, other))
        return chosen


def steps_of(
    read: Sequence[str],
    written: Sequence[str],
    ids: Sequence[int],
    probabilities: Tensor,
    names: Callable[[Sequence[int]], list[str]],
    count: int = RIVALS,
) -> tuple[Step, ...]:
    """Steps that wrote `ids`, by the probabilities (t, v) of each."""
    return tuple(
        Step(a, b, float(row[i]), guesses_of(row, names, count))
        for a, b, i, row in zip(read, written, ids, probabilities, strict=True)
    )


def encoder_pass(
    bare: Explanation, model: nn.Module, batch: Padded | Tensor, name: str, tokens: list[str]
) -> tuple[Pass, Explanation]:
    """A pass over a row, and the explanation with all that every encoder has."""
    recorded = Pass(model, lambda: model(batch), {"encoder": (name, name)}, {name: tokens})
    return recorded, recorded.laid_out(bare, recorded.shapes["front_end"][-1])


def label_guesses(probabilities: Tensor, labels: Sequence[str]) -> tuple[Guess, ...]:
    """The likeliest labels."""
    return guesses_of(probabilities, lambda ids: [labels[i] for i in ids], MAX_LABELS)


def label_layers(
    recorded: Pass, head: LabelHead, labels: Sequence[str]
) -> tuple[tuple[tuple[Guess, ...], ...], ...]:
    """The labels after each layer, as if it were the last."""
    lens = recorded.lens("encoder", lambda x: head(Padded.unpadded(x[None])))
    return tuple((label_guesses(scores[0].softmax(-1), labels),) for scores in lens)


def named_attention(
    name: str,
    weights: Any,
    sequences: Mapping[str, tuple[str, str]],
    tokens: Mapping[str, Sequence[str]],
) -> Attention:
    """Weights (h, t, s) of the attention of that name, with the pattern of each head.

    sequences, tokens: as in `Pass`.
    """
    kind = "cross" if name.endswith("cross_attention") else name.split(".")[0]
    rows, columns = sequences[kind]
    causal = kind == "decoder"
    patterns = tuple(
        head_pattern(head, tokens[columns], rows == columns, causal) for head in weights
    )
    return Attention(name, rows, columns, weights, patterns, causal)

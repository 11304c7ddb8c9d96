"""Explanations of outputs: the search watched, and a pass over input and output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from transduce.explain.explanation import Explanation
from transduce.explain.parts import Array, Guess
from transduce.explain.recorded_pass import LENS, Pass, fitting, guesses_of, steps_of
from transduce.explain.recording import as_array
from transduce.explain.search_watch import Names
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn.recurrent import RecurrentState
from transduce.sequence import Padded
from transduce.text import BOS, EOS, PAD


class OutputPass(NamedTuple):
    """An input of an encoder-decoder, and its output.

    source: the name of its sequence, and its tokens.  written: ids without the end.
    """

    model: EncoderDecoder
    batch: Padded | Tensor
    source: tuple[str, Sequence[str]]
    written: Sequence[int]
    names: Names

    def explain(self, bare: Explanation) -> Explanation:
        """A pass over the pair, laid out."""
        model, names = self.model, self.names
        source, shown = self.source
        ids = fitting(self.written, "output")
        whole = len(ids) == len(self.written)
        read = [BOS, *ids] if whole else [BOS, *ids[:-1]]
        written = [*read[1:], EOS if whole else ids[-1]]
        target = Padded.from_rows([read], PAD).to(model.head.weight.device)
        tokens = {source: shown, "read": names(read), "written": names(written)}
        kinds = {
            "encoder": (source, source),
            "decoder": ("read", "read"),
            "cross": ("written", source),
        }
        recorded = Pass(model, lambda: model(self.batch, target), kinds, tokens)
        probabilities = recorded.output[0].float().softmax(-1).cpu()
        return replace(
            recorded.laid_out(bare, model.head.weight.shape[1]),
            steps=steps_of(tokens["read"], tokens["written"], written, probabilities, names),
            layers=layer_guesses(recorded.lens("decoder", model.head), names),
            layers_of="written",
            vectors=_fixed_context(model, self.batch),
        )


def layer_guesses(
    lens: Sequence[Tensor], names: Names
) -> tuple[tuple[tuple[Guess, ...], ...], ...]:
    """The likeliest tokens of logits (t, v) after each layer."""
    return tuple(
        tuple(guesses_of(row, names, LENS) for row in logits.softmax(-1)) for logits in lens
    )


@torch.inference_mode()
def _fixed_context(model: EncoderDecoder, batch: Padded | Tensor) -> dict[str, Array]:
    state = model.start(batch)
    if isinstance(state, RecurrentState) and state.summary is not None:
        return {"context": as_array(state.summary[0])}
    return {}

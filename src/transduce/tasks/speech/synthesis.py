"""Speech synthesis: training by the distance of frames, the end, and guided attention."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from transduce.data.batches import RowBatch, TokenBatches
from transduce.errors import DataError
from transduce.models.synthesis import SynthesisModel, frames_read, guided_heads
from transduce.sequence import Padded
from transduce.settings.sections import to_dict
from transduce.tasks.recipe import Split
from transduce.tasks.sequence_training import SequenceTraining
from transduce.tasks.speech.recordings import SplitRecordings
from transduce.tasks.speech.synthesis_scores import free_scores
from transduce.tasks.speech.synthesiser import Synthesiser
from transduce.training.guided_attention import guided_attention_loss
from transduce.training.loss import LossSums


@dataclass(frozen=True)
class SynthesisBatch(RowBatch):
    """Some texts and their recordings.

    text: (b, s) ids + EOS, or (b, s, 2) with the speaker's number.  frames: (b, t·k, bins)
    normalised, a whole number of steps of k each.
    """

    text: Padded
    frames: Padded

    @property
    def target_tokens(self) -> int:
        """Frames to predict."""
        return int(self.frames.real.sum())


class SynthesisTraining(SequenceTraining[Synthesiser]):
    """Texts, recordings, model and loss for the training loop."""

    unit = "frames"
    items = "training recordings"

    def __init__(self, synthesiser: Synthesiser, data: dict[Split, SplitRecordings]) -> None:
        super().__init__(synthesiser)
        self.recipe = recipe = synthesiser.recipe
        self.numbers = data["train"].rows
        self.batches = self._batches(data["train"])
        self._valid = self._batches(data["valid"])
        self._spoken = data["valid"].sample(recipe.evaluation.validation_texts)
        self._attention_weight = recipe.training.attention_weight

    def begin_step(self, share: float) -> None:
        """Set the weight of guided attention, which falls linearly to 0 at the end of training."""
        self._attention_weight = (1 - share) * self.recipe.training.attention_weight

    def loss(self, batch: SynthesisBatch) -> LossSums:
        """Mean distance of the frames before and after the postnet, loss of the end, and guided
        attention; `nll` is the distance after the postnet."""
        text, frames = batch.text.to(self.device), batch.frames.to(self.device)
        model: SynthesisModel = self.model
        k = model.frames_per_step
        guided: AbstractContextManager[list[list[Tensor]]] = nullcontext([])
        if self._attention_weight:
            guided = model.guided_weights()
        with guided as recorded:
            before, after, stop = spoken_as(model, text, frames)
        steps = frames.real[:, ::k]
        ends = end_loss(stop, steps, self.recipe.training.stop_weight)
        sums = after + before + k * ends
        if layers := guided_heads(recorded):
            costs = sum(guided_attention_loss(weights, steps, text.real) for weights in layers)
            sums = sums + self._attention_weight * k / len(layers) * costs
        return LossSums(sums, after.detach(), batch.target_tokens)

    def validate(self) -> dict[str, float]:
        """Distance per frame with teacher forcing; scores of texts synthesised without it."""
        distance, frames = 0.0, 0
        with torch.inference_mode():
            for batch in self._valid.in_order():
                distance += self.distance(batch)
                frames += batch.target_tokens
        scores = {"loss": distance / frames}
        if len(self._spoken):
            texts, speakers = self._spoken.texts, self._spoken.speakers
            spoken = list(self.predictor.speak(texts, speakers=speakers))
            length = sum(len(speech.frames) for speech in spoken) / int(self._spoken.lengths.sum())
            scores |= {**free_scores(spoken), "length-ratio": 100 * length}
        return scores

    def distance(self, batch: SynthesisBatch) -> float:
        """Distance of the frames with teacher forcing, as a sum over frames."""
        text, frames = batch.text.to(self.device), batch.frames.to(self.device)
        return float(spoken_as(self.model, text, frames)[1])

    def behind(self, score: str) -> Sequence[Any]:
        """Texts that are spoken, and how."""
        return () if score == "loss" else (self._spoken.texts, to_dict(self.recipe.speaking))

    def _batches(self, data: SplitRecordings) -> TokenBatches[SynthesisBatch]:
        synthesiser, k = self.predictor, self.predictor.model.frames_per_step
        texts = encoded(synthesiser, data)
        speakers = [synthesiser.number_of(name) for name in data.speakers]

        def assemble(rows: NDArray[np.int64]) -> SynthesisBatch:
            frames = in_steps(synthesiser.normalisation(data.padded(rows)), k)
            text = synthesiser.padded([texts[i] for i in rows], [speakers[i] for i in rows])
            return SynthesisBatch(rows, text, frames)

        lengths = np.array([len(ids) for ids in texts])
        tokens, seed = self.recipe.training.batch_tokens, self.recipe.seed
        return TokenBatches((lengths, -(-data.lengths // k)), assemble, tokens, seed)


def encoded(synthesiser: Synthesiser, data: SplitRecordings) -> list[list[int]]:
    """Ids of the text of each recording.  Raises DataError for a text that is too long."""
    symbols = synthesiser.symbols(data.texts)
    rows = synthesiser.ids(symbols)
    room = synthesiser.room
    for name, row in zip(data.names, rows, strict=True):
        if room is not None and len(row) > room:
            raise DataError(
                f"{name}: the text has {len(row) - 1} tokens, but the encoder has {room} learned "
                "positions; raise model.encoder.max_positions"
            )
    return rows


def in_steps(frames: Padded, k: int) -> Padded:
    """Frames (b, t, bins) in whole steps of k: the last frame of a row is repeated."""
    steps = (frames.lengths + k - 1) // k
    places = torch.arange(int(steps.max()) * k)
    taken = torch.minimum(places, frames.lengths[:, None] - 1)
    values = frames.values[torch.arange(len(steps))[:, None], taken]
    real = places < (steps * k)[:, None]
    values = values.masked_fill(~real[:, :, None], 0.0)
    return Padded(values, real, "none" if bool(real.all()) else "right")


def spoken_as(model: SynthesisModel, text: Padded, frames: Padded) -> tuple[Tensor, Tensor, Tensor]:
    """Distance of the frames (b, t·k, bins) before and after the postnet, with teacher forcing, and
    the logits of the end (b, t).

    A distance is the mean over bins, summed over real frames.
    """
    predicted = model(text, frames_read(frames, model.frames_per_step))
    better = model.postnet(frames.with_values(predicted.frames))

    def distance(values: Tensor) -> Tensor:
        return (values.float() - frames.values).abs().mean(2)[frames.real].sum()

    return distance(predicted.frames), distance(better), predicted.stop


def end_loss(stop: Tensor, steps: Tensor, weight: float) -> Tensor:
    """Binary cross-entropy of the end in nats, from logits (b, t), as a sum over real steps.

    steps: (b, t) True at real steps, the last of which, weighted by `weight`, is the end.
    """
    ends = steps & ~F.pad(steps, (0, 1))[:, 1:]
    labels, logits = ends[steps].float(), stop[steps].float()
    return F.binary_cross_entropy_with_logits(
        logits, labels, pos_weight=logits.new_tensor(weight), reduction="sum"
    )

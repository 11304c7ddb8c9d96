"""Speech synthesis: training by attention or by durations, speakers, runs.

At step t of T, weight on letter n of N costs 1 - exp(-(t / T - n / N)² / 2g²): a voice goes through
its text from the beginning to the end, at about the same pace.
"""

import functools
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from transduce.data.batches import RowBatch, TokenBatches
from transduce.errors import DataError, SettingError, printable_name
from transduce.interop.voice import STYLES
from transduce.sequence import Padded
from transduce.settings.sections import to_dict
from transduce.speech import monotonic
from transduce.speech.normalisation import load_normalisation, normalisation_for
from transduce.speech.recipe import SplitRecordings, recordings_to_train
from transduce.speech.spoken import load_pronouncer
from transduce.speech.synthesis_models import (
    EncodedText,
    MonotonicSynthesis,
    SynthesisConfig,
    SynthesisModel,
    VoiceConfig,
    frames_read,
    guided_heads,
    scores_of,
)
from transduce.speech.synthesiser import Synthesiser, SynthesisRecipe, free_scores
from transduce.speech.voices import KokoroVoice, Voice
from transduce.support.work import available_cores
from transduce.tasks.labels import load_labels
from transduce.tasks.recipe import Split, warn_of_few
from transduce.tasks.text_inputs import tokenizer_of
from transduce.tasks.training import SequenceTraining, tokenizer_for, with_weights
from transduce.training.config import FineTuneConfig
from transduce.training.distributed import Ranks
from transduce.training.fine_tuning import AdaptWeights
from transduce.training.loss import LossSums
from transduce.training.weight_files import cache_of, checkpoints_of
from transduce.training.weights import write_text

WIDTH = 0.2
"""g: distance from the diagonal, as a share of the text, at which weights cost 0.4."""


def guided_attention_loss(weights: Tensor, steps: Tensor, letters: Tensor) -> Tensor:
    """Cost of attention weights (b, h, t, s), the mean of the heads, as a sum over real steps.
    steps: (b, t) and letters: (b, s) bool, True at real positions, padded on the right."""
    costs = 1 - torch.exp(
        -(_shares(steps)[:, :, None] - _shares(letters)[:, None]).square() / 2 / WIDTH**2
    )
    costs = costs * (steps[:, :, None] & letters[:, None])
    return (weights.float().mean(1) * costs).sum()


def _shares(real: Tensor) -> Tensor:
    """(b, t) place of each position as a share of its row's length."""
    places = torch.arange(real.shape[1], device=real.device)
    return places / real.sum(1, keepdim=True)


FILE = "speakers.json"
VECTORS = "front_end.segments.weight"


def load_speakers(run: Path) -> tuple[str, ...]:
    """Speakers of a run directory; none of a run of a single voice."""
    return load_labels(run, FILE) if (run / FILE).exists() else ()


def speakers_for(
    fine_tune: FineTuneConfig | None, run: Path, train: SplitRecordings
) -> tuple[str, ...]:
    """Speakers of a run before training, saved in its directory; none for a single voice.

    Those of the training recordings, then others of the base run.  Raises DataError if only some
    recordings have a speaker.

    fine_tune: names the base run; None without.  train: recordings with their speakers.
    """
    if (run / FILE).exists() or checkpoints_of(run):
        return load_speakers(run)
    names = sorted(set(map(printable_name, train.speakers)))
    others = load_speakers(Path(fine_tune.run)) if fine_tune else ()
    speakers = (*names, *(name for name in others if name not in names))
    if len(speakers) < 2:
        return ()
    if "" in names:
        unnamed = train.names[train.speakers.index("")]
        remedy = "name the speaker of each recording, or set the column to an absent one"
        raise DataError(f"{unnamed} has no speaker, and others have; {remedy}")
    if Ranks.present().is_main:
        write_text(run / FILE, json.dumps(speakers, ensure_ascii=False) + "\n")
    return speakers


def fit_speakers(speakers: Sequence[str], base: Sequence[str]) -> AdaptWeights:
    """Vectors of the base run by their speakers' names; a new speaker begins with their mean."""

    def fit(name: str, theirs: Tensor) -> Tensor:
        if name != VECTORS or len(theirs) != len(base):
            return theirs
        vectors = dict(zip(base, theirs, strict=True))
        return torch.stack([vectors.get(each, theirs.mean(0)) for each in speakers])

    return fit


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

    model: with a postnet.  text: ids (b, s).
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


logger = logging.getLogger("transduce")

DIAGONAL, DIAGONAL_SHARE = 200.0, 0.15
"""Weight of even pace in the first search, and share of the training in which it falls to 0."""
MEAN_WEIGHT, DURATION_WEIGHT = 0.5, 0.5
"""Weights in the loss, beside the distance of the frames."""


class DurationTraining(SynthesisTraining):
    """Texts, recordings, model and loss of synthesis by durations."""

    def __init__(self, synthesiser: Synthesiser, data: dict[Split, SplitRecordings]) -> None:
        super().__init__(synthesiser, {split: fitting(synthesiser, data[split]) for split in data})
        self._diagonal = 0.0 if synthesiser.recipe.fine_tune else DIAGONAL

    def begin_step(self, share: float) -> None:
        """Set the weight of even pace."""
        if not self.predictor.recipe.fine_tune:
            self._diagonal = DIAGONAL * max(0.0, 1 - share / DIAGONAL_SHARE)

    def loss(self, batch: SynthesisBatch) -> LossSums:
        """Distance of the frames, squared distance of their means by token, and the durations as of
        Poisson's distribution, whose means add up to the length; `nll` is the first."""
        text, frames = batch.text.to(self.device), batch.frames.to(self.device)
        model: MonotonicSynthesis = self.model
        outputs = model.encode(text)
        durations = self._durations(outputs, frames)
        spoken = model.decode(outputs.hidden, durations)
        distance = (spoken.values.float() - frames.values).abs().mean(2)[frames.real].sum()
        k = model.frames_per_step
        means = torch.cat(list(repeated(outputs.means, durations))).float()
        groups = in_groups(frames, k)[frames.real[:, ::k]]
        from_mean = k * (means - groups).square().mean(1).sum()
        predicted, measured = outputs.log_durations.float()[text.real], durations[text.real].float()
        off = F.poisson_nll_loss(predicted, measured, full=True, reduction="none")
        total = distance + MEAN_WEIGHT * from_mean + DURATION_WEIGHT * off.sum()
        return LossSums(total, distance.detach(), batch.target_tokens)

    def distance(self, batch: SynthesisBatch) -> float:
        """Distance of the frames with the durations of the recordings, as a sum over frames."""
        text, frames = batch.text.to(self.device), batch.frames.to(self.device)
        outputs = self.model.encode(text)
        spoken = self.model.decode(outputs.hidden, self._durations(outputs, frames))
        return float((spoken.values.float() - frames.values).abs().mean(2)[frames.real].sum())

    def _durations(self, outputs: EncodedText, frames: Padded) -> Tensor:
        """(b, s) steps of each token, by the best monotonic alignment."""
        k = self.model.frames_per_step
        groups = in_groups(frames, k)
        n_steps = frames.lengths // k
        scores = scores_of(outputs, groups, n_steps, self._diagonal).cpu().numpy()
        lengths = outputs.hidden.lengths.tolist()
        aligned = monotonic.durations(scores, lengths, n_steps.tolist())
        return torch.from_numpy(aligned).to(frames.values.device)


def in_groups(frames: Padded, k: int) -> Tensor:
    """Frames (b, t·k, bins) of each step, side by side (b, t, k·bins)."""
    b, n, bins = frames.values.shape
    return frames.values.reshape(b, n // k, k * bins)


def repeated(values: Tensor, durations: Tensor) -> Iterator[Tensor]:
    """Rows (t, c) of values (b, s, c), each as often as it lasts."""
    for row, counts in zip(values, durations, strict=True):
        yield row.repeat_interleave(counts, 0)


def fitting(synthesiser: Synthesiser, data: SplitRecordings) -> SplitRecordings:
    """Recordings with a step for each token of their texts; a warning counts the others."""
    n_steps = -(-data.lengths // synthesiser.model.frames_per_step)
    fits = np.array([len(ids) for ids in encoded(synthesiser, data)]) <= n_steps
    if not fits.all():
        message = "%d of %d recordings have more tokens than steps, and are left out; fewer frames "
        message += "in model.frames_per_step give more steps"
        logger.warning(message, np.count_nonzero(~fits), len(data))
    return data.select(fits)


def prepare_synthesis(recipe: SynthesisRecipe, run: Path) -> SynthesisTraining:
    """Data, model and loss of a recipe, for training into the directory `run`."""
    if isinstance(recipe.model, VoiceConfig):
        raise SettingError('model.kind = "onnx" is of imported voices, which cannot be trained')
    cache = cache_of(run)
    processes = recipe.training.threads or available_cores()
    pronouncer = load_pronouncer(recipe.text.pronounce, recipe.training.device)
    data = recordings_to_train(recipe.data, recipe.audio, cache, processes)
    normalisation = normalisation_for(recipe.audio, recipe.fine_tune, run, data["train"])
    speakers = speakers_for(recipe.fine_tune, run, data["train"])
    texts = data["train"].texts
    symbols = texts if pronouncer is None else pronouncer.pronounce(texts)
    tokenizer = tokenizer_for(recipe.text, recipe.fine_tune, run, symbols)
    synthesiser = Synthesiser(recipe, tokenizer, normalisation, cache, pronouncer, speakers)
    warn_of_few(recipe.data, len(data["valid"]), "recordings")
    by_attention = isinstance(recipe.model, SynthesisConfig)
    task = (SynthesisTraining if by_attention else DurationTraining)(synthesiser, data)
    if recipe.fine_tune:
        task.adapt = fit_speakers(speakers, load_speakers(Path(recipe.fine_tune.run)))
    return task


def load_synthesis(recipe: SynthesisRecipe, run: Path, device: str) -> Synthesiser | Voice:
    """Trained model of a run directory.  Raises RunError if a file is missing or damaged.

    recipe: of the run.  device: name, such as "cpu".
    """
    if isinstance(recipe.model, VoiceConfig):
        return (KokoroVoice if (run / STYLES).exists() else Voice)(recipe, run)
    tokenizer, cache = tokenizer_of(run), cache_of(run)
    normalisation = load_normalisation(recipe.audio, run)
    pronouncer = load_pronouncer(recipe.text.pronounce, device)
    parts = (tokenizer, normalisation, cache, pronouncer, load_speakers(run))
    return with_weights(functools.partial(Synthesiser, recipe, *parts), run, device)

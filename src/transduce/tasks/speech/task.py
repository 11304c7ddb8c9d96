"""Speech recognition and speech translation: training by cross-entropy and CTC (Watanabe et al.
2017)."""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from transduce.audio.augment import add_noise, spec_augment, white_noise
from transduce.data.batches import ShiftedPairs, TokenBatches, shifted
from transduce.data.one_shape import OneShape, Packed, beside, filled, parted
from transduce.decoding.ctc import positions_needed
from transduce.errors import DataError, SettingError
from transduce.metrics.measure import measure, numeric_scores
from transduce.models.speech import SpeechModel
from transduce.nn.front_ends.speech import side_by_side
from transduce.nn.front_ends.speech_config import SpeechFrontEndConfig
from transduce.sequence import Padded, apart, at_places
from transduce.settings.sections import to_dict
from transduce.support.work import available_cores
from transduce.tasks.common import cache_of, with_weights
from transduce.tasks.recipe import Split
from transduce.tasks.recipe_settings import check_decoding
from transduce.tasks.sequence_training import (
    SequenceTraining,
    TargetBatch,
)
from transduce.tasks.speech.normalisation import (
    Normalisation,
    load_normalisation,
    normalisation_for,
)
from transduce.tasks.speech.recipe import (
    TRANSCRIPTS,
    SpeechRecipe,
    SpeechTranslationRecipe,
)
from transduce.tasks.speech.recogniser import Recogniser, every, new_recogniser, positions_of
from transduce.tasks.speech.recordings import SplitRecordings, recordings_to_train
from transduce.tasks.speech.search import Source
from transduce.tasks.text_batches import tokenizer_for
from transduce.tasks.text_inputs import tokenizer_of
from transduce.tasks.validation import warn_of_few
from transduce.text import BOS, EOS, PAD, Tokenizer
from transduce.training.loss import LossSums
from transduce.training.token_loss import token_loss

logger = logging.getLogger("transduce")

OF_THE_WORDS = ("target_front_end.", "head.")
"""Name prefixes of the weights that belong to the target language."""


@dataclass(frozen=True)
class SpeechBatch(TargetBatch):
    """Some recordings and their texts.  frames: (b, t, f). spoken: (b, t'') target ids of CTC."""

    frames: Padded
    spoken: Padded


class SpeechTraining(SequenceTraining[Recogniser]):
    """Recordings, texts, model and loss for the training loop."""

    items = "training recordings"
    has_targets = True
    _most_spoken = 1

    def __init__(self, recogniser: Recogniser, data: dict[Split, SplitRecordings]) -> None:
        super().__init__(recogniser)
        self.recipe = recipe = recogniser.recipe
        search: Any = recogniser.backend
        self._normalisation: Normalisation = search.normalisation
        self._noise = white_noise(recogniser.extractor)
        self.numbers = data["train"].rows
        self.batches = self._batches(data["train"], "train")
        self._valid = self._batches(data["valid"], "valid")
        self._decoded = data["valid"].sample(recipe.evaluation.validation_recordings)
        self._decoding = dataclasses.replace(recipe.decoding, beam_size=1, n_best=1, beam_groups=1)

    def loss(self, batch: SpeechBatch) -> LossSums:
        """Cross-entropy and CTC of the texts, of recordings with noise and SpecAugment's masks."""
        training = self.recipe.training
        batch = dataclasses.replace(batch, frames=self._augmented(batch.frames))
        return self._loss(batch, training.label_smoothing, training.ctc_weight)

    def _augmented(self, frames: Padded) -> Padded:
        augmentation = self.recipe.augmentation
        generator = torch.default_generator  # the global one, since checkpoints keep its state
        noisy = add_noise(frames, augmentation, self._noise, generator)
        return spec_augment(self._normalisation(noisy), augmentation, generator)

    @functools.cached_property
    def shape(self) -> OneShape:
        """Shape of packed batches: positions, texts, texts of CTC."""
        two = super().shape
        positions, longest = [*two.positions, two.positions[1]], [*two.longest, self._most_spoken]
        return OneShape(positions, longest, two.sequences)

    @property
    def waits(self) -> bool:
        """True with CTC, whose kernel reads lengths on the CPU."""
        return self.model.ctc is not None and self.recipe.training.ctc_weight > 0

    def pack(self, batch: SpeechBatch) -> Packed:
        """The recordings, their positions and their texts in rows of one shape."""
        front_end = self.recipe.model.front_end
        assert isinstance(front_end, SpeechFrontEndConfig), "another reads windows"
        row, places = side_by_side(self._augmented(batch.frames), front_end)
        sides = places, beside(*shifted(batch.target)), batch.spoken
        source, target, spoken = self.shape.pack(*sides)
        inputs, labels = parted(target)
        n = front_end.stride * (source.real.numel() + front_end.gap * self.shape.sequences)
        frames = Padded(filled(row.values[0], n)[None], filled(row.real[0], n)[None], "right")
        return Packed((source, inputs, frames, spoken), (labels,), batch.target_tokens)

    def packed_loss(self, packed: Packed) -> LossSums:
        """As `loss`, of a packed batch."""
        source, inputs, frames, spoken = packed.sides
        memory = self.model.encoder(at_places(self.model.front_end(frames), source))
        pairs = ShiftedPairs(memory, inputs, packed.parts[0], packed.target_tokens)
        training = self.recipe.training
        return self._sums(pairs, training.label_smoothing, spoken, training.ctc_weight)

    def validate(self) -> dict[str, float]:
        """Loss in nats per token; scores of greedy search on some recordings."""
        scores = {"loss": self.mean_loss(map(self.validation_loss, self._valid.in_order()))}
        if len(self._decoded) and math.isfinite(scores["loss"]):  # else nothing to decode with
            recognitions = self.predictor.recognise(self.decoded(), self._decoding)
            texts = [recognition.text for recognition in recognitions]
            references = [[text] for text in self._decoded.texts]
            evaluation = self.recipe.evaluation
            measured = measure(evaluation.metrics, texts, references, evaluation.target_language)
            scores |= numeric_scores(measured)
        return scores

    def validation_loss(self, batch: SpeechBatch) -> LossSums:
        """Cross-entropy of the texts alone, of recordings as they are."""
        frames = self._normalisation(batch.frames)
        return self._loss(dataclasses.replace(batch, frames=frames), 0.0)

    def decoded(self) -> Iterable[Source]:
        """Recordings to decode at a validation."""
        return every(self._decoded)

    def behind(self, score: str) -> Sequence[Any]:
        """Texts of the decoded recordings, and how they are decoded."""
        language = self.recipe.evaluation.target_language
        decoded = (self._decoded.texts, to_dict(self._decoding), language)
        return () if score == "loss" else decoded

    def _loss(self, batch: SpeechBatch, smoothing: float, ctc_weight: float = 0.0) -> LossSums:
        memory = self.predictor.model.encode(batch.frames.to(self.device))
        texts = shifted(batch.target.to(self.device))
        pairs = ShiftedPairs(memory, *texts, batch.target_tokens)
        return self._sums(pairs, smoothing, batch.spoken.to(self.device), ctc_weight)

    def _sums(
        self, pairs: ShiftedPairs, smoothing: float, spoken: Padded, ctc_weight: float
    ) -> LossSums:
        """Cross-entropy of texts given memories, and CTC of `spoken` texts."""
        model, memory, inputs = self.predictor.model, pairs.source, pairs.inputs
        hidden, count = model.advance(inputs, model.decoder.start(memory)), pairs.target_tokens
        sums = token_loss(model.head, hidden, pairs.labels, inputs.real, count, smoothing)
        if not ctc_weight or model.ctc is None:
            return sums
        spoken_loss = ctc_loss(model, memory, spoken)
        return sums._replace(total=(1 - ctc_weight) * sums.total + ctc_weight * spoken_loss)

    def _batches(self, data: SplitRecordings, split: Split) -> TokenBatches[SpeechBatch]:
        recogniser, tokenizer = self.predictor, self.predictor.transcript_tokenizer
        targets = recogniser.tokenizer.encode_batch(data.texts)
        spoken = targets if tokenizer is None else tokenizer.encode_batch(data.transcripts)
        positions = positions_of(self.recipe, data.lengths)
        needed = np.array([positions_needed(ids) for ids in spoken], np.int64)
        crowded = int(np.count_nonzero(needed > positions))
        if crowded and self.model.ctc is not None:
            message = (
                "%s: the texts of %d of %d recordings have more tokens than positions, and are "
                "learnt by the decoder alone; fewer layers in model.front_end give more positions"
            )
            logger.warning(message, split, crowded, len(data))

        def assemble(rows: NDArray[np.int64]) -> SpeechBatch:
            target = Padded.from_rows([[BOS, *targets[i], EOS] for i in rows], PAD)
            heard = target_of_ctc([spoken[i] for i in rows])
            return SpeechBatch(rows, target, data.padded(rows), heard)

        self._most_spoken = max(self._most_spoken, *map(len, spoken))
        lengths = np.array([len(ids) + 2 for ids in targets])
        tokens, seed = self.recipe.training.batch_tokens, self.recipe.seed
        return TokenBatches((positions, lengths), assemble, tokens, seed)


def target_of_ctc(rows: Sequence[Sequence[int]]) -> Padded:
    """Ids (b, t) of texts, some of which may be empty."""
    marked = Padded.from_rows([[*ids, PAD] for ids in rows], PAD)
    real = torch.arange(marked.real.shape[1]) < (marked.lengths - 1)[:, None]
    return Padded(marked.values, real, "right")


def ctc_loss(model: SpeechModel, memory: Padded, spoken: Padded) -> Tensor:
    """Negative log-likelihood of ids (b, t') under the CTC head, in nats, as a sum over all rows.

    Rows with more tokens than positions count 0.
    """
    log_probs, spoken = apart(model.ctc_log_probs(memory)), apart(spoken)
    return F.ctc_loss(
        log_probs.values.transpose(0, 1),
        spoken.values,
        log_probs.lengths,
        spoken.lengths,
        blank=PAD,
        reduction="sum",
        zero_infinity=True,
    )


def prepare_speech(recipe: SpeechRecipe, run: Path) -> SpeechTraining:
    """Data, model and loss of a recipe, for training into the directory `run`."""
    if recipe.audio.features != "fbank":
        raise SettingError(
            f'audio.features = "{recipe.audio.features}" is for synthesis; recognition learns from '
            '"fbank", or goes on from an imported "whisper"'
        )
    check_decoding(recipe.decoding, "speech")
    cache = cache_of(run)
    processes = recipe.training.threads or available_cores()
    data = recordings_to_train(recipe.data, recipe.audio, cache, processes)
    normalisation = normalisation_for(recipe.audio, recipe.fine_tune, run, data["train"])
    tokens_of = None if _recognises(recipe) else recipe.fine_tune
    tokenizer = tokenizer_for(recipe.text, tokens_of, run, data["train"].texts)
    transcripts = _transcript_tokenizer(recipe, run, data["train"])
    recogniser = new_recogniser(recipe, tokenizer, normalisation, cache, transcripts)
    warn_of_few(recipe.data, len(data["valid"]), "recordings")
    task = SpeechTraining(recogniser, data)
    task.reinit = () if tokens_of is recipe.fine_tune else OF_THE_WORDS
    return task


def _recognises(recipe: SpeechRecipe) -> bool:
    """True if the recipe translates, and the run to start from only recognises."""
    base = recipe.fine_tune
    if base is None or not isinstance(recipe, SpeechTranslationRecipe):
        return False
    return not any(Path(base.run).glob(f"{TRANSCRIPTS}.*"))


def _transcript_tokenizer(
    recipe: SpeechRecipe, run: Path, train: SplitRecordings
) -> Tokenizer | None:
    if not isinstance(recipe, SpeechTranslationRecipe):
        return None
    transcripts = train.transcripts
    if not all(transcripts):
        raise DataError(
            f"{train.names[transcripts.index('')]} has no transcript; name its column as "
            "data.train.transcript"
        )
    theirs = "tokenizer" if _recognises(recipe) else TRANSCRIPTS
    return tokenizer_for(recipe.text, recipe.fine_tune, run, transcripts, TRANSCRIPTS, theirs)


def load_speech(recipe: SpeechRecipe, run: Path, device: str) -> Recogniser:
    """Trained model of a run directory. Raises RunError if a file is missing or damaged."""
    build = functools.partial(new_recogniser, recipe, *files_of(recipe, run))
    return with_weights(build, run, device)


def files_of(
    recipe: SpeechRecipe, run: Path
) -> tuple[Tokenizer, Normalisation, Path, Tokenizer | None]:
    """Tokenizer, normalisation, cache and vocabulary of CTC of a run directory.  Raises RunError
    if a file is missing or damaged."""
    transcripts: Tokenizer | None = None
    if isinstance(recipe, SpeechTranslationRecipe):
        transcripts = tokenizer_of(run, TRANSCRIPTS)
    return tokenizer_of(run), load_normalisation(recipe.audio, run), cache_of(run), transcripts

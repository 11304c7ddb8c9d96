"""Fine-tuning of an imported Whisper: the encoder is frozen, its memories are computed once and
kept beside the features, and the decoder learns from them."""

from __future__ import annotations

import functools
import hashlib
import json
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.data.batches import TokenBatches, shifted
from transduce.data.one_shape import OneShape, Packed, beside, parted
from transduce.errors import SettingError
from transduce.nn.stack_configs import max_sequence_length
from transduce.sequence import Padded
from transduce.support.work import available_cores
from transduce.tasks.common import cache_of, find_device
from transduce.tasks.recipe import Split
from transduce.tasks.recipe_settings import check_decoding
from transduce.tasks.speech.normalisation import load_normalisation
from transduce.tasks.speech.recipe import SpeechRecipe
from transduce.tasks.speech.recogniser import Recogniser, new_recogniser
from transduce.tasks.speech.recordings import SplitRecordings, recordings_to_train
from transduce.tasks.speech.search import Encoded, Source
from transduce.tasks.speech.task import (
    SpeechBatch,
    SpeechTraining,
    load_speech,
    prepare_speech,
)
from transduce.tasks.text_inputs import tokenizer_for
from transduce.tasks.validation import warn_of_few
from transduce.text import EOS, PAD
from transduce.training.display import ProgressCounter
from transduce.training.fine_tuning import fingerprint
from transduce.training.loss import IGNORED, LossSums
from transduce.training.token_loss import token_loss
from transduce.training.weights import weights_of

FROZEN = ("front_end.", "encoder.")
"""Name prefixes of the weights that give the memories."""
MEMORY, LANGUAGES = "memory.npy", "languages.npy"
TOGETHER = 4
"""Windows encoded together."""


@dataclass(frozen=True)
class Memories:
    """Memories of the recordings of a split, on disk.

    memory: (n, t, m) float16.  languages: (n,) ids of spoken languages; 0 where none is detected.
    """

    memory: NDArray[np.float16]
    languages: NDArray[np.int64]

    def of(self, rows: Iterable[int]) -> Tensor:
        """(b, t, m) float32 of some recordings."""
        return torch.stack([torch.from_numpy(self.memory[i].astype(np.float32)) for i in rows])


@dataclass(frozen=True)
class WhisperBatch(SpeechBatch):
    """Memories of some recordings, as `frames`, their prompts and texts; `spoken` marks the texts
    among the ids to predict."""

    @property
    def target_tokens(self) -> int:
        """Tokens to predict: all after the prompt."""
        return int(self.spoken.real.sum())


class WhisperTraining(SpeechTraining):
    """Memories and texts, decoder and loss for the training loop."""

    def __init__(
        self,
        recogniser: Recogniser,
        data: dict[Split, SplitRecordings],
        memories: dict[Split, Memories],
    ) -> None:
        self._memories = memories
        self._valid_rows = data["valid"].rows.tolist()
        super().__init__(recogniser, data)
        for name, parameter in recogniser.model.named_parameters():
            if name.startswith(FROZEN):
                parameter.requires_grad_(False)

    def loss(self, batch: SpeechBatch) -> LossSums:
        """Cross-entropy of the texts after their prompts."""
        return self._loss(batch, self.recipe.training.label_smoothing)

    @functools.cached_property
    def shape(self) -> OneShape:
        """Shape of packed batches: memories, prompts with texts."""
        shape: OneShape = self.batches.one_shape(has_targets=True)
        return shape

    def pack(self, batch: SpeechBatch) -> Packed:
        """The memories, and the prompts with their texts, in two rows of one shape."""
        inputs, labels = shifted(batch.target)
        labels = labels.masked_fill(~batch.spoken.real, IGNORED)
        memory, target = self.shape.pack(batch.frames, beside(inputs, labels))
        inputs, labels = parted(target)
        return Packed((memory, inputs), (labels,), batch.target_tokens)

    def packed_loss(self, packed: Packed) -> LossSums:
        """As `loss`, of a packed batch."""
        (memory, inputs), (labels,) = packed.sides, packed.parts
        model, smoothing = self.predictor.model, self.recipe.training.label_smoothing
        hidden = model.advance(inputs, model.decoder.start(memory))
        counted = inputs.real & (labels != IGNORED)
        return token_loss(model.head, hidden, labels, counted, packed.target_tokens, smoothing)

    def validation_loss(self, batch: SpeechBatch) -> LossSums:
        """Cross-entropy of the texts."""
        return self._loss(batch, 0.0)

    def decoded(self) -> list[Source]:
        """Memories of the recordings to decode at a validation."""
        chosen = [self._valid_rows.index(row) for row in self._decoded.rows.tolist()]
        memory = self._memories["valid"].of(chosen).to(self.device)
        return [Encoded(row, len(row)) for row in memory]

    def _loss(self, batch: SpeechBatch, smoothing: float, ctc_weight: float = 0.0) -> LossSums:
        model = self.predictor.model
        inputs, labels = shifted(batch.target.to(self.device))
        memory = Padded.unpadded(batch.frames.values.to(self.device))
        hidden = model.advance(inputs, model.decoder.start(memory))
        counted = batch.spoken.real.to(self.device)
        count = batch.target_tokens
        return token_loss(model.head, hidden, labels, counted, count, smoothing)

    def _batches(self, data: SplitRecordings, split: Split) -> TokenBatches[SpeechBatch]:
        recogniser, memories = self.predictor, self._memories[split]
        prompt, tokenizer = recogniser.prompt, recogniser.tokenizer
        room = max_sequence_length(self.recipe.model.decoder)
        targets = [
            [*prompt.untimed, *tokenizer.encode(f" {text}"), EOS][: room and room + 1]
            for text in data.texts
        ]
        if prompt.languages:
            for ids, language in zip(targets, memories.languages.tolist(), strict=True):
                ids[prompt.language_at - prompt.start] = language

        def assemble(rows: NDArray[np.int64]) -> SpeechBatch:
            target = Padded.from_rows([targets[i] for i in rows], PAD)
            texts = target.real[:, 1:].clone()
            texts[:, : len(prompt.untimed) - 1] = False
            spoken = Padded(target.values[:, 1:], texts)
            return WhisperBatch(rows, target, Padded.unpadded(memories.of(rows)), spoken)

        lengths = np.array([len(ids) for ids in targets])
        positions = np.full(len(lengths), memories.memory.shape[1])
        tokens, seed = self.recipe.training.batch_tokens, self.recipe.seed
        return TokenBatches((positions, lengths), assemble, tokens, seed)


def memories_of(base: Recogniser, data: SplitRecordings, cache: Path) -> Memories:
    """Memories of recordings by the encoder of the base run, computed into `cache` if missing."""
    weights = {k: v for k, v in weights_of(base.model).items() if k.startswith(FROZEN)}
    facts = [fingerprint(weights), sorted(base.prompt.languages), data.texts, data.names]
    mark = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]
    directory = cache / f"memories-{mark}"
    if not directory.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix="memories-", dir=cache))
        _encode(base, data, aside)
        aside.rename(directory)
    return Memories(np.load(directory / MEMORY, mmap_mode="r"), np.load(directory / LANGUAGES))


def _encode(base: Recogniser, data: SplitRecordings, directory: Path) -> None:
    """Write the memories of recordings, a file for all of them."""
    shape = (
        len(data),
        base.recipe.model.front_end.positions(len(data[0][0])),
        base.recipe.model.d_model,
    )
    memory = np.lib.format.open_memmap(directory / MEMORY, "w+", np.float16, shape)
    languages = np.zeros(len(data), np.int64)
    with ProgressCounter("encoding recordings", len(data)) as count:
        for begin in range(0, len(data), TOGETHER):
            rows = range(begin, min(begin + TOGETHER, len(data)))
            encoded = base.backend.encode([data[i][0] for i in rows], [0] * len(rows))
            for i, window in zip(rows, encoded, strict=True):
                memory[i] = window.memory.cpu().numpy()
            languages[begin : rows.stop] = base.backend.languages_of(encoded)
            count.to(rows.stop)
    memory.flush()
    np.save(directory / LANGUAGES, languages)


def prepare_recognition(recipe: SpeechRecipe, run: Path) -> SpeechTraining:
    """Data, model and loss of a recipe; with Whisper's features, of its decoder.

    Raises SettingError for a recipe that cannot train a Whisper.
    """
    if recipe.audio.features != "whisper":
        return prepare_speech(recipe, run)
    if recipe.fine_tune is None or recipe.prompt is None:
        raise SettingError(
            'audio.features = "whisper" is for imported models; set fine_tune.run to such a run, '
            'or audio.features = "fbank"'
        )
    if recipe.data.speeds != (1.0,) or recipe.fine_tune.lora is not None:
        raise SettingError(
            "data.speeds and fine_tune.lora are not for an imported Whisper; remove them"
        )
    check_decoding(recipe.decoding, "speech")
    cache = cache_of(run)
    processes = recipe.training.threads or available_cores()
    data = recordings_to_train(recipe.data, recipe.audio, cache, processes)
    tokenizer = tokenizer_for(recipe.text, recipe.fine_tune, run, data["train"].texts)
    normalisation = load_normalisation(recipe.audio, run)
    recogniser = new_recogniser(recipe, tokenizer, normalisation, cache)
    device = str(find_device(recipe.training.device))
    base = load_speech(recipe, Path(recipe.fine_tune.run), device)
    memories = {split: memories_of(base, data[split], cache) for split in data}
    warn_of_few(recipe.data, len(data["valid"]), "recordings")
    return WhisperTraining(recogniser, data, memories)

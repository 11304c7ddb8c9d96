"""Fine-tuning of an imported Whisper: the encoder is frozen, its memories of windows of recordings
are computed once and kept beside the features, and the decoder learns from them."""

from __future__ import annotations

import functools
import hashlib
import json
import tempfile
from collections.abc import Iterable, Sequence
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
from transduce.tasks.speech.joined import JoinedWindow, joined_windows, single_windows
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
from transduce.tasks.speech.timestamps import STEP
from transduce.tasks.text_batches import tokenizer_for
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
    """Memories of windows of a split, on disk.

    memory: (n, t, m) float16.  languages: (n,) ids of spoken languages; 0 where none is detected.
    """

    windows: Sequence[JoinedWindow]

    memory: NDArray[np.float16]
    languages: NDArray[np.int64]

    def of(self, rows: Iterable[int]) -> Tensor:
        """(b, t, m) float32 of some windows."""
        return torch.stack([torch.from_numpy(self.memory[i].astype(np.float32)) for i in rows])


@dataclass(frozen=True)
class WhisperBatch(SpeechBatch):
    """Memories of some windows, as `frames`, their prompts and texts; `spoken` marks the texts
    among the ids to predict."""

    @property
    def target_tokens(self) -> int:
        """Tokens to predict: all after the prompt."""
        return int(self.spoken.real.sum())


class WhisperTraining(SpeechTraining):
    """Memories and texts, decoder and loss for the training loop."""

    items = "training windows"

    def __init__(
        self,
        recogniser: Recogniser,
        data: dict[Split, SplitRecordings],
        memories: dict[Split, Memories],
    ) -> None:
        self._memories = memories
        self._valid_rows = data["valid"].rows.tolist()
        self._timed = recogniser.prompted(recogniser.recipe.prompt, timed=True).prompt
        super().__init__(recogniser, data)
        self.numbers = None
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
        memories, texts = self._memories[split], data.texts
        room = max_sequence_length(self.recipe.model.decoder)
        targets, begins = [], list[int]()
        for number, window in enumerate(memories.windows):
            prompt, ids = self._target(window, texts, timed=number % 2 == 1)
            if self.predictor.prompt.languages:
                prompt[self.predictor.prompt.language_at - self.predictor.prompt.start] = int(
                    memories.languages[number]
                )
            targets.append([*prompt, *ids, EOS][: room and room + 1])
            begins.append(len(prompt))

        def assemble(rows: NDArray[np.int64]) -> SpeechBatch:
            target = Padded.from_rows([targets[i] for i in rows], PAD)
            counted = target.real[:, 1:].clone()
            for row, i in zip(counted, rows, strict=True):
                row[: begins[i] - 1] = False
            spoken = Padded(target.values[:, 1:], counted)
            return WhisperBatch(rows, target, Padded.unpadded(memories.of(rows)), spoken)

        lengths = np.array([len(ids) for ids in targets])
        positions = np.full(len(lengths), memories.memory.shape[1])
        tokens, seed = self.recipe.training.batch_tokens, self.recipe.seed
        return TokenBatches((positions, lengths), assemble, tokens, seed)

    def _target(
        self, window: JoinedWindow, texts: Sequence[str], timed: bool
    ) -> tuple[list[int], list[int]]:
        """Prompt and output of a window; with the times of its texts if `timed`, it has several and
        the model writes times."""
        tokenizer = self.predictor.tokenizer
        prompt, times = self._timed, self._timed.times
        if not (timed and times and len(window.rows) > 1):
            text = " ".join(texts[i] for i in window.rows)
            return self.predictor.prompt.untimed, tokenizer.encode(f" {text}")
        ids = list[int]()
        for i, *span in zip(*window, strict=True):
            start, end = (times[round(time / STEP)] for time in span)
            ids += [start, *tokenizer.encode(f" {texts[i]}"), end]
        return list(prompt.ids[prompt.start :]), ids


def memories_of(
    base: Recogniser, data: SplitRecordings, windows: Sequence[JoinedWindow], cache: Path
) -> Memories:
    """Memories of windows by the encoder of the base run, computed into `cache` if missing."""
    weights = {k: v for k, v in weights_of(base.model).items() if k.startswith(FROZEN)}
    layout = [(window.rows, window.starts) for window in windows]
    facts = [fingerprint(weights), sorted(base.prompt.languages), layout, data.names]
    mark = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]
    directory = cache / f"memories-{mark}"
    if not directory.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix="memories-", dir=cache))
        _encode(base, data, windows, aside)
        aside.rename(directory)
    memory = np.load(directory / MEMORY, mmap_mode="r")
    return Memories(windows, memory, np.load(directory / LANGUAGES))


def _encode(
    base: Recogniser, data: SplitRecordings, windows: Sequence[JoinedWindow], directory: Path
) -> None:
    """Write the memories of windows, a file for all of them."""
    shape = (
        len(windows),
        base.recipe.model.front_end.positions(len(data[0][0])),
        base.recipe.model.d_model,
    )
    memory = np.lib.format.open_memmap(directory / MEMORY, "w+", np.float16, shape)
    languages = np.zeros(len(windows), np.int64)
    with ProgressCounter("encoding windows", len(windows)) as count:
        for begin in range(0, len(windows), TOGETHER):
            some = windows[begin : begin + TOGETHER]
            encoded = base.backend.encode([w.frames(data) for w in some], [0] * len(some))
            for i, window in enumerate(encoded, begin):
                memory[i] = torch.as_tensor(window.memory).cpu().numpy()
            detected = base.backend.languages_of(base.backend.memory_of(encoded), len(some))
            languages[begin : begin + len(some)] = [
                base.prompt.languages.get(code, 0) for code in detected
            ]
            count.to(begin + len(some))
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
    windows: dict[Split, list[JoinedWindow]] = {
        "train": joined_windows(data["train"], recipe.seed),
        "valid": single_windows(data["valid"]),
    }
    memories = {split: memories_of(base, data[split], windows[split], cache) for split in data}
    warn_of_few(recipe.data, len(data["valid"]), "recordings")
    return WhisperTraining(recogniser, data, memories)

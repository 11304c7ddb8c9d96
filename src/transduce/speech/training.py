"""Training of speech recognition and speech translation by cross-entropy and CTC, and
fine-tuning of an imported Whisper."""

import dataclasses
import functools
import hashlib
import json
import logging
import math
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from transduce.data.batches import (
    OneShape,
    Packed,
    ShiftedPairs,
    TokenBatches,
    beside,
    filled,
    parted,
    shifted,
)
from transduce.errors import DataError, SettingError
from transduce.metrics.measure import measure, numeric_scores
from transduce.nn.stack_configs import max_sequence_length
from transduce.sequence import Padded, apart, at_places
from transduce.settings.sections import to_dict
from transduce.speech.ctc import positions_needed
from transduce.speech.model import SpeechModel, side_by_side
from transduce.speech.model_config import SpeechFrontEndConfig
from transduce.speech.normalisation import (
    Normalisation,
    add_noise,
    load_normalisation,
    normalisation_for,
    spec_augment,
    white_noise,
)
from transduce.speech.prompt import STEP, Encoded, Source
from transduce.speech.recipe import (
    TRANSCRIPTS,
    JoinedWindow,
    SpeechRecipe,
    SpeechTranslationRecipe,
    SplitRecordings,
    joined_windows,
    recordings_to_train,
    single_windows,
)
from transduce.speech.recogniser import Recogniser, every, new_recogniser, positions_of
from transduce.speech.step_search import SpeechSearch
from transduce.support.work import available_cores
from transduce.tasks.recipe import Split, check_decoding, warn_of_few
from transduce.tasks.text_inputs import tokenizer_of
from transduce.tasks.training import (
    SequenceTraining,
    TargetBatch,
    find_device,
    tokenizer_for,
    with_weights,
)
from transduce.text import BOS, EOS, PAD, Tokenizer
from transduce.training.fine_tuning import fingerprint
from transduce.training.log import ProgressCounter
from transduce.training.loss import IGNORED, LossSums, token_loss
from transduce.training.weight_files import cache_of
from transduce.training.weights import weights_of

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
        assert isinstance(recogniser.backend, SpeechSearch)
        self._normalisation = recogniser.backend.normalisation
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

    model: with a CTC head.  memory: output of the encoder.  spoken: ids of the words.
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
    """Trained model of a run directory. Raises RunError if a file is missing or damaged.

    recipe: of the run.  device: name, such as "cpu".
    """
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
            detected = base.backend.languages_of(base.backend.memory_of(encoded), encoded)
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
    if recipe.data.speeds != (1.0,):
        raise SettingError("data.speeds is not for an imported Whisper; remove it")
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

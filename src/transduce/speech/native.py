"""Recognition of a run in the native engine, of an imported Whisper without PyTorch."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from ctypes import c_int32
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from transduce.decoding.backend import Cancelled, Decoded, NativeSearch, Piece, hypotheses_of
from transduce.decoding.options import DecodingOptions
from transduce.engine.inference import Weights, check_biases, default_threads
from transduce.engine.library import Spoken
from transduce.engine.pair_shape import check_settings
from transduce.errors import needing_torch
from transduce.nn.precision import Precision
from transduce.nn.stack_configs import max_sequence_length
from transduce.speech.engine import EngineSpeech, Lengths, Rows
from transduce.speech.features import Frames
from transduce.speech.guards import LOOPED, LOOPS, PERIOD
from transduce.speech.prompt import LATEST_START, STEP, Encoded, RecordingSearch, Source, prompt_of
from transduce.speech.recipe import SpeechRecipe
from transduce.speech.recogniser import Recogniser, new_recogniser
from transduce.tasks.vocabularies import missing_tokenizers, saved_tokenizer
from transduce.training.weight_files import cache_of, read_plain_weights

if TYPE_CHECKING:
    from transduce.speech.model import SpeechModel
    from transduce.speech.step_search import SpeechSearch


logger = logging.getLogger("transduce")

Memory = tuple[Rows, Lengths]
"""Memories (positions, m) of recordings, one after another, and their lengths."""


@dataclass(eq=False, kw_only=True)
class NativeSpeechSearch(NativeSearch, RecordingSearch):
    """The engine's search for the texts of windows, by the rules of an imported Whisper."""

    model: EngineSpeech
    steps: Callable[[str], SpeechSearch]

    def __post_init__(self) -> None:
        self.forbidden, first = self.prompt.forbidden, self.prompt.forbidden_first
        super().__post_init__()
        self._forbidden_first = (c_int32 * len(first))(*first)

    def step_search(self, feature: str) -> SpeechSearch:
        """The search of Python over the engine's steps."""
        return replace(self.steps(feature), prompt=self.prompt)

    def encode(self, recordings: Sequence[Frames], positions: Sequence[int]) -> list[Encoded]:
        """The memory of windows, as arrays."""
        lengths = np.array([len(frames) for frames in recordings], np.int32)
        memory = self.model.memory_of(np.concatenate(recordings), lengths)
        ends = self.model.positions(lengths.tolist()).cumsum()
        rows = np.split(memory, ends[:-1])
        return [Encoded(row, n) for row, n in zip(rows, positions, strict=True)]

    def memory_of(self, recordings: Sequence[Source]) -> Memory:
        """Memories as the engine reads them."""
        frames = [source for source in recordings if not isinstance(source, Encoded)]
        encoded = self.encode(frames, [0] * len(frames)) if frames else recordings
        rows = [np.asarray(source.memory) for source in encoded if isinstance(source, Encoded)]
        return np.concatenate(rows), np.array([len(memory) for memory in rows], np.int32)

    def logits_after(self, ids: Sequence[int], memory: Memory) -> Rows:
        """Logits (n, t, v) after each of some ids, the same for all recordings of a memory."""
        return self.model.logits_after(ids, *memory)

    def search(
        self, pieces: Sequence[Piece], options: DecodingOptions, cancelled: Cancelled | None = None
    ) -> list[Decoded]:
        """Decode some pieces together.

        options: of decoding.  cancelled: called between steps with the index of a piece.
        """
        if (name := self.unsupported(options, pieces)) is not None:
            return self._other(name, options).search(pieces, options, cancelled)
        memory = self.memory_of([piece.source for piece in pieces])
        languages = self.languages_of(memory, [piece.source for piece in pieces])
        prompts = [self.prompt.speaking(language).ids for language in languages]
        sources = [range(n) for n in memory[1].tolist()]
        if self.prompt.no_times is not None:  # what is forbidden costs nothing, nor does the limit
            options = replace(options, free_end=True)
        spoken = self._spoken(memory[0])
        results = self.results(pieces, sources, prompts, options, cancelled, spoken=spoken)
        nothing: list[float | None] = [None] * len(pieces)
        return [
            Decoded(hypotheses_of(best), None, language, probability)
            for best, language, probability in zip(
                results.hypotheses, languages, results.no_speech or nothing, strict=True
            )
        ]

    def _spoken(self, memory: Rows) -> Spoken:
        """The prompt's rules of outputs, as `Prompt.filters`, and the criterion that ends them."""
        prompt = self.prompt
        is_renormalised = prompt.no_times is not None
        return Spoken(
            memory=memory.ctypes.data,
            n_forbidden_first=len(prompt.forbidden_first),
            forbidden_first=self._forbidden_first,
            first_time=prompt.times.start,
            end_time=prompt.times.stop,
            latest_start=round(LATEST_START / STEP),
            is_renormalised=is_renormalised,
            no_speech=prompt.no_speech or 0,
            no_speech_at=prompt.start,
            period=PERIOD if is_renormalised else 0,
            loops=LOOPS,
            looped=LOOPED,
        )


def load_native(
    recipe: SpeechRecipe, run: Path, precision: Precision, threads: int | None
) -> Recogniser:
    """The recogniser of a run in the engine, on the CPU; its model in PyTorch is loaded when times
    of words first need it.

    recipe: of the run.  precision: of matrix products.  threads: of the engine and of PyTorch; by
    default PyTorch's choice.

    Raises RunError for a run that is damaged or needs PyTorch, SettingError if the engine is
    unavailable.
    """
    check_settings(recipe.model, run)

    @functools.cache
    def network() -> SpeechModel:
        with needing_torch("this call"):
            from transduce.speech.training import load_speech

        logger.info("loading the model in PyTorch for this call")
        return load_speech(recipe, run, "cpu").model

    @functools.cache
    def in_steps() -> Recogniser:
        import torch

        from transduce.speech.model import NativeSpeech
        from transduce.speech.training import files_of

        if threads is not None:
            torch.set_num_threads(threads)
        files = files_of(recipe, run)
        sizes, weights = (recipe.audio.bins, files[0].size), _weights_of(recipe, run)
        engine = NativeSpeech(recipe.model, sizes, weights, precision, default_threads)
        return new_recogniser(recipe, *files, (engine, network))

    def steps(feature: str) -> SpeechSearch:
        with needing_torch(feature):
            backend: Any = in_steps().backend
        return cast("SpeechSearch", backend)

    if recipe.prompt is None or recipe.model.ctc or recipe.audio.normalise != "none":
        return in_steps()  # not of the rules that the engine follows
    if (tokenizer := saved_tokenizer(run)) is None:
        raise missing_tokenizers(run)
    prompt = prompt_of(recipe.prompt, tokenizer, max_sequence_length(recipe.model.decoder))
    sizes, weights = (recipe.audio.bins, tokenizer.size), _weights_of(recipe, run)

    def n_threads() -> int:
        return threads or default_threads()

    engine = EngineSpeech(recipe.model, sizes, weights, precision, n_threads)
    return Recogniser(
        options=recipe.decoding,
        backend=NativeSpeechSearch(model=engine, steps=steps, threads=n_threads, prompt=prompt),
        recipe=recipe,
        network=network,
        tokenizer=tokenizer,
        cache=cache_of(run),
        transcript_tokenizer=None,
    )


def _weights_of(recipe: SpeechRecipe, run: Path) -> Weights:
    """Weights of a run, the head's those of the embedding."""
    weights = read_plain_weights(run / "weights.safetensors")
    if "head.weight" not in weights and "target_front_end.embedding.weight" in weights:
        weights["head.weight"] = weights["target_front_end.embedding.weight"]
    check_biases(weights, recipe.model.output_bias)
    return weights

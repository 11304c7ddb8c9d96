"""Explanations of speech: attention over the spectrogram, and CTC at each position."""

from __future__ import annotations

import logging
from dataclasses import replace

import torch
from torch import Tensor

from transduce.audio.features import Frames
from transduce.explain.explanation import Explanation
from transduce.explain.parts import Picture
from transduce.explain.picture import png_of
from transduce.explain.recorded_output import OutputPass
from transduce.explain.recorded_pass import LENS, MAX_TOKENS, guesses_of
from transduce.explain.search_watch import SearchWatch
from transduce.tasks.speech.recogniser import Recogniser
from transduce.tasks.speech.recordings import padded_frames
from transduce.tasks.speech.step_search import SpeechSearch
from transduce.text import token_names

logger = logging.getLogger("transduce")


def explain_speech(recogniser: Recogniser, parts: tuple[str, ...]) -> Explanation:
    """Explain a transcription, from the spectrogram to the text."""
    whole = recogniser.read_file(parts[0])
    recogniser = recogniser.listening_to([whole])
    (answer,) = recogniser.recognise([whole], recogniser.options)
    bare = Explanation(recogniser.recipe.task, "", {"audio": parts[0]}, answer.text)
    frames = _fitting(recogniser, whole)
    front_end = recogniser.recipe.model.front_end
    positions = front_end.positions(len(frames))
    if not positions:
        return bare
    search = recogniser.backend.step_search("an explanation")
    assert isinstance(search, SpeechSearch)
    batch = search.normalisation(padded_frames([frames])).to(recogniser.device)
    options, names = recogniser.options, token_names(recogniser.tokenizer)
    request, scored, _ = search.begin([*recogniser.pieces(frames, options, 0, 0)], options)
    watch = SearchWatch(request, names)
    tree = watch.tree()
    times = [f"{i * recogniser.seconds_per_position:.2f}" for i in range(positions)]
    written = [*recogniser.prompt.ids[1:], *watch.best]
    pair = OutputPass(recogniser.model, batch, ("audio", times), written, names)
    picture = Picture(spectrogram(batch.values[0]), (1, positions), 0, "audio")
    heard: tuple[tuple[tuple[str, float], ...], ...] = ()
    if scored is not None:
        of_ctc = token_names(recogniser.ctc_tokenizer)
        heard = tuple(guesses_of(row.exp(), of_ctc, LENS) for row in scored.values[0].float().cpu())
    return pair.explain(replace(bare, search=tree, picture=picture, ctc=heard))


def spectrogram(frames: Tensor) -> bytes:
    """Frames (t, f) as a PNG: time to the right, low bins at the bottom, strong bins bright."""
    low, high = torch.aminmax(frames.float().cpu())
    shades = (frames.float().cpu() - low) / (high - low).clamp(min=1e-6) * 255
    return png_of(shades.T.flip(0)[None].round().to(torch.uint8))


def _fitting(recogniser: Recogniser, frames: Frames) -> Frames:
    """The frames, at most of the first `MAX_TOKENS` positions, then with a warning."""
    front_end = recogniser.recipe.model.front_end
    most = MAX_TOKENS * front_end.stride
    if len(frames) > most:
        seconds = MAX_TOKENS * recogniser.seconds_per_position
        logger.warning("the recording is long; its first %.1f s are explained", seconds)
    return frames[:most]

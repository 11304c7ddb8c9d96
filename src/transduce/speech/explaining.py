"""Explanations of speech: attention over the spectrogram, CTC at each frame, steps of synthesis
over the text."""

import logging
from dataclasses import replace

import torch
from torch import Tensor

from transduce.errors import SettingError
from transduce.explain.explanation import Explanation
from transduce.explain.parts import Attention, Picture, Step, head_pattern
from transduce.explain.recorded_pass import (
    LENS,
    MAX_TOKENS,
    OutputPass,
    Pass,
    SearchWatch,
    guesses_of,
)
from transduce.explain.report import png_of
from transduce.sequence import Padded
from transduce.speech.features import Frames
from transduce.speech.recipe import padded_frames
from transduce.speech.recogniser import Recogniser
from transduce.speech.spoken import blocks_of
from transduce.speech.step_search import SpeechSearch
from transduce.speech.synthesis_models import MonotonicSynthesis, SpokenFrames, frames_read
from transduce.speech.synthesiser import Synthesiser
from transduce.text import token_names

logger = logging.getLogger("transduce")


def explain_speech(recogniser: Recogniser, parts: tuple[str, ...], first: int = 0) -> Explanation:
    """Explain a transcription, from the spectrogram to the text."""
    whole = recogniser.read_file(parts[0])
    recogniser = recogniser.listening_to(whole)
    (answer,) = recogniser.recognise([whole], recogniser.options, first)
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
    request, scored, _ = search.begin([*recogniser.pieces(frames, options, 0, first)], options)
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


GO_ON, END = "go on", "end"
"""Names of the two outcomes of a step."""


def explain_synthesis(
    synthesiser: Synthesiser, parts: tuple[str, ...], first: int = 0
) -> Explanation:
    """A text and the steps of its synthesis, explained by a pass over the steps' inputs.  Raises
    SettingError for an imported voice."""
    if not isinstance(synthesiser, Synthesiser):
        raise SettingError("an imported voice has no explanation")
    bare = Explanation(
        synthesiser.recipe.task, "", dict(zip(synthesiser.inputs, parts, strict=True)), ""
    )
    if not parts[0].strip():
        return bare
    text, *more = blocks_of(parts[0])
    if more:
        logger.warning("the text is spoken in %d blocks; the first is explained", 1 + len(more))
    (ids,) = synthesiser.encode([text])
    voices = [synthesiser.number_of(parts[1] if len(parts) > 1 else "")]
    spoken = synthesiser.decode([ids], voices)
    (speech,) = synthesiser.speeches(spoken)
    model = synthesiser.model
    if isinstance(model, MonotonicSynthesis):
        return _durations(synthesiser, replace(bare, answer=speech.text), ids, spoken[0].attention)
    read, dropout_mask = _read(synthesiser, ids, spoken[0])
    steps = read.values.shape[1]
    seconds = synthesiser.facts()["seconds_per_step"]
    tokens = {
        "source": token_names(synthesiser.tokenizer)(ids),
        "read": ["start", *(f"{i * seconds:.2f}" for i in range(1, steps))],
        "written": [f"{i * seconds:.2f}" for i in range(1, steps + 1)],
    }
    kinds = {
        "encoder": ("source", "source"),
        "decoder": ("read", "read"),
        "cross": ("written", "source"),
    }
    source = synthesiser.padded([ids], voices).to(synthesiser.device)

    def run() -> Tensor:
        return model.step(read, model.start(source), dropout_mask).stop

    recorded = Pass(model, run, kinds, tokens)
    ends = recorded.output[0].float().sigmoid().tolist()
    return replace(
        recorded.laid_out(bare, synthesiser.width),
        answer=speech.text,
        steps=tuple(
            _step(a, b, p, number == steps)
            for number, (a, b, p) in enumerate(
                zip(tokens["read"], tokens["written"], ends, strict=True), 1
            )
        ),
    )


def _durations(
    synthesiser: Synthesiser, bare: Explanation, ids: list[int], path: Tensor
) -> Explanation:
    """The steps (t, s) that each token of a text spans, in place of attention."""
    seconds = synthesiser.facts()["seconds_per_step"]
    weights = path[:MAX_TOKENS].cpu().numpy()[None]
    times = [f"{i * seconds:.2f}" for i in range(1, weights.shape[1] + 1)]
    names = [*token_names(synthesiser.tokenizer)(ids)]
    patterns = (head_pattern(weights[0], names, itself=False),)
    return replace(
        bare,
        sequences={"source": names, "written": times},
        attention=(Attention("durations", "written", "source", weights, patterns),),
    )


def _step(read: str, written: str, end: float, last: bool) -> Step:
    """A step that read and gave frames of these times, by its probability of the end."""
    outcomes = sorted([(END, end), (GO_ON, 1 - end)], key=lambda outcome: -outcome[1])
    return Step(read, written, end if last else 1 - end, tuple(outcomes))


def _read(
    synthesiser: Synthesiser, ids: list[int], spoken: SpokenFrames
) -> tuple[Padded, Tensor | None]:
    """Input frames (1, t, bins) of the steps that spoke ids, and their dropout masks.

    At most of the first `MAX_TOKENS` steps, then with a warning.
    """
    k = synthesiser.frames_per_step
    count = len(spoken.attention)
    if count > MAX_TOKENS:
        logger.warning("the speech has %d steps; the first %d are explained", count, MAX_TOKENS)
        count = MAX_TOKENS
    masks = synthesiser.masks([ids])
    drawn = [mask for _ in range(count) if (mask := masks.draw([0])) is not None]
    read = frames_read(Padded.unpadded(spoken.frames[None, : count * k]), k)
    return read, torch.cat(drawn, 1).to(read.values.device) if drawn else None

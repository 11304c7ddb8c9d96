"""A spoken text beside its recording, and attention over its letters: `spoken.py RUN OUT [NUMBER]`.

Speaks the text of a test recording of the run (by default the first) and writes OUT.svg, with the
spectrograms of both and the attention of each step, and the samples of the recording, of its frames
through Griffin-Lim and of the speech, as OUT-recorded.ogg, OUT-inverted.ogg and OUT-spoken.ogg.
"""

from __future__ import annotations

import html
import sys
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray
from spectrogram import GREY, png
from torch import Tensor

import transduce
from transduce.speech.audio import read_audio
from transduce.speech.recipe import read_recordings_of
from transduce.speech.recordings import read_recordings
from transduce.speech.spoken import Speech

WIDTH, HEIGHT, LETTER, LEFT, GAP = 720, 110, 13, 60, 26


def spectrogram(frames: NDArray[np.float32], seconds: float, top: int, title: str) -> list[str]:
    """An image of frames (t, f), as wide as its part of `seconds`, with a title over it."""
    shown = frames.T[::-1]
    low, high = np.percentile(shown, (20, 99.8))
    shades = (np.clip((shown - low) / (high - low), 0, 1) * 255).astype(np.uint8)
    width = WIDTH * len(frames) * 0.0125 / seconds
    return [
        f'<text x="{LEFT}" y="{top - 6}" text-anchor="start">{html.escape(title)}</text>',
        f'<image x="{LEFT}" y="{top}" width="{width:.1f}" height="{HEIGHT}" '
        f'preserveAspectRatio="none" href="{png(shades)}"/>',
    ]


def attention(path: Tensor, tokens: list[str], width: float, top: int) -> list[str]:
    """Weights (steps, tokens) of each step over the tokens, one line for each."""
    weights = (path.numpy().T * 255).astype(np.uint8)
    height = LETTER * len(tokens)
    image = (
        f'<image x="{LEFT}" y="{top}" width="{width:.1f}" height="{height}" '
        f'preserveAspectRatio="none" style="image-rendering:pixelated" href="{png(weights)}"/>'
    )
    names = [
        f'<text x="{LEFT - 6}" y="{top + LETTER * (i + 0.8):.1f}">{html.escape(token)}</text>'
        for i, token in enumerate(tokens)
    ]
    return [image, *names]


def picture(recorded: Speech, spoken: Speech, path: Tensor, tokens: list[str]) -> str:
    """The SVG."""
    seconds = max(recorded.seconds, spoken.seconds) + 0.0125
    below = 2 * (HEIGHT + GAP) + GAP
    height = below + LETTER * len(tokens) + 8
    lines = [
        *spectrogram(recorded.frames.numpy(), seconds, GAP, "recorded"),
        *spectrogram(spoken.frames.numpy(), seconds, HEIGHT + 2 * GAP, "spoken"),
        f'<text x="{LEFT}" y="{below - 6}" text-anchor="start">attention to the letters</text>',
        *attention(path, tokens, WIDTH * spoken.seconds / seconds, below),
    ]
    size = f'width="{WIDTH + LEFT}" height="{height}" viewBox="0 0 {WIDTH + LEFT} {height}"'
    font = f'font-family="sans-serif" font-size="12" fill="{GREY}" text-anchor="end"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>'
    return "\n".join([head, *lines, "</svg>\n"])


def main(path: str, out: Path, number: int) -> None:
    """Write the picture and the three recordings."""
    synthesiser = transduce.load(path).synthesiser
    recipe = synthesiser.recipe
    data = read_recordings_of(recipe.data, recipe.audio, "test", synthesiser.cache)
    frames, text = data[number]
    recorded = Speech(frames, synthesiser.features)
    (spoken,) = synthesiser.speak([text])
    (path_of_steps,) = synthesiser.decode(synthesiser.encode([text]), [0])
    tokens = [*text.replace(" ", "␣"), "end"]
    out.with_suffix(".svg").write_text(
        picture(recorded, spoken, path_of_steps.attention, tokens), encoding="utf-8"
    )
    original = list(read_recordings(recipe.data.test, Path(recipe.data.root)))[number]
    samples = read_audio(original.file(), recorded.rate, original.location, original.excerpt())
    kinds = {"recorded": samples, "inverted": recorded.samples, "spoken": spoken.samples}
    for name, one in kinds.items():
        soundfile.write(f"{out}-{name}.ogg", one, recorded.rate, format="OGG", subtype="VORBIS")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)

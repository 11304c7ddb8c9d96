"""Features of recordings, pieces with sound, and words, as an SVG: `spectrogram.py RUN FILE...`.

The recordings are joined, with pauses of faint noise before, between and after them.  Text is a mid
grey and nothing is filled behind it, so the picture is legible on light and dark pages.
"""

from __future__ import annotations

import base64
import html
import struct
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import transduce
from transduce.speech.audio import Samples, read_audio
from transduce.speech.windows import sound_pieces

WIDTH, HEIGHT, BAR = 760, 160, 14
PAUSE = 0.7
FAINT = 0.001
GREY, BLUE = "#768390", "#2f81f7"


def joined(files: Sequence[str], rate: int) -> Samples:
    """Recordings with pauses around them."""
    generator = np.random.default_rng(0)
    silence = np.zeros(round(PAUSE * rate), np.float32)
    parts = [part for file in files for part in (silence, read_audio(Path(file), rate))]
    samples = np.concatenate([*parts, silence])
    return samples + (FAINT * generator.standard_normal(len(samples))).astype(np.float32)


def png(opacity: NDArray[np.uint8]) -> str:
    """A picture (h, w) of one colour with this opacity, as a data URI."""
    colour = np.array([int(BLUE[i : i + 2], 16) for i in (1, 3, 5)], np.uint8)
    pixels = np.concatenate(
        [np.broadcast_to(colour, (*opacity.shape, 3)), opacity[:, :, None]], axis=2
    )
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", opacity.shape[1], opacity.shape[0], 8, 6, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n"
    for name, chunk in ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")):
        sum_ = zlib.crc32(name + chunk)
        data += struct.pack(">I", len(chunk)) + name + chunk + struct.pack(">I", sum_)
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def picture(run: transduce.Run, files: Sequence[str]) -> str:
    """Mel energies, a bar below each piece, and the words at their times."""
    transcriber = run.transcriber()
    rate = transcriber.rate
    samples = joined(files, rate)
    frames = transcriber.recogniser.extractor(samples).T[::-1]
    low, high = np.percentile(frames, (20, 99.8))
    shades = np.clip((frames - low) / (high - low), 0, 1)
    scale = WIDTH / (len(samples) / rate)
    lines = [
        f'<image x="0" y="0" width="{WIDTH}" height="{HEIGHT}" preserveAspectRatio="none" '
        f'href="{png((shades * 255).astype(np.uint8))}"/>'
    ]
    for piece in sound_pieces([samples], rate):
        lines.append(
            f'<rect x="{piece.start * scale:.1f}" y="{HEIGHT + 4}" height="{BAR / 2}" rx="3" '
            f'width="{(piece.end - piece.start) * scale:.1f}" fill="{BLUE}"/>'
        )
    for segment in transcriber.transcribe([samples]):
        for word in segment.words:
            middle = (word.start + word.end) / 2 * scale
            lines.append(
                f'<text x="{middle:.1f}" y="{HEIGHT + 30}">{html.escape(word.text)}</text>'
            )
    height = HEIGHT + 40
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="14" '
            f'fill="{GREY}" text-anchor="middle">',
            *lines,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    sys.stdout.write(picture(transduce.load(sys.argv[1]), sys.argv[2:]))

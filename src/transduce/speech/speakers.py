"""Speakers of a recording: vectors of voices by an imported encoder, clusters, names of segments.

Voices that overlap are outside: each moment has one speaker.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.errors import RunError, SettingError
from transduce.interop.speaker_encoder import LAYERS, SPEAKERS, WIDTHS
from transduce.speech import MOST_SPEAKERS
from transduce.speech.audio import resampled
from transduce.speech.features import VoiceMel
from transduce.speech.languages import most_probable
from transduce.speech.segments import Segment, word_places
from transduce.speech.windows import AudioPiece
from transduce.support.work import chunks
from transduce.training.weight_files import read_plain_weights

Vectors = NDArray[np.float32]
"""(n, m), of length 1."""
WINDOW, STEP = 160, 40
"""Frames of a window, and between two."""
TOGETHER = 32
"""Windows in memory together."""
QUIET = 10 ** (-30 / 20)
"""Root mean square to which quieter pieces are raised."""
ALIKE = 0.69
"""Mean cosine of two clusters from which they are one speaker.  Chosen from 0.66 to 0.72 on 76
dialogues; error rates of others are in benchmarks/speakers.py."""
BRIEFEST = 8
"""Windows of a cluster that is a speaker; smaller ones hold the changes between two."""
CLUSTERED = 2000
"""Windows that are clustered, evenly spaced; costs grow with their square, memory too."""
CHANGE = 0.6
"""Sum of cosines, over moments of 0.1 s, that a change of speaker must win."""
MOMENT = 0.1


class SpeakerEncoder:
    """Vectors of voices by an LSTM over mel energies (Wan et al. 2018)."""

    def __init__(self, path: Path) -> None:
        """path: directory of an imported encoder.  Raises RunError for another or a damaged one."""
        if not (path / SPEAKERS).is_file():
            raise RunError(f"{path} has no {SPEAKERS}; import an encoder of speakers")
        self.mel = VoiceMel()
        arrays = {
            name: np.frombuffer(weight.read(), np.float32).reshape(weight.shape)
            for name, weight in read_plain_weights(path / SPEAKERS).items()
        }
        if {name: array.shape for name, array in arrays.items()} != WIDTHS:
            raise RunError(f"{path / SPEAKERS} is damaged; import the encoder again")
        self._weights = arrays

    def __call__(self, windows: NDArray[np.float32]) -> Vectors:
        """Vectors (n, m) of windows (n, t, f)."""
        x = windows.transpose(1, 0, 2)
        for layer in range(LAYERS):
            x = self._layer(x, layer)
        weight, bias = self._weights["linear.weight"], self._weights["linear.bias"]
        vectors = np.maximum(0, x[-1] @ weight.T + bias)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit: Vectors = vectors / np.maximum(lengths, np.float32(1e-9))
        return unit

    def _layer(self, x: NDArray[np.float32], layer: int) -> NDArray[np.float32]:
        """Outputs (t, n, m) of a layer for its inputs (t, n, d)."""
        weight_ih, weight_hh, *biases = (
            self._weights[f"lstm.{name}_l{layer}"]
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        projected = x @ weight_ih.T + sum(biases)
        hidden = cell = np.zeros((x.shape[1], weight_hh.shape[1]), np.float32)
        outputs = np.empty((*x.shape[:2], weight_hh.shape[1]), np.float32)
        for t, inputs in enumerate(projected):
            # input, forget and output gate, and the candidate of the cell
            i, f, g, o = np.split(inputs + hidden @ weight_hh.T, 4, axis=1)
            cell = _sigmoid(f) * cell + _sigmoid(i) * np.tanh(g)
            hidden = outputs[t] = _sigmoid(o) * np.tanh(cell)
        return outputs

    def windows_of(self, piece: AudioPiece, rate: int) -> tuple[list[int], Vectors]:
        """First frames of the windows of a piece, and their vectors (n, m).

        rate: of the samples, in Hz.  A piece shorter than a window is repeated.
        """
        samples = np.concatenate([*resampled(iter([piece.samples]), rate, self.mel.rate)])
        level = math.sqrt(float(np.square(samples).mean()))
        frames = self.mel(samples * np.float32(max(1.0, QUIET / max(level, 1e-6))))
        if len(frames) < WINDOW:
            frames = np.tile(frames, (math.ceil(WINDOW / len(frames)), 1))[:WINDOW]
        last = len(frames) - WINDOW
        firsts = sorted({*range(0, last + 1, STEP), last})
        vectors = [
            self(np.stack([frames[first : first + WINDOW] for first in some]))
            for some in chunks(firsts, TOGETHER)
        ]
        return firsts, np.concatenate(vectors)


def _sigmoid(x: NDArray[np.float32]) -> NDArray[np.float32]:
    half = np.float32(0.5)
    values: NDArray[np.float32] = half + half * np.tanh(half * x)
    return values


@dataclass(frozen=True)
class Speakers:
    """Settings of diarization.  number: of speakers; 0 to find it.

    Raises SettingError for a number out of 0 to `MOST_SPEAKERS`.
    """

    encoder: SpeakerEncoder
    number: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.number <= MOST_SPEAKERS:
            raise SettingError(
                f"the number of speakers is {self.number}; give 1 to {MOST_SPEAKERS}"
            )


class SpeakerTurn(NamedTuple):
    """Seconds of a recording with one speaker, by number."""

    start: float
    end: float
    speaker: int


class Diarizer:
    """Diarization of a recording, from the pieces that pass through `embed`."""

    def __init__(self, speakers: Speakers, rate: int) -> None:
        self._speakers = speakers
        self._rate = rate
        self._pieces: list[tuple[float, float, list[int], Vectors]] = []

    def embed(self, pieces: Iterable[AudioPiece]) -> Iterator[AudioPiece]:
        """Pass the pieces on, and store the vectors of their windows."""
        for piece in pieces:
            firsts, vectors = self._speakers.encoder.windows_of(piece, self._rate)
            self._pieces.append((piece.start, piece.end, firsts, vectors))
            yield piece

    def turns(self) -> list[SpeakerTurn]:
        """Turns of all pieces, with speakers in the order of their first words."""
        if not self._pieces:
            return []
        vectors = np.concatenate([vectors for *_, vectors in self._pieces])
        means = _speakers_of(vectors, self._speakers.number)
        turns = []
        for start, end, firsts, some in self._pieces:
            n = max(1, round((end - start) / MOMENT))
            middles = (np.array(firsts) + min(WINDOW, n * 10) / 2) / 100
            moments = (np.arange(n) + 0.5) * MOMENT
            distances = np.abs(moments[:, None] - middles)
            near = np.maximum(0, 1 - distances / (WINDOW / 200))
            near += 1e-3 * (distances == distances.min(1, keepdims=True))
            scores = near / near.sum(1, keepdims=True) @ (some @ means.T)
            at = start
            for speaker, run in itertools.groupby(most_probable(scores, CHANGE)):
                until = at + len([*run]) * MOMENT
                turns.append(SpeakerTurn(at, until, speaker))
                at = until
            turns[-1] = turns[-1]._replace(end=end)
        order = [*dict.fromkeys(turn.speaker for turn in turns)]
        return [turn._replace(speaker=order.index(turn.speaker)) for turn in turns]

    def named(self, segments: Iterable[Segment]) -> Iterator[Segment]:
        """Segments with their speakers; one with times of words is cut where the speaker
        changes."""
        turns = self.turns()
        for segment in segments:
            if not segment.text or not turns:
                yield segment
                continue
            spans = [*word_places(segment.text)]
            if len(spans) != len(segment.words):
                yield replace(segment, speaker=_speaker(turns, segment.start, segment.end))
                continue
            by = [_speaker(turns, word.start, word.end) for word in segment.words]
            for speaker, run in itertools.groupby(range(len(by)), by.__getitem__):
                numbers = [*run]
                first, last = numbers[0], numbers[-1]
                words = segment.words[first : last + 1]
                yield replace(
                    segment,
                    speaker=speaker,
                    start=words[0].start if first else segment.start,
                    end=words[-1].end if last + 1 < len(by) else segment.end,
                    text=segment.text[spans[first][0] : spans[last][1]].strip(),
                    words=words,
                )


def _speaker(turns: Sequence[SpeakerTurn], start: float, end: float) -> str:
    """Name of the speaker with most of a time, or of the nearest of the turns, which are in order
    and do not overlap."""
    first = bisect.bisect_right(turns, start, key=attrgetter("end"))
    shares: dict[int, float] = {}
    for number in range(first, len(turns)):
        turn = turns[number]
        if turn.start >= end:
            break
        shared = min(end, turn.end) - max(start, turn.start)
        shares[turn.speaker] = shares.get(turn.speaker, 0.0) + shared
    if not shares:
        middle = (start + end) / 2
        neighbours = turns[max(first - 1, 0) : first + 1]
        nearest = min(neighbours, key=lambda turn: max(turn.start - middle, middle - turn.end))
        shares = {nearest.speaker: 0.0}
    return chr(ord("A") + max(shares.items(), key=itemgetter(1))[0])


def _speakers_of(vectors: Vectors, number: int) -> Vectors:
    """Mean vectors (k, m) of the speakers of windows (n, m).  number: k; 0 to find it."""
    some = vectors[:: math.ceil(len(vectors) / CLUSTERED)]
    clusters = sorted(clusters_of(some @ some.T, ALIKE, number), key=len, reverse=True)
    briefest = 1 if number else BRIEFEST * len(some) / len(vectors)
    large = [cluster for cluster in clusters if len(cluster) >= briefest] or clusters[:1]
    means = np.stack([some[cluster].mean(0) for cluster in large[:MOST_SPEAKERS]])
    unit: Vectors = means / np.linalg.norm(means, axis=1, keepdims=True)
    return unit


def clusters_of(alike: NDArray[Any], least: float, number: int = 0) -> list[list[int]]:
    """Clusters of items by average linkage, from their similarities (n, n).

    least: mean similarity of two clusters that are joined.  number: of clusters, in place of it;
    0 for none.
    """
    alike = alike.astype(np.float32)
    np.fill_diagonal(alike, -np.inf)
    clusters = [[i] for i in range(len(alike))]
    best = alike.max(1)
    for left in range(len(alike), 1, -1):
        i = int(best.argmax())
        j = int(alike[i].argmax())
        if left == number or (not number and best[i] < least):
            break
        sizes = len(clusters[i]), len(clusters[j])
        joined = (sizes[0] * alike[i] + sizes[1] * alike[j]) / sum(sizes)
        stale = (best == alike[:, i]) | (best == alike[:, j])
        alike[i] = alike[:, i] = joined
        alike[j] = alike[:, j] = alike[i, i] = -np.inf
        best = np.maximum(best, alike[:, i])
        stale[[i, j]] = True
        best[stale] = alike[stale].max(1)
        clusters[i] += clusters[j]
        clusters[j] = []
    return [cluster for cluster in clusters if cluster]

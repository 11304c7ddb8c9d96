"""Film of learning: attention of a few fixed inputs, kept at points of the training budget."""

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from transduce.errors import RunError, SettingError
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.encoder_only import EncoderOnly
from transduce.nn.attention import RecordedAttention, record_attention
from transduce.sequence import Padded
from transduce.text import PAD
from transduce.training.config import TrainingConfig
from transduce.training.distributed import Ranks, Shards
from transduce.training.task import TrainingTask
from transduce.training.weights import read_with_metadata, write_weights

FILM = "film.safetensors"
"""File of the film in a run directory: 8-bit weights, with a header text of JSON."""
FILM_FORMAT = 1
FIRST_SHARE = 1e-3
"""Share of the budget at the first point, unless a single step is more."""


class Scene(NamedTuple):
    """A fixed input of the film, and `read`, a pass of the model over this input alone.

    tokens: sequences by name.  sequences: names of the rows and the columns of an attention, by
    "encoder", "decoder" and "cross".
    """

    text: str
    tokens: Mapping[str, Sequence[str]]
    sequences: Mapping[str, tuple[str, str]]
    read: Callable[[], object]


@runtime_checkable
class FilmedTask(Protocol):
    """A `TrainingTask` with inputs for a film."""

    def scenes(self) -> Sequence[Scene]:
        """Fixed held-out inputs; the same each time."""


class FilmPoint(NamedTuple):
    """A moment of training: optimizer steps made, and the share of the budget spent."""

    step: int
    share: float


class FilmedScene(NamedTuple):
    """A scene at all points, with attention by name, uint8 (points, h, t, s), 255 for 1."""

    text: str
    tokens: Mapping[str, Sequence[str]]
    sequences: Mapping[str, tuple[str, str]]
    attention: Mapping[str, Tensor]


class FilmFile(NamedTuple):
    """The content of a film's file."""

    points: tuple[FilmPoint, ...]
    scenes: tuple[FilmedScene, ...]


def read_film(run: Path) -> FilmFile | None:
    """The film of a run directory; None if there is none.  Raises RunError if damaged."""
    path = run / FILM
    if not path.is_file():
        return None
    tensors, texts = read_with_metadata(path)
    try:
        head = json.loads(texts["film"])
        if head["format"] > FILM_FORMAT:
            raise RunError(f"{path} has format {head['format']}; upgrade transduce")
        points = tuple(FilmPoint(int(step), float(share)) for step, share in head["points"])
        scenes = tuple(
            FilmedScene(
                str(header["text"]),
                {str(k): [str(token) for token in v] for k, v in header["tokens"].items()},
                {
                    str(k): (str(rows), str(columns))
                    for k, (rows, columns) in header["rows"].items()
                },
                {name: tensors[f"{number}/{name}"] for name in header["attention"]},
            )
            for number, header in enumerate(head["scenes"])
        )
        for scene in scenes:
            _check(scene, len(points))
    except (KeyError, ValueError, TypeError, AttributeError, AssertionError, RecursionError):
        raise RunError(f"{path} is damaged; delete it to use the run without its film") from None
    return FilmFile(points, scenes)


def _check(scene: FilmedScene, n_points: int) -> None:
    for name, weights in scene.attention.items():
        rows, columns = scene.sequences[kind_of(name)]
        shape = len(scene.tokens[rows]), len(scene.tokens[columns])
        assert weights.dtype == torch.uint8 and weights.dim() == 4
        assert (len(weights), *weights.shape[2:]) == (n_points, *shape)


def write_film(run: Path, film: FilmFile) -> None:
    """Write the film of a run, complete or not at all.  Raises RunError if that fails."""
    scenes = [
        {"text": s.text, "tokens": s.tokens, "rows": s.sequences, "attention": [*s.attention]}
        for s in film.scenes
    ]
    head = {"format": FILM_FORMAT, "points": film.points, "scenes": scenes}
    tensors = {
        f"{number}/{name}": weights
        for number, scene in enumerate(film.scenes)
        for name, weights in scene.attention.items()
    }
    write_weights(run / FILM, tensors, {"film": json.dumps(head)})


def kind_of(attention: str) -> str:
    """The key of `Scene.sequences` of an attention, by the name of its module."""
    return "cross" if attention.endswith("cross_attention") else attention.split(".")[0]


def points_of(config: TrainingConfig) -> list[float]:
    """Shares of the budget at which attention is kept, rising to 1."""
    first, n = max(FIRST_SHARE, 1 / config.steps), config.film
    return [first ** (1 - i / (n - 1)) if n > 1 else 1.0 for i in range(n)]


class FilmRecorder:
    """Records the film of a training; all ranks call it, the main process records and writes."""

    def __init__(
        self, task: TrainingTask, config: TrainingConfig, run: Path, shards: Shards | None
    ) -> None:
        """Raises SettingError for `training.film` in a task without sentences."""
        self._model, self._run, self._shards = task.model, run, shards
        self._points = points_of(config)
        self._stance = "force_eager" if config.compile else "default"
        self._ranks = Ranks.present()
        self._share = 0.0
        self._film = FilmFile((), ())
        self._scenes: Sequence[Scene] = ()
        if not config.film:
            return
        if not isinstance(task, FilmedTask):
            raise SettingError("training.film: this task has no sentences to keep; remove it")
        self._scenes = task.scenes()
        if not any(isinstance(module, RecordedAttention) for module in task.model.modules()):
            raise SettingError("training.film: this model has no attention to keep; remove it")

    def begin(self, step: int, share: float) -> None:
        """Begin at the initial weights, or continue after `step` with the points up to it."""
        self._share = share
        if not self._points:
            return
        earlier = read_film(self._run) if self._ranks.is_main and step else None
        if earlier is not None and _same(earlier, self._scenes):
            self._film = _until(earlier, step)
        if not step:
            self._take(step, share)

    def look(self, step: int, share: float) -> None:
        """Keep the attention after `step` if a point lies between the last look and this."""
        before, self._share = self._share, share
        if any(before < point <= share for point in self._points):
            self._take(step, share)

    def end(self, step: int, share: float) -> None:
        """Keep the attention of the last step, for any end of training."""
        if self._points and self._share < 1:
            self._take(step, share)

    def _take(self, step: int, share: float) -> None:
        self._model.eval()
        whole = self._shards.whole() if self._shards else contextlib.nullcontext()
        with whole, torch.compiler.set_stance(self._stance):
            if self._ranks.is_main and all(point.step != step for point in self._film.points):
                self._film = self._with_point(FilmPoint(step, share))
                write_film(self._run, self._film)

    def _with_point(self, point: FilmPoint) -> FilmFile:
        before = [scene.attention for scene in self._film.scenes] or [{}] * len(self._scenes)
        scenes = tuple(
            FilmedScene(
                scene.text,
                scene.tokens,
                scene.sequences,
                {
                    name: torch.cat([earlier[name], new]) if name in earlier else new
                    for name, new in self._attention(scene).items()
                },
            )
            for scene, earlier in zip(self._scenes, before, strict=True)
        )
        return FilmFile((*self._film.points, point), scenes)

    @torch.no_grad()
    def _attention(self, scene: Scene) -> dict[str, Tensor]:
        """Weights (1, h, t, s) of each attention in a pass over a scene, of 8 bits."""
        with record_attention(self._model) as recorded:
            scene.read()
        return {
            name: (255 * calls[0][:1].float()).round().clamp(0, 255).to(torch.uint8).cpu()
            for name, calls in recorded.items()
            if calls
        }


def _same(film: FilmFile, scenes: Sequence[Scene]) -> bool:
    """True if a film is of these scenes."""
    film_scenes = [(s.text, {k: list(v) for k, v in s.tokens.items()}) for s in film.scenes]
    return film_scenes == [(s.text, {k: list(v) for k, v in s.tokens.items()}) for s in scenes]


def _until(film: FilmFile, step: int) -> FilmFile:
    n = sum(point.step <= step for point in film.points)
    scenes = tuple(
        scene._replace(attention={k: v[:n] for k, v in scene.attention.items()})
        for scene in film.scenes
    )
    return FilmFile(film.points[:n], scenes)


SCENES = 3
"""Inputs in a film."""
LENGTH = 10
"""Tokens of a sequence that these are nearest to."""
MAX_LENGTH = 32
"""Maximum tokens of a sequence in a film; the rest is left out."""

Names = Callable[[Sequence[int]], list[str]]


def nearest_lengths(*lengths: NDArray[np.integer[Any]]) -> list[int]:
    """Numbers of the items whose sequences have about `LENGTH` tokens, in the order of the data.

    lengths: (n,) of each sequence of an item.
    """
    apart = np.sum([np.abs(sizes.astype(np.int64) - LENGTH) for sizes in lengths], 0)
    return sorted(np.argsort(apart, kind="stable")[:SCENES].tolist())


def pair_scene(
    model: EncoderDecoder, source: Padded, target: Padded, names: tuple[Names, Names], text: str
) -> Scene:
    """A source and its reference, which the decoder reads.

    model: the model to record.  text: shown above the scene.  source: (1, s) with its end.  target:
    (1, t) between BOS and EOS.  names: of source and target.
    """
    device = next(model.parameters()).device
    ids, written = source.values[0, :MAX_LENGTH].tolist(), target.values[0].tolist()
    written = written[: MAX_LENGTH + 1]
    rows = [Padded.from_rows([sequence], PAD).to(device) for sequence in (ids, written[:-1])]
    tokens = {
        "source": names[0](ids),
        "read": names[1](written[:-1]),
        "written": names[1](written[1:]),
    }
    sequences = {
        "encoder": ("source", "source"),
        "decoder": ("read", "read"),
        "cross": ("written", "source"),
    }
    return Scene(text, tokens, sequences, lambda: model(*rows))


def encoder_scene(model: EncoderOnly, row: Padded, names: Names) -> Scene:
    """A row (1, t) of ids, or (1, t, 2) with segments, that an encoder reads.

    model: the model to record.  names: gives the texts of ids.
    """
    cut = Padded.unpadded(row.values[:, :MAX_LENGTH]).to(next(model.parameters()).device)
    ids = cut.values[0] if cut.values.dim() == 2 else cut.values[0, :, 0]
    tokens = names(ids.tolist())
    sequences = {"encoder": ("text", "text")}
    return Scene(joined(tokens[1:-1]), {"text": tokens}, sequences, lambda: model.encode(cut))


def decoder_scene(model: nn.Module, ids: Sequence[int], names: Names) -> Scene:
    """Input ids of a decoder-only model."""
    row = Padded.from_rows([list(ids[:MAX_LENGTH])], PAD).to(next(model.parameters()).device)
    tokens = names(row.values[0].tolist())
    sequences = {"decoder": ("read", "read")}
    return Scene(joined(tokens[1:]), {"read": tokens}, sequences, lambda: model(row))


def joined(tokens: Sequence[str]) -> str:
    """Tokens as a line to choose a scene by."""
    spaced = any("▁" in token for token in tokens)
    line = "".join(tokens).replace("▁", " ") if spaced else " ".join(tokens)
    return line.strip()

"""Speakers of a run of speech synthesis: `speakers.json`, in the order of their vectors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from transduce.errors import DataError, printable_name
from transduce.tasks.labels import load_labels
from transduce.tasks.speech.recordings import SplitRecordings
from transduce.training.checkpoint_paths import checkpoints_of
from transduce.training.config import FineTuneConfig
from transduce.training.distributed import Ranks
from transduce.training.fine_tuning import AdaptWeights
from transduce.training.weights import write_text

FILE = "speakers.json"
VECTORS = "front_end.segments.weight"


def load_speakers(run: Path) -> tuple[str, ...]:
    """Speakers of a run directory; none of a run of a single voice."""
    return load_labels(run, FILE) if (run / FILE).exists() else ()


def speakers_for(
    fine_tune: FineTuneConfig | None, run: Path, train: SplitRecordings
) -> tuple[str, ...]:
    """Speakers of a run before training, saved in its directory; none for a single voice.

    Those of the training recordings, then others of the base run.  Raises DataError if only some
    recordings have a speaker.
    """
    if (run / FILE).exists() or checkpoints_of(run):
        return load_speakers(run)
    names = sorted(set(map(printable_name, train.speakers)))
    others = load_speakers(Path(fine_tune.run)) if fine_tune else ()
    speakers = (*names, *(name for name in others if name not in names))
    if len(speakers) < 2:
        return ()
    if "" in names:
        unnamed = train.names[train.speakers.index("")]
        remedy = "name the speaker of each recording, or set the column to an absent one"
        raise DataError(f"{unnamed} has no speaker, and others have; {remedy}")
    if Ranks.present().is_main:
        write_text(run / FILE, json.dumps(speakers, ensure_ascii=False) + "\n")
    return speakers


def fit_speakers(speakers: Sequence[str], base: Sequence[str]) -> AdaptWeights:
    """Vectors of the base run by their speakers' names; a new speaker begins with their mean."""

    def fit(name: str, theirs: Tensor) -> Tensor:
        if name != VECTORS or len(theirs) != len(base):
            return theirs
        vectors = dict(zip(base, theirs, strict=True))
        return torch.stack([vectors.get(each, theirs.mean(0)) for each in speakers])

    return fit

"""Train a Transformer on your own pairs, look inside it, and put it to work.

    import transduce

    path, outcome = transduce.train("recipe.toml")
    run = transduce.load(path)
    print(run("ein kleiner Hund").text)

PyTorch is imported when a name that needs it is first used, not before.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from transduce.errors import (
    CancelledError,
    DataError,
    InputError,
    MemoryLimitError,
    RunError,
    SettingError,
    TrainingError,
    TransduceError,
)
from transduce.support.version import __version__

if TYPE_CHECKING:
    from transduce.data.write_pairs import write_pairs
    from transduce.decoding.options import DecodingOptions
    from transduce.explain.explanation import Explanation
    from transduce.explain.parts import KnockOut
    from transduce.explain.runs import explain_runs, explain_with_and_without
    from transduce.explain.side_by_side import SideBySide
    from transduce.explain.tensors import RecordedTensors, record_tensors
    from transduce.nn.attention import record_attention
    from transduce.runs.loading import load
    from transduce.runs.run import Run
    from transduce.runs.training import train
    from transduce.tasks.evaluation import Evaluation
    from transduce.tasks.labels import LabelPrediction
    from transduce.tasks.language_model.generator import Continuation
    from transduce.tasks.language_model.recommendation import Recommendation
    from transduce.tasks.speech.recogniser import Recognition
    from transduce.tasks.speech.segments import Segment
    from transduce.tasks.speech.spoken import Speech
    from transduce.tasks.task import Prediction
    from transduce.tasks.text_encoder.answerer import SpanPrediction
    from transduce.tasks.text_encoder.embedding import EmbeddingPrediction
    from transduce.tasks.text_encoder.mask_filler import FilledText
    from transduce.tasks.translation.translations import Alignment, Candidate, Translation
    from transduce.tasks.vision.captioning import Caption

__all__ = [
    "Alignment",
    "CancelledError",
    "Candidate",
    "Caption",
    "Continuation",
    "DataError",
    "DecodingOptions",
    "EmbeddingPrediction",
    "Evaluation",
    "Explanation",
    "FilledText",
    "InputError",
    "KnockOut",
    "LabelPrediction",
    "MemoryLimitError",
    "Prediction",
    "Recognition",
    "Recommendation",
    "RecordedTensors",
    "Run",
    "RunError",
    "Segment",
    "SettingError",
    "SideBySide",
    "SpanPrediction",
    "Speech",
    "TrainingError",
    "TransduceError",
    "Translation",
    "__version__",
    "explain_runs",
    "explain_with_and_without",
    "load",
    "record_attention",
    "record_tensors",
    "train",
    "write_pairs",
]

_HOMES = {
    "Alignment": "transduce.tasks.translation.translations",
    "Candidate": "transduce.tasks.translation.translations",
    "Caption": "transduce.tasks.vision.captioning",
    "Continuation": "transduce.tasks.language_model.generator",
    "DecodingOptions": "transduce.decoding.options",
    "EmbeddingPrediction": "transduce.tasks.text_encoder.embedding",
    "Evaluation": "transduce.tasks.evaluation",
    "Explanation": "transduce.explain.explanation",
    "FilledText": "transduce.tasks.text_encoder.mask_filler",
    "KnockOut": "transduce.explain.parts",
    "LabelPrediction": "transduce.tasks.labels",
    "Prediction": "transduce.tasks.task",
    "Recognition": "transduce.tasks.speech.recogniser",
    "Recommendation": "transduce.tasks.language_model.recommendation",
    "RecordedTensors": "transduce.explain.tensors",
    "Run": "transduce.runs.run",
    "SideBySide": "transduce.explain.side_by_side",
    "Segment": "transduce.tasks.speech.segments",
    "SpanPrediction": "transduce.tasks.text_encoder.answerer",
    "Speech": "transduce.tasks.speech.spoken",
    "Translation": "transduce.tasks.translation.translations",
    "explain_runs": "transduce.explain.runs",
    "explain_with_and_without": "transduce.explain.runs",
    "load": "transduce.runs.loading",
    "record_attention": "transduce.nn.attention",
    "record_tensors": "transduce.explain.tensors",
    "train": "transduce.runs.training",
    "write_pairs": "transduce.data.write_pairs",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'transduce' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

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
    from transduce.calls import doctor, export, import_model, make, sweep
    from transduce.data.pairs import write_pairs
    from transduce.decoding.options import DecodingOptions
    from transduce.examination.report import Examination
    from transduce.experiments.sweep import Sweep
    from transduce.explain.explanation import Explanation, SideBySide
    from transduce.explain.parts import KnockOut
    from transduce.explain.recording import RecordedTensors, record_tensors
    from transduce.explain.runs import explain_runs, explain_with_and_without
    from transduce.loading import Run, load
    from transduce.making.account import Account
    from transduce.nn.attention import record_attention
    from transduce.pipelines import pipeline
    from transduce.runs.training import train
    from transduce.speech.recogniser import Recognition
    from transduce.speech.segments import Segment
    from transduce.speech.spoken import Speech
    from transduce.tasks.evaluation import Evaluation
    from transduce.tasks.labels import LabelPrediction
    from transduce.tasks.language_model.generator import Continuation
    from transduce.tasks.language_model.recommendation import Recommendation
    from transduce.tasks.task import Prediction
    from transduce.tasks.text_encoder.mask_filler import FilledText
    from transduce.tasks.text_encoder.predictor import EmbeddingPrediction, SpanPrediction
    from transduce.tasks.translation.text_translator import Alignment, Candidate, Translation
    from transduce.vision.captioning import Caption


__all__ = [
    "Account",
    "Alignment",
    "CancelledError",
    "Candidate",
    "Caption",
    "Continuation",
    "DataError",
    "DecodingOptions",
    "EmbeddingPrediction",
    "Evaluation",
    "Examination",
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
    "Sweep",
    "TrainingError",
    "TransduceError",
    "Translation",
    "__version__",
    "doctor",
    "explain_runs",
    "explain_with_and_without",
    "export",
    "import_model",
    "load",
    "make",
    "pipeline",
    "record_attention",
    "record_tensors",
    "sweep",
    "train",
    "write_pairs",
]

_HOMES = {
    "Account": "transduce.making.account",
    "Alignment": "transduce.tasks.translation.text_translator",
    "Candidate": "transduce.tasks.translation.text_translator",
    "Caption": "transduce.vision.captioning",
    "Continuation": "transduce.tasks.language_model.generator",
    "DecodingOptions": "transduce.decoding.options",
    "EmbeddingPrediction": "transduce.tasks.text_encoder.predictor",
    "Evaluation": "transduce.tasks.evaluation",
    "Examination": "transduce.examination.report",
    "Explanation": "transduce.explain.explanation",
    "FilledText": "transduce.tasks.text_encoder.mask_filler",
    "KnockOut": "transduce.explain.parts",
    "LabelPrediction": "transduce.tasks.labels",
    "Prediction": "transduce.tasks.task",
    "Recognition": "transduce.speech.recogniser",
    "Recommendation": "transduce.tasks.language_model.recommendation",
    "RecordedTensors": "transduce.explain.recording",
    "Run": "transduce.loading",
    "Segment": "transduce.speech.segments",
    "SideBySide": "transduce.explain.explanation",
    "SpanPrediction": "transduce.tasks.text_encoder.predictor",
    "Speech": "transduce.speech.spoken",
    "Sweep": "transduce.experiments.sweep",
    "Translation": "transduce.tasks.translation.text_translator",
    "doctor": "transduce.calls",
    "explain_runs": "transduce.explain.runs",
    "explain_with_and_without": "transduce.explain.runs",
    "export": "transduce.calls",
    "import_model": "transduce.calls",
    "load": "transduce.loading",
    "make": "transduce.calls",
    "pipeline": "transduce.pipelines",
    "record_attention": "transduce.nn.attention",
    "record_tensors": "transduce.explain.recording",
    "sweep": "transduce.calls",
    "train": "transduce.runs.training",
    "write_pairs": "transduce.data.pairs",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'transduce' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

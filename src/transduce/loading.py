"""A trained model in use: `load` and `Run`, with the calls of all rooms.  Imports no torch."""

import os

from transduce.explain.calls import ExplainCalls
from transduce.runs.arguments import EngineName
from transduce.runs.run import load_as
from transduce.speech.calls import SpeechCalls


class Run(SpeechCalls, ExplainCalls):
    """A trained model, loaded from its run directory: `transduce.load(path)`.

    predictor: made by the task, for its inputs.  precision, engine: as in `load`.  others: runs
    that decode with it (`with_models`).
    """


def load(
    path: str | os.PathLike[str],
    device: str = "auto",
    precision: str = "float32",
    engine: EngineName = "auto",
    threads: int | None = None,
) -> Run:
    """Load a run directory for use.  Raises RunError when it is missing, damaged or too new.

    path: of the run.  device: such as "cpu" or "cuda:0"; "auto" takes a GPU if there is one.
    precision: of matrix products, "bf16", or "int8" on a CPU: faster, smaller, with slightly
    different answers; "auto" is the fastest of the three on this CPU, which is measured at the
    model's width, "auto:float32,bf16" that of those.  On a CPU bf16 and int8 are computed by the
    native engine, which then decodes where it
    can.  engine: "native" computes translations, continuations, replies, transcripts and encoders
    of texts and images in C++, on a CPU, compiled on first use; "auto" natively where that is
    possible, else with PyTorch.  Translations, encoders of texts and imported Whispers in the
    native engine load PyTorch only for a call that needs it, such as `explain`, and for `model`.
    threads: of the CPU, by default PyTorch's choice.  Raises SettingError if impossible.

    >>> run = transduce.load("runs/demo", device="cpu")
    """
    return load_as(Run, path, device, precision, engine, threads)

"""A small, partly trained translator that reverses letters, and its probabilities."""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import transduce
from helpers.predictors import natively
from helpers.tiny_run import reversal_pairs, train_tiny, write_tsv
from transduce import Run
from transduce.sequence import Padded
from transduce.text import BOS, EOS

LETTERS = "abcde"
WORDS = ["abc", "edcba", "aa", "", "ce", "bbbd", "dcab", "eeea", "ab"]

LEARNT = (
    "training.steps=120",
    "training.validate_every=40",
    "training.schedule.peak=0.01",
    "data.filters.max_length=12",
    "decoding.beam_size=3",
    "decoding.length_penalty=none",
)
"""Settings of a translator that has learnt them, with its tail of checkpoints."""


def reversing_run(directory: Path) -> Run:
    """Trained in a directory, for sixty steps."""
    data = write_tsv(directory / "a.tsv", reversal_pairs(300))
    settings = ("training.steps=60", "training.schedule.peak=0.01")
    return transduce.load(train_tiny(data, directory / "run", *settings)[0], device="cpu")


def some_texts(n: int, seed: int = 0) -> list[str]:
    """Of one to seven letters."""
    chance = random.Random(seed)
    return ["".join(chance.choices(LETTERS, k=chance.randint(1, 7))) for _ in range(n)]


def forced(run: Run, text: str, target: str) -> torch.Tensor:
    """(t, v) log-probabilities of the token after each target token."""
    translator = run.translator
    source = Padded.unpadded(torch.tensor([[*translator.source.encode(text), EOS]]))
    given = Padded.unpadded(torch.tensor([[BOS, *translator.target.encode(target)]]))
    with torch.inference_mode():
        return translator.model.eval()(source, given)[0].log_softmax(1)  # type: ignore[no-any-return]


def total(log_probs: torch.Tensor, run: Run, target: str) -> float:
    """Log-probability (natural) of a target and its end, from the result of `forced`."""
    ids = torch.tensor([*run.translator.target.encode(target), EOS])
    return float(log_probs.gather(1, ids[:, None]).sum())


def with_model(run: Run, model: Any) -> Run:
    """The run with another model, decoding with the same engine."""
    translator: Any = run.translator
    search = translator.steps.over(model)
    changed = replace(translator, network=lambda: model, backend=search)
    return replace(run, predictor=natively(changed) if run.engine == "native" else changed)


def counted(run: Run) -> tuple[Run, list[int]]:
    """A run that notes how many tokens each of its steps reads."""
    noted = with_model(run, copy.deepcopy(run.model))
    model: Any = noted.translator.steps.model
    read: list[int] = []
    step = model.step

    def noting(target: Padded, state: Any) -> torch.Tensor:
        read.append(target.real.shape[1])
        return step(target, state)  # type: ignore[no-any-return]

    model.step = noting
    return noted, read

"""Table of tasks: `TASKS`.  A task joins data, model, loss and metric.

The rows of a family are imported when a row is first needed, so that a process without
PyTorch can translate.  Rows of other packages are the entry points `transduce.tasks`.
"""

from __future__ import annotations

import importlib

from transduce.support.open_table import OpenTable
from transduce.tasks.task import Task

FAMILIES = {
    "masked-language-model": "tasks.text_encoder.rows",
    "question-answering": "tasks.text_encoder.rows",
    "translation": "tasks.translation.rows",
    "classification": "tasks.text_encoder.rows",
    "embedding": "tasks.text_encoder.rows",
    "captioning": "vision.rows",
    "image-classification": "vision.rows",
    "image-embedding": "vision.rows",
    "language-model": "tasks.language_model.rows",
    "dialogue": "tasks.language_model.rows",
    "recommendation": "tasks.language_model.rows",
    "speech-recognition": "speech.rows",
    "speech-translation": "speech.rows",
    "speech-synthesis": "speech.synthesis_rows",
}
"""By task: the module that has its row."""


class TaskTable(OpenTable[Task | None]):
    """Rows by task."""

    def __getitem__(self, task: str) -> Task:
        """The row of a task, imported if need be."""
        row = super().__getitem__(task)
        if row is None:
            rows = importlib.import_module(f"transduce.{FAMILIES[task]}")
            row = self.data[task] = getattr(rows, task.replace("-", "_").upper())
        return row


TASKS = TaskTable("transduce.tasks", dict.fromkeys(FAMILIES))

"""Table of tasks: `TASKS`.  A task joins data, model, loss and metric.

The rows of a family are imported when a row is first needed, so that a process without
PyTorch can translate.
"""

from __future__ import annotations

import importlib
from collections import UserDict

from transduce.tasks.task import Task

FAMILIES = {
    "masked-language-model": "text_encoder",
    "question-answering": "text_encoder",
    "translation": "translation",
    "classification": "text_encoder",
    "embedding": "text_encoder",
    "captioning": "vision",
    "image-classification": "vision",
    "image-embedding": "vision",
    "language-model": "language_model",
    "dialogue": "language_model",
    "recommendation": "language_model",
    "speech-recognition": "speech",
    "speech-translation": "speech",
    "speech-synthesis": "speech",
}
"""By task: the folder of `tasks/` whose `rows.py` has its row."""


class TaskTable(UserDict[str, Task | None]):
    """Rows by task."""

    def __getitem__(self, task: str) -> Task:
        """The row of a task, imported if need be."""
        row = self.data[task]
        if row is None:
            rows = importlib.import_module(f"transduce.tasks.{FAMILIES[task]}.rows")
            row = self.data[task] = getattr(rows, task.replace("-", "_").upper())
        return row


TASKS = TaskTable(dict.fromkeys(FAMILIES))

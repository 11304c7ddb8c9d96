"""Table of tasks: `TASKS`.  A task joins data, model, loss and metric.

The rows of a family, in `rows/`, are imported when a row is first needed, so that a process without
PyTorch can translate.  Rows of other packages are the entry points `transduce.tasks`.
"""

import importlib

from transduce.support.open_table import OpenTable
from transduce.tasks.task import Task

FAMILIES = {
    "masked-language-model": "rows.text_encoder",
    "question-answering": "rows.text_encoder",
    "translation": "rows.translation",
    "classification": "rows.text_encoder",
    "embedding": "rows.text_encoder",
    "captioning": "rows.vision",
    "image-classification": "rows.vision",
    "image-embedding": "rows.vision",
    "language-model": "rows.language_model",
    "dialogue": "rows.language_model",
    "recommendation": "rows.language_model",
    "speech-recognition": "rows.speech",
    "speech-translation": "rows.speech",
    "speech-synthesis": "rows.synthesis",
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

"""Dialogues: turns of two or more roles, each between the mark of its role and EOS.

    BOS  [a] how are you ? EOS  [b] fine , thanks . EOS  [a] and the family ? EOS

Marks have ids after the tokenizer's own, so that no text imitates them.  Ids without a loss (every
mark, and the turns of some roles) are stored with an offset; see `ChatTemplate`.  The format on
disk is as for documents (`data.documents`).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from transduce.data.batches import DataState, for_rank
from transduce.data.documents import Coding, EncodedDocuments
from transduce.data.packing import PackedBatch, PackedBatches
from transduce.data.ragged_rows import Encode, Side
from transduce.data.sources import Files
from transduce.data.tables import json_records
from transduce.errors import DataError
from transduce.settings.mistakes import did_you_mean
from transduce.settings.sections import section
from transduce.text.tokenizer import BOS, EOS


@section
class DialoguesConfig(Files):
    """Files with one dialogue as a JSON object per line, plain or compressed."""

    kind: Literal["jsonl"] = "jsonl"
    turns: str = "turns"
    """Field with the list of turns; `dialogue.en` goes into nested objects.  A turn is a text, or
    an object with `role` and `content`."""


class Turn(NamedTuple):
    """One turn of a dialogue; `role` is the index of its role."""

    role: int
    text: str


Dialogue = Sequence[Turn]


class ChatTemplate:
    """Encode dialogues as ids.

    size:    ids of the tokenizer; role marks come after them.
    rows:    all ids of the model, marks included.
    learned: (n_roles) True for roles with a training loss, False for context only.

    An id without a loss is stored as itself + rows.
    """

    def __init__(self, size: int, learned: Sequence[bool]) -> None:
        self.size = size
        self.learned = tuple(learned)
        self.rows = size + len(learned)

    @property
    def marks(self) -> range:
        """The mark of each role."""
        return range(self.size, self.rows)

    def turn(self, role: int, ids: Sequence[int]) -> list[int]:
        """Ids of a turn as model input."""
        return [self.marks[role], *ids, EOS]

    def stored(self, role: int, ids: Sequence[int]) -> list[int]:
        """Ids of a turn in storage."""
        mark, *tokens = self.turn(role, ids)
        offset = 0 if self.learned[role] else self.rows
        return [mark + self.rows, *(token + offset for token in tokens)]

    def encode(self, dialogues: Sequence[Dialogue], encode: Encode) -> tuple[list[list[int]], int]:
        """Stored ids of dialogues with learned turns, and the UTF-8 bytes of these; turns without a
        token are skipped."""
        encoded = iter(encode([turn.text for dialogue in dialogues for turn in dialogue]))
        rows, n_bytes = [], 0
        for dialogue in dialogues:
            spoken = [(turn, ids) for turn in dialogue if (ids := next(encoded))]
            learned = [turn.text for turn, _ in spoken if self.learned[turn.role]]
            if learned:
                turns = (self.stored(turn.role, ids) for turn, ids in spoken)
                rows.append([BOS, *itertools.chain.from_iterable(turns)])
                n_bytes += sum(len(text.encode("utf-8", "surrogatepass")) for text in learned)
        return rows, n_bytes

    def coding(self, encode: Encode) -> Coding[Dialogue]:
        """Coding for storage on disk."""
        store = functools.partial(self.encode, encode=encode)
        return Coding(Side(encode, 2 * self.rows), store, _characters)

    def documents(self, dialogues: Sequence[Dialogue], encode: Encode) -> EncodedDocuments:
        """Encode dialogues in memory."""
        rows, n_bytes = self.encode(dialogues, encode)
        ends = np.cumsum([0, *map(len, rows)])
        return EncodedDocuments(np.array([i for row in rows for i in row]), ends, n_bytes)


class DialogueBatches(PackedBatches):
    """All dialogues, once per epoch, packed in rows like other documents; only learned tokens
    count."""

    def __init__(
        self,
        data: EncodedDocuments,
        template: ChatTemplate,
        block: int,
        batch_tokens: int,
        seed: int,
    ) -> None:
        super().__init__(data, block, batch_tokens, seed)
        self.template = template

    def beginning(self, document: int, length: int) -> list[int]:
        """The first input ids of a dialogue, at most `length`, as a model reads them."""
        return [i % self.template.rows for i in super().beginning(document, length)]

    def iterate(self, state: DataState | None = None) -> Iterator[tuple[PackedBatch, DataState]]:
        """Yield batches endlessly, each with the state after it."""
        return for_rank(self._to_learn_from, state)

    def _to_learn_from(self, state: DataState | None) -> Iterator[tuple[PackedBatch, DataState]]:
        for batch, after in super().iterate(state):
            batch = self._counting(batch)
            if batch.target_tokens:
                yield batch, after

    def in_order(self, stride: int = 0) -> Iterator[PackedBatch]:
        """All dialogues once, in a fixed order."""
        batches = map(self._counting, super().in_order(stride))
        return (batch for batch in batches if batch.target_tokens)

    def _counting(self, batch: PackedBatch) -> PackedBatch:
        """The batch with plain model ids, counting only learned predictions."""
        rows = self.template.rows
        counted = batch.counted & (batch.labels < rows)
        return batch._replace(
            inputs=batch.inputs.with_values(batch.inputs.values % rows),
            labels=batch.labels % rows,
            counted=counted,
            target_tokens=int(counted.sum()),
        )


def read_dialogues(
    config: DialoguesConfig, root: Path, roles: Sequence[str]
) -> Iterator[list[Turn]]:
    """Stream the dialogues of a section, without blank turns.  Raises DataError for unreadable
    input.

    roles: the last answers the role before it; texts without a role alternate between these two.
    """
    for path in config.files(root):
        for record in json_records(path):
            turns = record.value(config.turns)
            if not isinstance(turns, list):
                raise DataError(
                    f"{record.location}: {config.turns!r} must be a list of turns, not "
                    f"{type(turns).__name__}; set `turns` to another field"
                )
            parsed = [
                _turn(turn, i, roles, f"{record.location}: turn {i + 1}")
                for i, turn in enumerate(turns)
            ]
            if spoken := [turn for turn in parsed if turn.text]:
                yield spoken


def _characters(dialogue: Dialogue) -> int:
    return sum(len(turn.text) for turn in dialogue)


def _turn(turn: Any, number: int, roles: Sequence[str], location: str) -> Turn:
    if isinstance(turn, str):
        return Turn(len(roles) - 2 + number % 2, turn.strip())
    if not isinstance(turn, dict) or not isinstance(turn.get("content"), str):
        raise DataError(f'{location} must be a string or an object with "role" and "content"')
    role = turn.get("role")
    if role not in roles:
        known = ", ".join(map(repr, roles))
        hint = did_you_mean(str(role), roles) or f"; add it to data.roles (now {known})"
        raise DataError(f"{location} has an unknown role, {role!r}{hint}")
    return Turn(roles.index(role), turn["content"].strip())

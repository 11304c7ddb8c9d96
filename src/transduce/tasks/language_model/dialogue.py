"""Dialogue: a language model of turns that belong to roles.

    BOS  [a] how are you ? EOS  [b] fine , thanks . EOS  [a] and the family ? EOS

Marks have ids after the tokenizer's own, so that no text imitates them.  Ids without a loss (every
mark, and the turns of some roles) are stored with an offset; see `ChatTemplate`.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from transduce.data.documents import Coding
from transduce.data.ragged_rows import Encode, Side
from transduce.data.sources import Files
from transduce.data.tables import json_records
from transduce.decoding.options import DecodingOptions
from transduce.decoding.session import TextStream
from transduce.errors import DataError, SettingError
from transduce.settings.sections import did_you_mean, section
from transduce.tasks.language_model.generator import Continuation, ContinuationText
from transduce.tasks.language_model.task import DecoderRecipe, DocumentModel
from transduce.tasks.recipe import Split, SplitsConfig, read_split
from transduce.text.tokenizer import BOS, EOS
from transduce.training.config import FineTuneConfig

logger = logging.getLogger("transduce")

SHARE_FOR_HISTORY = 0.75
"""Share of the context for the history; the rest is for the reply."""


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
    """Ids of dialogues.

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

    def encode(self, dialogues: Sequence[Dialogue], encode: Encode) -> tuple[list[list[int]], int]:
        """Stored ids of dialogues with learned turns, and the UTF-8 bytes of these; turns without a
        token are skipped."""
        encoded = iter(encode([turn.text for dialogue in dialogues for turn in dialogue]))
        rows, n_bytes = [], 0
        for dialogue in dialogues:
            row, any_learned = [BOS], False
            for turn in dialogue:
                if not (ids := next(encoded)):
                    continue
                learned = self.learned[turn.role]
                mark, *tokens = self.turn(turn.role, ids)
                row += [mark + self.rows, *(i if learned else i + self.rows for i in tokens)]
                any_learned |= learned
                n_bytes += learned * len(turn.text.encode("utf-8", "surrogatepass"))
            if any_learned:
                rows.append(row)
        return rows, n_bytes


def read_dialogues(
    config: DialoguesConfig, root: Path, roles: Sequence[str]
) -> Iterator[list[Turn]]:
    """Stream the dialogues of a section, without blank turns.  Raises DataError for unreadable
    input.

    config: the section of the recipe.  root: directory of its relative paths.  roles: the last
    answers the role before it; texts without a role alternate between these two.
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


@section
class DialogueDataConfig(SplitsConfig):
    """Dialogues for training, validation and test."""

    train: DialoguesConfig | None = None
    valid: DialoguesConfig | None = None
    test: DialoguesConfig | None = None
    hold_out: Annotated[float, Field(gt=0, le=0.5)] = 0.05
    roles: Annotated[tuple[str, ...], Field(min_length=2)] = ("user", "model")
    """Roles of the turns.  The model answers as the last role, to the role before it; these two
    alternate in turns without a role."""
    loss_on: Literal["all", "answers"] = "all"
    """Turns in the loss: all, or only those by the last role (answers)."""

    def __post_init__(self) -> None:
        if len(set(self.roles)) < len(self.roles):
            raise SettingError("data.roles contains a role twice; remove one")


@section
class DialogueRecipe(DecoderRecipe):
    """Recipe of a dialogue model."""

    bases = ("dialogue", "language-model")

    task: Literal["dialogue"] = "dialogue"
    data: DialogueDataConfig
    fine_tune: FineTuneConfig | None = None
    """Base run: a dialogue model with the same number of roles, or a language model."""
    decoding: DecodingOptions = DecodingOptions(method="sample", max_tokens=100)

    @property
    def marks(self) -> tuple[str, ...]:
        """The roles."""
        return self.data.roles

    def documents(self, split: Split) -> Iterator[Dialogue]:
        """Stream the dialogues of a split.  Raises DataError if reading fails."""
        read = functools.partial(read_dialogues, roles=self.data.roles)
        return read_split(self.data, split, read, self.text_of)

    def texts(self) -> Iterator[str]:
        """Texts of all turns."""
        return (turn.text for dialogue in self.documents("train") for turn in dialogue)

    @staticmethod
    def text_of(document: Dialogue) -> str:
        """The turns, a line each."""
        return "\n".join(turn.text for turn in document)


class Reply(Continuation):
    """Reply of the model."""

    def fields(self) -> dict[str, Any]:
        """Fields of a JSON record."""
        fields = super().fields()
        return {"reply": fields.pop("continuation"), **fields}


class TrainedDialogue(DocumentModel[Dialogue]):
    """Generator of replies to dialogue histories.

    A history is a text with a turn on each line; the reply follows the last turn.  An empty history
    is answered with how the model begins a conversation.
    """

    inputs = ("history",)
    input_name = "history"
    answer_type = Reply
    recipe: DialogueRecipe

    @functools.cached_property
    def template(self) -> ChatTemplate:
        """Conversion of dialogues to ids."""
        data = self.recipe.data
        learned = [data.loss_on == "all" or role == data.roles[-1] for role in data.roles]
        return ChatTemplate(self.tokenizer.size, learned)

    @property
    def coding(self) -> Coding[Dialogue]:
        """Coding of dialogues by the template."""
        template, encode = self.template, self.tokenizer.encode_batch
        return Coding(
            Side(encode, 2 * template.rows),
            functools.partial(template.encode, encode=encode),
            self.recipe.text_of,
            template.rows,
            (self.recipe.data.roles, template.learned),
        )

    def example(self, text: str, answer: str) -> Dialogue:
        """A history and its reply."""
        return [*self.turns(text), Turn(self.answering, answer.strip())]

    def nothing_in(self, split: Split) -> str:
        """Message for a split without a turn to learn from."""
        data = self.recipe.data
        separate = split == "train" or data.valid is not None
        part = f"data.{split}" if separate else "the held-out part of data.train"
        return (
            f"{part} has no dialogue with a turn that counts in the loss; change "
            f"data.loss_on = {data.loss_on!r}, or add dialogues"
        )

    @property
    def answering(self) -> int:
        """The role that the model has."""
        return len(self.recipe.data.roles) - 1

    def read(self, inputs: Sequence[str], first: int) -> list[list[int]]:
        """Encode histories; warns if the oldest turns are dropped."""
        rows = []
        for i, text in enumerate(inputs):
            name = f"{self.input_name} {first + i + 1}"
            turns = self.turns(text)
            ids, dropped = self.to_answer(turns)
            if dropped:
                message = "%s: dropping the oldest %d of %d turns; the context has room for %d"
                logger.warning(message, name, dropped, len(turns), len(turns) - dropped)
            self.unknown.check([[turn.text for turn in turns]], [ids], [name])
            rows.append(ids)
        return rows

    def continuation_text(
        self, prompt: Sequence[int], options: DecodingOptions
    ) -> ContinuationText:
        """Text of a reply, independent of the turns before it."""
        return ContinuationText(self.tokenizer, (), options.stop_strings)

    def turns(self, history: str) -> list[Turn]:
        """The lines of a text as turns of the last two roles, the last not the model's."""
        lines = [line.strip() for line in history.split("\n") if line.strip()]
        newest_first = enumerate(reversed(lines), 1)
        turns = [Turn(self.answering - number % 2, line) for number, line in newest_first]
        return turns[::-1]

    def to_answer(self, turns: Sequence[Turn]) -> tuple[list[int], int]:
        """Ids that a reply to these turns follows, and how many of the oldest have no room.

        Of a newest turn that is too long by itself the end is read.
        """
        room = max(4, int(SHARE_FOR_HISTORY * self.window)) - 2  # BOS, and the mark of the role
        history: list[int] = []
        count = 0
        for turn in reversed(turns):
            ids = self.tokenizer.encode(turn.text)
            if not count:
                ids = ids[-max(1, room - 2) :]
            turn_ids = self.template.turn(turn.role, ids)
            if len(history) + len(turn_ids) > room:
                break
            history = turn_ids + history
            count += 1
        return [BOS, *history, self.template.marks[self.answering]], len(turns) - count

    def facts(self) -> dict[str, Any]:
        """Size of the vocabulary, and the roles."""
        return {**super().facts(), "roles": list(self.recipe.data.roles)}

    def conversation(self, options: DecodingOptions | None) -> Conversation:
        """A new conversation with this model."""
        return Conversation(self, options)


class Conversation:
    """Conversation with a model, with its history.

    turns: all turns, oldest first. forgotten: number of oldest turns dropped from the context of
    the last reply.
    """

    def __init__(self, model: TrainedDialogue, options: DecodingOptions | None = None) -> None:
        """options: by default the recipe's.  Raises SettingError for impossible options."""
        self.model = model
        self.options = options or model.options
        model.check(self.options)
        self.turns: list[Turn] = []
        self.forgotten = 0
        self._replies = 0

    def reply(self, text: str, cancelled: Callable[[], bool] | None = None) -> TextStream:
        """Stream the reply to a text.

        If the stream is closed early, or `cancelled`, called between steps, ends it with a
        CancelledError, the partial reply is added to the history; without any reply, the text is
        not. The first reply equals `predict`'s.
        """
        asked = Turn(self.model.answering - 1, text.strip())
        ids, self.forgotten = self.model.to_answer([*self.turns, asked])
        self.model.unknown.check([[asked.text]], [ids], ["this turn"])
        stream = self.model.stream_of(ids, self.options, self._replies, cancelled)
        self._replies += 1
        answer = ""
        try:
            for part in stream:
                answer += part
                yield part
        finally:
            if answer.strip():
                self.turns += [asked, Turn(self.model.answering, answer.strip())]

    def reset(self) -> None:
        """Clear the history."""
        self.turns.clear()
        self.forgotten = 0

    def history(self) -> list[str]:
        """History, a line per turn, each after the name of its role."""
        roles = self.model.recipe.data.roles
        return [f"{roles[turn.role]}: {' '.join(turn.text.split())}" for turn in self.turns]

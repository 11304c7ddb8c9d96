"""Dialogue: a language model of turns that belong to roles, and their data.

    BOS  [a] how are you ? EOS  [b] fine , thanks . EOS  [a] and the family ? EOS

Marks have ids after the tokenizer's own, so that no text imitates them.  Ids without a loss (every
mark, and the turns of some roles) are stored with an offset; see `ChatTemplate`.  The format on
disk is as for documents (`data.documents`).
"""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from transduce.data.batches import DataState, for_rank
from transduce.data.documents import Coding, EncodedDocuments, NoDocumentsError, cached_documents
from transduce.data.packing import PackedBatch, PackedBatches
from transduce.data.ragged_rows import Encode, Side
from transduce.data.sources import Files
from transduce.data.tables import json_records
from transduce.decoding.backend import Decoded
from transduce.decoding.options import DecodingOptions
from transduce.decoding.session import Prepared, TextStream
from transduce.decoding.step_search import DecoderSearch
from transduce.errors import DataError, SettingError
from transduce.models.decoder_only import DecoderOnly, build_decoder_only
from transduce.settings.sections import did_you_mean, section
from transduce.support.work import available_cores
from transduce.tasks.evaluation import Evaluation
from transduce.tasks.language_model.generator import (
    FORBIDDEN,
    Continuation,
    ContinuationText,
    Generator,
)
from transduce.tasks.language_model.task import DecoderRecipe, LanguageModelTraining, text_scores
from transduce.tasks.recipe import (
    Split,
    SplitsConfig,
    check_decoding,
    check_not_decoding,
    digest_of,
    read_split,
    split_fingerprint,
    warn_of_few,
)
from transduce.tasks.task import Example
from transduce.tasks.text_batches import tokenizer_for
from transduce.tasks.vocabularies import digest_of_tokenizer
from transduce.text import Tokenizer, token_names
from transduce.text.tokenizer import BOS, EOS
from transduce.training.config import FineTuneConfig
from transduce.training.fine_tuning import AdaptWeights
from transduce.training.log import ProgressCounter
from transduce.training.run_files import cache_of
from transduce.training.weights import weights_of


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


logger = logging.getLogger("transduce")

SPLITS: tuple[Split, ...] = ("train", "valid")
SHARE_FOR_HISTORY = 0.75
"""Share of the context for the history; the rest is for the reply."""


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


def chat_template(recipe: DialogueRecipe, tokenizer: Tokenizer) -> ChatTemplate:
    """Template that converts dialogues of a recipe to ids."""
    roles = recipe.data.roles
    all_count = recipe.data.loss_on == "all"
    return ChatTemplate(tokenizer.size, [all_count or role == roles[-1] for role in roles])


def dialogues_of(config: DialogueDataConfig, split: Split) -> Iterator[Dialogue]:
    """Stream the dialogues of a split. Raises DataError if reading fails."""
    read = functools.partial(read_dialogues, roles=config.roles)
    return read_split(config, split, read, _text_of)


def prepare_dialogue(recipe: DialogueRecipe, run: Path) -> LanguageModelTraining:
    """Data, model and loss of a recipe, for training into the directory `run`."""
    check_decoding(recipe.decoding)
    texts = (turn.text for dialogue in dialogues_of(recipe.data, "train") for turn in dialogue)
    tokenizer = tokenizer_for(recipe.text, recipe.fine_tune, run, texts)
    template = chat_template(recipe, tokenizer)
    cache = cache_of(run)
    parts = {}
    for split in SPLITS:
        data = _encoded(recipe, split, template, tokenizer, cache)
        parts[split] = _batches(recipe, template, data)
    warn_of_few(recipe.data, len(data.tokens), "tokens", tokens=True)
    generator = new_dialogue(recipe, tokenizer)
    names = token_names(tokenizer, [f"<{role}>" for role in recipe.data.roles])
    task = LanguageModelTraining(generator, parts["train"], parts["valid"], names)
    task.adapt = fit_marks(generator.model, template)
    return task


def fit_marks(model: DecoderOnly, template: ChatTemplate) -> AdaptWeights:
    """Extend the vocabulary of a language model by role markers, with rows of `model`."""
    weights = weights_of(model)

    def fit(name: str, theirs: Tensor) -> Tensor:
        if len(theirs) != template.size or theirs.shape[1:] != weights[name].shape[1:]:
            return theirs
        return torch.cat([theirs, weights[name][template.size :].to(theirs)])

    return fit


class Reply(Continuation):
    """Reply of the model."""

    def fields(self) -> dict[str, Any]:
        """Fields of a JSON record."""
        fields = super().fields()
        return {"reply": fields.pop("continuation"), **fields}


@dataclass(eq=False, kw_only=True, repr=False)
class TrainedDialogue(Generator):
    """Generator of replies to dialogue histories.

    A history is a text with a turn on each line; the reply follows the last turn.  An empty history
    is answered with how the model begins a conversation.
    """

    inputs = ("history",)
    input_name = "history"

    recipe: DialogueRecipe
    template: ChatTemplate

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

    def answer(self, prepared: Prepared[list[int]], decoded: Sequence[Decoded]) -> Reply:
        """The reply to a history, with its other candidates."""
        reply = super().answer(prepared, decoded)
        return Reply(
            reply.continuation,
            reply.tokens,
            reply.score,
            reply.log_prob,
            reply.others,
            reply.finished,
        )

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

    def evaluate(
        self,
        split: Split,
        examples: Iterable[Example] | None = None,
        options: DecodingOptions | None = None,
    ) -> Evaluation:
        """Loss, perplexity and bits per byte of the trained tokens of a split.

        examples: histories with replies, to measure instead. options: only the recipe's, since
        nothing is decoded.
        """
        check_not_decoding(options, self.options)
        dialogues: list[Dialogue]
        if examples is None:
            dialogues = list(dialogues_of(self.recipe.data, split))
        else:
            answering = self.answering
            dialogues = [
                [*self.turns(history), Turn(answering, answer.strip())]
                for (history,), answer in examples
            ]
        data = self.template.documents(dialogues, self.tokenizer.encode_batch)
        if not len(data):
            raise DataError("no dialogues to evaluate")
        self.model.eval()
        scores = text_scores(self.model, _batches(self.recipe, self.template, data))
        return Evaluation(scores, [" ".join(_text_of(dialogue).split()) for dialogue in dialogues])

    def facts(self) -> dict[str, Any]:
        """Size of the vocabulary, and the roles."""
        return {**super().facts(), "roles": list(self.recipe.data.roles)}

    def conversation(self, options: DecodingOptions | None) -> Conversation:
        """A new conversation with this model."""
        return Conversation(self, options)


def new_dialogue(recipe: DialogueRecipe, tokenizer: Tokenizer) -> TrainedDialogue:
    """A dialogue model as a recipe describes it, with first weights."""
    template, window = chat_template(recipe, tokenizer), recipe.text.block
    model = build_decoder_only(recipe.model, template.rows)
    search = DecoderSearch(model, window, (*FORBIDDEN, *template.marks))
    return TrainedDialogue(
        options=recipe.decoding,
        backend=search,
        model=model,
        tokenizer=tokenizer,
        window=window,
        recipe=recipe,
        template=template,
    )


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


def _text_of(dialogue: Dialogue) -> str:
    return "\n".join(turn.text for turn in dialogue)


def _batches(
    recipe: DialogueRecipe, template: ChatTemplate, data: EncodedDocuments
) -> DialogueBatches:
    return DialogueBatches(
        data, template, recipe.text.block, recipe.training.batch_tokens, recipe.seed
    )


def _encoded(
    recipe: DialogueRecipe, split: Split, template: ChatTemplate, tokenizer: Tokenizer, cache: Path
) -> EncodedDocuments:
    facts = [
        split_fingerprint(recipe.data, split),
        digest_of_tokenizer(tokenizer),
        recipe.data.roles,
        template.learned,
    ]
    name = digest_of(facts)
    dialogues = functools.partial(dialogues_of, recipe.data, split)
    with ProgressCounter(f"encoding {split} dialogues") as count:
        try:
            return cached_documents(
                dialogues,
                template.coding(tokenizer.encode_batch),
                cache / name[:16],
                name,
                count.to,
                recipe.training.threads or available_cores(),
            )
        except NoDocumentsError as error:
            separate = split == "train" or recipe.data.valid is not None
            part = f"data.{split}" if separate else "the held-out part of data.train"
            raise DataError(
                f"{part} has no dialogue with a turn that counts in the loss; change "
                f"data.loss_on = {recipe.data.loss_on!r}, or add dialogues"
            ) from error

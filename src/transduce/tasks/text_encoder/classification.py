"""Classification of a text or of a pair of texts: its data and training."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from transduce.data.batches import Packed, RowBatch, TokenBatches, of_each
from transduce.data.labelled import LabelledText
from transduce.data.sampling import SampledBatches, sampled_widths, tried_items
from transduce.errors import DataError
from transduce.metrics.measure import measure, numeric_scores
from transduce.sequence import Padded
from transduce.support.work import chunks
from transduce.tasks.recipe import Split, remedy_for_nothing_held_out, warn_of_few
from transduce.tasks.text_encoder.predictor import TextClassifier
from transduce.tasks.text_encoder.recipes import ClassificationRecipe, read_examples
from transduce.tasks.text_inputs import Row, encode_counting_cuts, warn_of_cuts, with_special_tokens
from transduce.tasks.training import (
    EncodedTexts,
    SequenceTraining,
    check_unknown,
    label_loss,
    labels_for,
    leave_out_tokens,
    new_head,
    rows_padded,
    tokenizer_for,
)
from transduce.text import BOS, EOS, Tokenizer, token_names
from transduce.text.subword import SegmentationSampler, sampler_for
from transduce.training.film import Scene, encoder_scene, nearest_lengths
from transduce.training.log import ProgressCounter
from transduce.training.loss import LossSums, r_drop_of_scores, twice


class HasRows(Protocol):
    """Batch with the numbers of its items."""

    @property
    def rows(self) -> NDArray[np.integer[Any]]: ...  # noqa: D102


B = TypeVar("B", bound=HasRows)


def sampled_batches(
    plain: TokenBatches[B],
    texts: EncodedTexts,
    sampler: SegmentationSampler | None,
    max_length: int,
    segmented: bool,
    with_tokens: Callable[[B, Padded], B],
) -> TokenBatches[B] | SampledBatches[B]:
    """Batches with sampled segmentations of their texts; unchanged without a sampler.

    max_length: tokens of a row, special tokens included. segmented: the model uses segments.
    with_tokens: replaces the tokens of a batch, (b, t) or (b, t, 2).
    """
    if sampler is None:
        return plain

    def redraw(batch: B, seed: int) -> B:
        rows = [texts.row(i) for i in batch.rows]
        share = plain.batch_tokens // len(rows)
        drawn = resegmented_texts(rows, sampler, max_length, share, seed)
        return with_tokens(batch, rows_padded(drawn, segmented))

    tried = texts.padded(tried_items(len(texts)), segmented=False)
    widths = sampled_widths(texts.lengths, tried, sampler, 2, max_length - 2)
    return SampledBatches(plain.with_widths((widths, widths)), redraw)


def resegmented_texts(
    rows: Sequence[Row], sampler: SegmentationSampler, max_length: int, share: int, seed: int
) -> list[Row]:
    """Resample the segmentation of rows, truncated at `max_length` as in `with_special_tokens`.

    sampler: of segmentations.  seed: of the random numbers.  share: longer rows stay unchanged.
    Equal seeds give equal rows.
    """
    texts = [_texts(row) for row in rows]
    drawn = iter(sampler.draw([ids for parts in texts for ids in parts], seed))
    sampled = []
    for row, parts in zip(rows, texts, strict=True):
        a, b = next(drawn), next(drawn) if len(parts) == 2 else None
        new = with_special_tokens(a, b, max_length, sampler.tokenizer.marks_between)
        sampled.append(new if len(new.ids) <= share else row)
    return sampled


def _texts(row: Row) -> list[list[int]]:
    """The ids of the texts of a row, one or two, without marks."""
    ids = [int(token) for token in row.ids]
    n_first = len(ids) - int(sum(row.segments))
    parts = [ids[:n_first], ids[n_first:]] if n_first < len(ids) else [ids]
    return [[token for token in part if token not in (BOS, EOS)] for part in parts]


CLASSIFICATION_READ_TOGETHER = 4096
"""Examples that are read, and made tokens of, together."""


@dataclass(frozen=True)
class LabelBatch(RowBatch):
    """Some examples as the model reads them.

    tokens: (b, t), or (b, t, 2) with segments.  labels: (b,) numbers of the right labels, negative
    for labels that training never saw.
    """

    tokens: Padded
    labels: Tensor


class EncodedExamples:
    """Examples of a split as token ids and numbers of labels, in memory.

    unseen: labels that are not among those known, which have the numbers -1, -2, ….  of_blanks: the
    labels of blank texts, which are left out.
    """

    def __init__(
        self,
        examples: Iterable[LabelledText],
        tokenizer: Tokenizer,
        labels: Sequence[str],
        max_length: int,
    ) -> None:
        numbers = {label: i for i, label in enumerate(labels)}
        n_known = len(numbers)
        self.texts = EncodedTexts()
        indices: list[int] = []
        n_cut = 0
        self.of_blanks: list[str] = []
        for examples_read in chunks(examples, CLASSIFICATION_READ_TOGETHER):
            chunk = [example for example in examples_read if not example.blank]
            self.of_blanks += (example.label for example in examples_read if example.blank)
            inputs = [example.texts for example in chunk]
            rows, cut = encode_counting_cuts(tokenizer, inputs, max_length)
            n_cut += cut
            self.texts.add(rows)
            for example in chunk:
                number = numbers.setdefault(example.label, len(numbers))
                indices.append(number if number < n_known else n_known - 1 - number)
        warn_of_cuts(n_cut, len(indices), max_length)
        self.labels = np.array(indices, np.int64)
        self.unseen = list(numbers)[n_known:]

    def __len__(self) -> int:
        return len(self.labels)

    def batches(self, segmented: bool, tokens: int, seed: int) -> TokenBatches[LabelBatch]:
        """All examples, in batches of at most `tokens` positions; optionally with segments.

        segmented: with segments.  seed: of the order.
        """

        def assemble(rows: NDArray[np.int64]) -> LabelBatch:
            labels = torch.from_numpy(self.labels[rows])
            return LabelBatch(rows, self.texts.padded(rows, segmented), labels)

        widths = self.texts.lengths
        return TokenBatches((widths, widths), assemble, tokens, seed)


logger = logging.getLogger("transduce")


class ClassificationTraining(SequenceTraining["TextClassifier"]):
    """Examples, model and loss for the training loop."""

    unit = "texts"
    items = "training examples"

    def __init__(
        self,
        classifier: TextClassifier,
        training: EncodedExamples,
        validation: EncodedExamples,
    ) -> None:
        super().__init__(classifier)
        self.recipe = recipe = classifier.recipe
        segmented, tokens = recipe.model.segments, recipe.training.batch_tokens
        train = training.batches(segmented, tokens, recipe.seed)
        sampler = sampler_for("text.sampling", recipe.text.sampling, classifier.tokenizer)
        self.batches = sampled_batches(
            train,
            training.texts,
            sampler,
            recipe.text.max_length,
            segmented,
            lambda batch, tokens: replace(batch, tokens=tokens),
        )
        self._valid = validation.batches(segmented, tokens, recipe.seed)
        self._valid_labels = validation.labels
        self._unseen, self._of_blanks = validation.unseen, validation.of_blanks

    def loss(self, batch: LabelBatch) -> LossSums:
        """Cross-entropy of the right labels."""
        sides, parts = (self._retained(batch),), (batch.labels,)
        return self.packed_loss(Packed(sides, parts, batch.target_tokens).to(self.device))

    def pack(self, batch: LabelBatch) -> Packed:
        """The texts in one row of one shape."""
        (row,) = self.shape.pack(self._retained(batch))
        return Packed((row,), (of_each(row, batch.labels),), batch.target_tokens)

    def packed_loss(self, packed: Packed) -> LossSums:
        """As `loss`, of a packed batch."""
        (tokens,), (labels,), config = packed.sides, packed.parts, self.recipe.training
        if config.r_drop:
            scores = self.model(twice(tokens))
            return r_drop_of_scores(scores, labels, config.r_drop, config.label_smoothing)
        return label_loss(self.model(tokens), labels, config.label_smoothing)

    def _retained(self, batch: LabelBatch) -> Padded:
        share = self.recipe.text.token_dropout
        return leave_out_tokens(batch.tokens, share) if share else batch.tokens

    def validate(self) -> dict[str, float]:
        """Loss in nats per example on the validation examples, and the recipe's metrics.

        Labels missing from the training data and blank texts count as wrong, not for the loss.
        """
        nll, count = 0.0, 0
        names = (*self.predictor.labels, *reversed(self._unseen))  # those are at -1, -2, …
        answers = [""] * len(self._of_blanks)
        right = [[label] for label in self._of_blanks]
        with torch.inference_mode():
            for batch in self._valid.in_order():
                scores = self.model(batch.tokens.to(self.device)).float().cpu()
                known = batch.labels >= 0
                nll += F.cross_entropy(scores[known], batch.labels[known], reduction="sum").item()
                count += int(known.sum())
                answers += (names[i] for i in scores.argmax(1).tolist())
                right += ([names[i]] for i in batch.labels.tolist())
        measured = measure(self.recipe.evaluation.metrics, answers, right)
        return {"loss": nll / count, **numeric_scores(measured)}

    def scenes(self) -> list[Scene]:
        """Validation texts for the film of learning."""
        rows = (self._valid.assemble(np.array([i])) for i in nearest_lengths(self._valid.widths[0]))
        names = token_names(self.predictor.tokenizer)
        return [encoder_scene(self.model, row.tokens, names) for row in rows]

    def behind(self, score: str) -> Sequence[Any]:
        """Labels of the validation texts."""
        return ([self._valid_labels.tolist(), self._unseen, len(self._of_blanks)],)


def prepare_classification(recipe: ClassificationRecipe, run: Path) -> ClassificationTraining:
    """Data, model and loss of a recipe, for training into the directory `run`."""
    train_labels = (example.label for example in read_examples(recipe.data, "train"))
    labels = labels_for(run, train_labels, fine_tune=recipe.fine_tune)
    texts = (text for example in read_examples(recipe.data, "train") for text in example.texts)
    tokenizer = tokenizer_for(recipe.text, recipe.fine_tune, run, texts)
    training = _encoded(recipe, "train", tokenizer, labels)
    validation = _encoded(recipe, "valid", tokenizer, labels)
    warn_of_few(recipe.data, len(validation), "texts")
    classifier = TextClassifier(recipe, tokenizer, labels)
    task = ClassificationTraining(classifier, training, validation)
    task.reinit = new_head(labels, recipe.fine_tune)
    return task


def _encoded(
    recipe: ClassificationRecipe, split: Split, tokenizer: Tokenizer, labels: Sequence[str]
) -> EncodedExamples:
    with ProgressCounter(f"encoding {split} texts") as count:
        examples = count.each(read_examples(recipe.data, split))
        data = EncodedExamples(examples, tokenizer, labels, recipe.text.max_length)
    if not len(data):
        keys = (example.texts[0] for example in read_examples(recipe.data, "train"))
        remedy = remedy_for_nothing_held_out(recipe.data, split, keys)
        raise DataError(f"there are no {split} texts{remedy}")
    check_unknown(int((data.labels < 0).sum()), len(data), split, "text", labels)
    if data.of_blanks:
        what = "are skipped" if split == "train" else "count as wrong"
        logger.warning("%d %s texts are blank; they %s", len(data.of_blanks), split, what)
    logger.info("%s: %d texts, %d tokens", split, len(data), data.texts.lengths.sum())
    return data

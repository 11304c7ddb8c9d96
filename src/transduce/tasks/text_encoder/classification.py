"""Classification of a text or of a pair of texts."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from transduce.data.one_shape import Packed, of_each
from transduce.errors import DataError
from transduce.metrics.measure import measure, numeric_scores
from transduce.sequence import Padded
from transduce.tasks.label_training import check_unknown, label_loss, labels_for, new_head
from transduce.tasks.recipe import Split
from transduce.tasks.sequence_training import SequenceTraining
from transduce.tasks.splits import remedy_for_nothing_held_out
from transduce.tasks.text_batches import leave_out_tokens, tokenizer_for
from transduce.tasks.text_encoder.classification_data import EncodedExamples, LabelBatch
from transduce.tasks.text_encoder.classifier import TextClassifier
from transduce.tasks.text_encoder.recipes import ClassificationRecipe, read_examples
from transduce.tasks.text_encoder.sampled_texts import sampled_batches
from transduce.tasks.validation import warn_of_few
from transduce.text import Tokenizer, token_names
from transduce.text.sampling import sampler_for
from transduce.training.display import ProgressCounter
from transduce.training.film import Scene
from transduce.training.film_scenes import encoder_scene, nearest
from transduce.training.loss import LossSums
from transduce.training.r_drop import r_drop_of_scores, twice

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
        rows = (self._valid.assemble(np.array([i])) for i in nearest(self._valid.widths[0]))
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

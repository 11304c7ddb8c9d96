"""Classifier of texts in use.  Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from transduce.engine.pair_shape import EncoderHead
from transduce.errors import printable_name
from transduce.tasks.labels import LabelPrediction
from transduce.tasks.predictors import EvaluationSet, Inputs, MeasuredPredictor
from transduce.tasks.recipe import Split
from transduce.tasks.text_encoder.native import NativeRun
from transduce.tasks.text_encoder.predictor import EncoderPredictor
from transduce.tasks.text_encoder.recipes import ClassificationRecipe, read_examples
from transduce.tasks.text_inputs import vocabulary_rows
from transduce.text import Tokenizer

if TYPE_CHECKING:
    from transduce.models.encoder_only import EncoderOnly


class TextClassifier(EncoderPredictor[LabelPrediction], MeasuredPredictor):
    """A trained model with its tokenizer and labels: texts in, labels out."""

    prediction = LabelPrediction
    items = "examples"
    recipe: ClassificationRecipe

    def __init__(
        self,
        recipe: ClassificationRecipe,
        tokenizer: Tokenizer,
        labels: tuple[str, ...],
        natively: NativeRun | None = None,
    ) -> None:
        self.labels = labels
        self.inputs = recipe.data.inputs
        super().__init__(recipe, tokenizer, natively)

    @property
    def head(self) -> EncoderHead:
        """The head in the engine."""
        config = self.config
        dense = config.pooler_activation if config.pooler else "none"
        return EncoderHead(config.pooling, dense, len(self.labels))

    def build(self) -> EncoderOnly:
        """The model in PyTorch."""
        from transduce.models.encoder_only import build_text_encoder
        from transduce.nn.heads.label import LabelHead

        config = self.config
        head = LabelHead(
            config.d_model,
            len(self.labels),
            config.pooling,
            config.pooler,
            self.recipe.head.dropout,
            config.pooler_activation,
        )
        return build_text_encoder(config, vocabulary_rows(self.tokenizer), head)

    def answers(self, inputs: Inputs, numbers: Sequence[int]) -> Iterator[LabelPrediction]:
        """Labels of inputs that are not blank."""
        outputs = self.outputs(self.rows(inputs, numbers))
        return (LabelPrediction.of(self.labels, scores) for scores in outputs)

    @property
    def metrics(self) -> Sequence[str]:
        """Metrics of the recipe."""
        return self.recipe.evaluation.metrics

    def held_out(self, split: Split) -> EvaluationSet:
        """The labelled texts of a split."""
        return self.examples(read_examples(self.recipe.data, split))

    def reference(self, answer: str) -> str:
        """The name of a label."""
        return printable_name(answer)

    def facts(self) -> dict[str, Any]:
        """The labels, and the size of the vocabulary."""
        return {"labels": list(self.labels), "vocabulary": self.tokenizer.size}

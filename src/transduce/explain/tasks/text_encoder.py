"""Explanations of labels, masked tokens, spans and embeddings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from transduce.explain.explanation import Explanation
from transduce.explain.parts import Feature, Hidden, Span
from transduce.explain.recorded_output import layer_guesses
from transduce.explain.recorded_pass import (
    Pass,
    encoder_pass,
    fitting,
    guesses_of,
    label_guesses,
    label_layers,
)
from transduce.models.encoder_only import EncoderOnly
from transduce.nn.convolution import TextCnnEncoder
from transduce.nn.heads.label import LabelHead
from transduce.sequence import Padded
from transduce.tasks.text_batches import rows_padded
from transduce.tasks.text_encoder.answerer import Answerer
from transduce.tasks.text_encoder.classifier import TextClassifier
from transduce.tasks.text_encoder.embedding import TextEmbedder
from transduce.tasks.text_encoder.mask_filler import MaskFiller
from transduce.tasks.text_inputs import Row, encode_counting_cuts, mask_id, with_special_tokens
from transduce.text import BOS, EOS, Tokenizer, token_names

MAX_HIDDEN = 64
"""Tokens that are hidden in turn."""
MAX_FEATURES = 16
HIDDEN_GUESSES = 5


def explain_classification(classifier: TextClassifier, parts: tuple[str, ...]) -> Explanation:
    """A text, its label, and the label without each of its tokens."""
    prediction = classifier.predict([parts])[0]
    inputs = dict(zip(classifier.inputs, parts, strict=True))
    bare = Explanation("classification", "", inputs, prediction.text)
    if not any(part.strip() for part in parts):
        return bare
    model = classifier.model
    row, batch = _row(classifier, parts)
    recorded, bare = _read(bare, model, batch, classifier.tokenizer, row.ids)
    assert isinstance(model.head, LabelHead)
    scores = label_layers(recorded, model.head, classifier.labels)
    labels = label_guesses(recorded.output[0].float().softmax(-1).cpu(), classifier.labels)
    hidden = _left_out(model, row, classifier)
    features = _features(recorded, model, batch)
    return replace(bare, labels=labels, layers=scores, hidden=hidden, features=features)


def explain_masked_language_model(filler: MaskFiller, parts: tuple[str, ...]) -> Explanation:
    """A text with its masks filled in, and the guesses where each token is hidden."""
    filled = filler.predict([parts])[0]
    bare = Explanation("masked-language-model", "", {"text": parts[0]}, filled.text)
    if not parts[0].strip():
        return bare
    model, tokenizer = filler.model, filler.tokenizer
    row = with_special_tokens(filler.ids(parts[0]), None, filler.recipe.text.max_length)
    ids = fitting(row.ids, "text")
    segmented = filler.recipe.model.segments
    batch = rows_padded([Row(ids, [0] * len(ids))], segmented).to(filler.device)
    recorded, bare = _read(bare, model, batch, tokenizer, ids)
    names = token_names(tokenizer, ["<mask>"])
    lens = layer_guesses(recorded.lens("encoder", model.head), names)
    places = [i for i, token in enumerate(ids) if token not in (BOS, EOS)][:MAX_HIDDEN]
    rows = []
    for position in places:
        changed = [*ids[:position], mask_id(tokenizer), *ids[position + 1 :]]
        rows.append(Row(changed, [0] * len(ids)))
    hidden = []
    if rows:
        with torch.inference_mode():
            encoded = model.encode(rows_padded(rows, segmented).to(filler.device)).values
            at = encoded[torch.arange(len(places)), torch.tensor(places)]
            probabilities = model.head(at).float().softmax(-1).cpu()
        for position, distribution in zip(places, probabilities, strict=True):
            guesses = guesses_of(distribution, names, HIDDEN_GUESSES)
            original = (names([ids[position]])[0], float(distribution[ids[position]]))
            if original[0] not in [name for name, _ in guesses] and ids[position] != mask_id(
                tokenizer
            ):
                guesses = (*guesses, original)
            hidden.append(Hidden(position, guesses))
    return replace(bare, layers=lens, layers_of="text", hidden=tuple(hidden))


def explain_question_answering(answerer: Answerer, parts: tuple[str, ...]) -> Explanation:
    """A question and its passage: start and end of the answer in the window that holds it."""
    prediction = answerer.predict([parts])[0]
    inputs = dict(zip(answerer.inputs, parts, strict=True))
    bare = Explanation("question-answering", "", inputs, prediction.text)
    (reading,) = answerer.read([parts])
    if not reading.windows:
        return bare
    tokens = None
    if prediction.start is not None and prediction.end is not None:
        tokens = reading.tokens_of(prediction.start, prediction.end)
    window = reading.windows[0]
    if tokens is not None:
        holding = (w for w in reading.windows if w.begin <= tokens[0] and tokens[1] < w.end)
        window = next(holding, window)
    batch = rows_padded([window.row], answerer.config.segments).to(answerer.device)
    recorded, bare = _read(bare, answerer.model, batch, answerer.tokenizer, window.row.ids)
    start, end = recorded.output[0].float().softmax(0).cpu().unbind(1)
    answer = None
    if tokens is not None:
        shift = window.first - window.begin
        answer = (tokens[0] + shift, tokens[1] + shift)
    return replace(bare, span=Span(tuple(start.tolist()), tuple(end.tolist()), answer))


def explain_embedding(embedder: TextEmbedder, parts: tuple[str, ...]) -> Explanation:
    """A text and its vector."""
    prediction = embedder.predict([parts])[0]
    bare = Explanation("embedding", "", {"text": parts[0]}, prediction.text)
    if not parts[0].strip():
        return bare
    row, batch = _row(embedder, parts)
    _, bare = _read(bare, embedder.model, batch, embedder.tokenizer, row.ids)
    return replace(bare, vectors={"embedding": np.array(prediction.embedding, np.float32)})


def _row(predictor: TextClassifier | TextEmbedder, parts: tuple[str, ...]) -> tuple[Row, Padded]:
    """An input as the model reads it, and a batch of it alone."""
    max_length = predictor.recipe.text.max_length
    ((row,), _) = encode_counting_cuts(predictor.tokenizer, [parts], max_length)
    row = Row(fitting(row.ids, "text"), fitting(row.segments, "text"))
    return row, rows_padded([row], predictor.recipe.model.segments).to(predictor.device)


def _read(
    bare: Explanation, model: nn.Module, batch: Padded, tokenizer: Tokenizer, ids: Any
) -> tuple[Pass, Explanation]:
    """A pass over a row of text, and the explanation with all that every encoder has."""
    tokens = token_names(tokenizer, ["<mask>"])([int(i) for i in ids])
    return encoder_pass(bare, model, batch, "text", tokens)


@torch.inference_mode()
def _left_out(model: EncoderOnly, row: Row, classifier: TextClassifier) -> tuple[Hidden, ...]:
    places = [i for i, token in enumerate(row.ids) if token not in (BOS, EOS)][:MAX_HIDDEN]
    if len(places) < 2:
        return ()
    rows = [
        Row([*row.ids[:i], *row.ids[i + 1 :]], [*row.segments[:i], *row.segments[i + 1 :]])
        for i in places
    ]
    batch = rows_padded(rows, classifier.recipe.model.segments).to(classifier.device)
    probabilities = model(batch).float().softmax(-1).cpu()
    return tuple(
        Hidden(position, label_guesses(scores, classifier.labels))
        for position, scores in zip(places, probabilities, strict=True)
    )


@torch.inference_mode()
def _features(recorded: Pass, model: EncoderOnly, batch: Padded) -> tuple[Feature, ...]:
    """The windows of the pooled features with the largest part in the predicted label."""
    encoder, head = model.encoder, model.head
    if not isinstance(encoder, TextCnnEncoder) or not isinstance(head, LabelHead):
        return ()
    if head.pooling != "max" or head.hidden is not None:
        return ()
    values, places = model.encode(batch).values[0].float().max(0)
    t = batch.real.shape[1]
    widths = [w.kernel_size[0] for w in encoder.windows for _ in range(w.out_channels)]  # type: ignore[index, arg-type]
    weights = head.output.weight[int(recorded.output[0].argmax())].float()
    order = (values * weights).abs().argsort(descending=True)[:MAX_FEATURES].tolist()
    features = []
    for i in order:
        begin = int(places[i]) - widths[i] // 2
        window = max(begin, 0), min(begin + widths[i], t)
        features.append(Feature(*window, float(values[i]), float(weights[i])))
    return tuple(features)

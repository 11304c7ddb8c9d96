"""Explanations of labels, embeddings and captions of images."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from transduce.explain.explanation import Explanation
from transduce.explain.recorded_output import OutputPass
from transduce.explain.recorded_pass import (
    Pass,
    encoder_pass,
    label_guesses,
    label_layers,
    token_names,
)
from transduce.explain.search_watch import SearchWatch
from transduce.nn.heads.label import LabelHead
from transduce.tasks.vision.captioning import Captioner
from transduce.tasks.vision.image_classification import ImageClassifier
from transduce.tasks.vision.image_embedding import ImageEmbedder
from transduce.tasks.vision.pictures import one_image, picture_of


def explain_captioning(captioner: Captioner, parts: tuple[str, ...]) -> Explanation:
    """An image, its caption, and all between."""
    caption = captioner.predict([parts])[0]
    bare = Explanation("captioning", "", {"image": parts[0]}, caption.text)
    if not parts[0].strip():
        return bare
    image, options = captioner.recipe.image, captioner.options
    batch = one_image(parts[0], image).to(captioner.device)
    names = token_names(captioner.tokenizer)
    pieces = list(captioner.pieces(batch[0], options, 0, 0))
    request = captioner.backend.step_search("an explanation").request(pieces, options)
    watch = SearchWatch(request, names)
    tree = watch.tree()
    picture, cells = picture_of(batch, image, captioner.model.front_end)
    pair = OutputPass(captioner.model, batch, ("image", cells), watch.best, names)
    return pair.explain(replace(bare, search=tree, picture=picture))


def explain_image_classification(
    classifier: ImageClassifier, parts: tuple[str, ...]
) -> Explanation:
    """An image, its label, and the attention over its patches."""
    prediction = classifier.predict([parts])[0]
    bare = Explanation("image-classification", "", {"image": parts[0]}, prediction.text)
    if not parts[0].strip():
        return bare
    images = one_image(parts[0], classifier.recipe.image).to(classifier.device)
    recorded, bare = _look(bare, classifier.model, images, classifier.recipe.image)
    head = classifier.model.head
    assert isinstance(head, LabelHead)
    labels = label_guesses(recorded.output[0].float().softmax(-1).cpu(), classifier.labels)
    return replace(bare, labels=labels, layers=label_layers(recorded, head, classifier.labels))


def explain_image_embedding(embedder: ImageEmbedder, parts: tuple[str, ...]) -> Explanation:
    """An image and its vector."""
    embedding = embedder.predict([parts])[0]
    bare = Explanation("image-embedding", "", {"image": parts[0]}, embedding.text)
    if not parts[0].strip():
        return bare
    images = one_image(parts[0], embedder.recipe.image).to(embedder.device)
    _, bare = _look(bare, embedder.model, images, embedder.recipe.image)
    return replace(bare, vectors={"embedding": np.array(embedding.embedding, np.float32)})


def _look(bare: Explanation, model: Any, images: Tensor, config: Any) -> tuple[Pass, Explanation]:
    picture, cells = picture_of(images, config, model.front_end)
    return encoder_pass(replace(bare, picture=picture), model, images, "image", cells)

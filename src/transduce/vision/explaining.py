"""Explanations of labels, embeddings and captions of images."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transduce.errors import SettingError
from transduce.explain.explanation import Explanation
from transduce.explain.live import LiveModel
from transduce.explain.parts import Picture
from transduce.explain.recorded_pass import (
    OutputPass,
    Pass,
    SearchWatch,
    encoder_pass,
    label_guesses,
    label_layers,
)
from transduce.explain.report import png_of
from transduce.explain.tasks import live_encoder
from transduce.nn.heads.label import LabelHead
from transduce.text import token_names
from transduce.vision.captioning import Captioner
from transduce.vision.classification import ImageClassifier, ImageEmbedder
from transduce.vision.images import ImageConfig
from transduce.vision.splits import named_images
from transduce.vision.vit import PatchFrontEnd

SHOWN_SIDE = 256
"""Pixels of the side of a picture in a page, at most; larger images are shown smaller."""
LIVE_SIDE = 256
"""Pixels of the side of images that a live page computes with, at most."""


def live_image_encoder(predictor: ImageClassifier | ImageEmbedder, name: str) -> LiveModel:
    """The model of a classifier or an embedder of images.  name: of its run.

    Raises SettingError, with the setting, for a model that the page cannot compute.
    """
    recipe = predictor.recipe
    config, image = recipe.model, recipe.image
    if image.size > LIVE_SIDE:
        raise SettingError(
            f"a live page has images of at most {LIVE_SIDE} pixels, and image.size is "
            f"{image.size}; leave out --live"
        )
    return live_encoder(
        predictor, name, (), image=image.of_each_channel(), patch_size=config.patch_size
    )


def explain_captioning(captioner: Captioner, parts: tuple[str, ...], first: int = 0) -> Explanation:
    """An image, its caption, and all between."""
    caption = captioner.predict([parts], first=first)[0]
    bare = Explanation("captioning", "", {"image": parts[0]}, caption.text)
    if not parts[0].strip():
        return bare
    image, options = captioner.recipe.image, captioner.options
    batch = _one_image(parts[0], image).to(captioner.device)
    names = token_names(captioner.tokenizer)
    pieces = list(captioner.pieces(batch[0], options, 0, first))
    request = captioner.backend.step_search("an explanation").request(pieces, options)
    watch = SearchWatch(request, names)
    tree = watch.tree()
    picture, cells = _picture_of(batch, image, captioner.model.front_end)
    pair = OutputPass(captioner.model, batch, ("image", cells), watch.best, names)
    return pair.explain(replace(bare, search=tree, picture=picture))


def explain_image_classification(
    classifier: ImageClassifier, parts: tuple[str, ...], first: int = 0
) -> Explanation:
    """An image, its label, and the attention over its patches."""
    prediction = classifier.predict([parts], first=first)[0]
    bare = Explanation("image-classification", "", {"image": parts[0]}, prediction.text)
    if not parts[0].strip():
        return bare
    recorded, bare = _look(bare, classifier, parts[0])
    head = classifier.model.head
    assert isinstance(head, LabelHead)
    labels = label_guesses(recorded.output[0].float().softmax(-1).cpu(), classifier.labels)
    return replace(
        bare,
        labels=labels,
        layers=label_layers(recorded, head, classifier.labels),
        credit=recorded.credit_of_label(classifier.labels),
    )


def explain_image_embedding(
    embedder: ImageEmbedder, parts: tuple[str, ...], first: int = 0
) -> Explanation:
    """An image and its vector."""
    embedding = embedder.predict([parts], first=first)[0]
    bare = Explanation("image-embedding", "", {"image": parts[0]}, embedding.text)
    if not parts[0].strip():
        return bare
    _, bare = _look(bare, embedder, parts[0])
    return replace(bare, vectors={"embedding": np.array(embedding.embedding, np.float32)})


def _look(
    bare: Explanation, predictor: ImageClassifier | ImageEmbedder, path: str
) -> tuple[Pass, Explanation]:
    model, images = predictor.model, _one_image(path, predictor.recipe.image).to(predictor.device)
    picture, cells = _picture_of(images, predictor.recipe.image, model.front_end)
    return encoder_pass(replace(bare, picture=picture), model, images, "image", cells)


def _one_image(path: str, image: ImageConfig) -> Tensor:
    """The normalised image (1, c, h, w) of a path.  Raises InputError for a file that is none."""
    (images,) = named_images([(path,)], image, [0], 1)
    return images


def _picture_of(images: Tensor, image: ImageConfig, front_end: Any) -> tuple[Picture, list[str]]:
    """A normalised image (1, c, h, w) as a picture, and a name for each position of the encoder."""
    assert isinstance(front_end, PatchFrontEnd)
    rows, columns = front_end.grid
    token = front_end.class_token is not None
    cells = [f"r{i + 1}c{j + 1}" for i in range(rows) for j in range(columns)]
    mean = torch.tensor(image.mean)[:, None, None]
    std = torch.tensor(image.std)[:, None, None]
    pixels = images[0].float().cpu() * std + mean
    stride = -(-pixels.shape[-1] // SHOWN_SIDE)
    shown = (pixels[:, ::stride, ::stride] * 255).round().clamp(0, 255).to(torch.uint8)
    picture = Picture(png_of(shown), (rows, columns), int(token))
    return picture, [*(["[class]"] if token else []), *cells]

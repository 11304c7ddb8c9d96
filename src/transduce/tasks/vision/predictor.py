"""Base of predictors with an encoder of images, its layers in PyTorch or in the engine."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from transduce.engine.encoder import EngineEncoder
from transduce.engine.model import plain_weight
from transduce.engine.pair_shape import layers_shape
from transduce.nn.kernels.precision import Precision
from transduce.sequence import Padded
from transduce.tasks.predictors import A, OnePassPredictor

PREDICTED_TOGETHER = 64
"""Images in a batch."""


class ImagePredictor(OnePassPredictor[A]):
    """A trained encoder of images: paths in.  The model has `front_end`, `encoder`, `head`."""

    inputs = ("image",)
    recipe: Any
    model: Any
    encoder: EngineEncoder | None = None

    def natively(self, precision: Precision) -> Self:
        """This predictor, its layers in the engine.  Raises as `EngineWeights` does."""
        shape = layers_shape(self.recipe.model.encoder, self.recipe.model.d_model, precision)
        shape.encoder.max_positions = self.model.front_end.n_positions
        layers = self.model.encoder.state_dict(prefix="encoder.")
        weights = {name: plain_weight(weight) for name, weight in layers.items()}
        self.encoder = EngineEncoder(shape, weights, torch.get_num_threads)
        return self

    @torch.inference_mode()
    def outputs(self, images: Tensor) -> Tensor:
        """Outputs for normalised images (b, c, h, w), on the CPU; the engine's of each alone."""
        model = self.model.eval()
        if self.encoder is None:
            return model(images.to(self.device)).float().cpu()  # type: ignore[no-any-return]
        vectors = torch.cat([model.front_end(image).values for image in images.unsqueeze(1)])
        layers = torch.from_numpy(self.encoder.layers(vectors.numpy()))
        return torch.cat([model.head(Padded.unpadded(rows)) for rows in layers.unsqueeze(1)])

"""Base of predictors with an encoder of images, its layers in PyTorch or in the engine."""

from __future__ import annotations

import dataclasses
from typing import Any, Self, TypeVar

import torch
from torch import Tensor

from transduce.engine.encoder import EngineEncoder
from transduce.engine.model import plain_weight
from transduce.engine.pair_shape import layers_shape
from transduce.nn.kernels.precision import Precision
from transduce.sequence import Padded
from transduce.tasks.predictors import OnePassPredictor

A = TypeVar("A")


class ImagePredictor(OnePassPredictor[A]):
    """A trained encoder of images: paths in.  The model has `front_end`, `encoder`, `head`."""

    inputs = ("image",)
    recipe: Any
    model: Any
    encoder: EngineEncoder | None = None

    def natively(self, precision: Precision) -> Self:
        """This predictor, its layers in the engine.  Raises SettingError if the engine cannot be
        compiled, RunError for damaged weights."""
        config, positions = self.recipe.model, self.model.front_end.n_positions
        stack = dataclasses.replace(config.encoder, max_positions=positions)
        layers = self.model.encoder.state_dict()
        self.encoder = EngineEncoder(
            layers_shape(stack, config.d_model, precision),
            {f"encoder.{name}": plain_weight(weight) for name, weight in layers.items()},
            torch.get_num_threads,
        )
        return self

    @torch.inference_mode()
    def outputs(self, images: Tensor) -> Tensor:
        """The model's outputs for normalised images (b, c, h, w), on the CPU.  In the engine they
        do not depend on the batch, to the bit."""
        model = self.model.eval()
        if self.encoder is None:
            outputs: Tensor = model(images.to(self.device))
            return outputs.float().cpu()
        vectors = torch.cat([model.front_end(image).values for image in images.unsqueeze(1)])
        layers = torch.from_numpy(self.encoder.layers(vectors.numpy()))
        return torch.cat([model.head(Padded.unpadded(rows)) for rows in layers.unsqueeze(1)])

"""ViT, with or without labels: patches by a convolution of equal kernel and stride."""

from __future__ import annotations

from pathlib import Path

from transduce.interop.layers import ACTIVATIONS, Copier, layer_parts, share
from transduce.interop.pixels import read_pixels
from transduce.interop.read import Config, ImportedModel, open_checkpoint
from transduce.models.vision import VisionConfig
from transduce.nn.transformer_config import TransformerConfig
from transduce.settings.sections import to_dict

_TASKS = {
    "ViTForImageClassification": "image-classification",
    "ViTModel": "image-embedding",
    "ViTForMaskedImageModeling": "image-embedding",
}
_PROJECTIONS = ("attention.query", "attention.key", "attention.value")
_LAYER = layer_parts(
    "attention.attention.query attention.attention.key attention.attention.value "
    "attention.output.dense layernorm_before",
    "intermediate.dense output.dense layernorm_after",
)


def import_vit(directory: Path, config: Config) -> ImportedModel:
    """Import a directory with `model_type` vit."""
    architecture = config.known_architecture(*_TASKS)
    task = _TASKS[architecture]
    checkpoint = open_checkpoint(directory)
    checkpoint.rename(r"^vit\.", "")
    copier = Copier(checkpoint, () if config.flag("qkv_bias", True) else _PROJECTIONS)
    m, d_ff = config.integer("hidden_size", 768), config.integer("intermediate_size", 3072)
    n_layers = config.integer("num_hidden_layers", 12)
    size, patch = config.integer("image_size", 224), config.integer("patch_size", 16)
    channels = config.integer("num_channels", 3)
    n_positions = (size // patch) ** 2 + 1

    projection = "embeddings.patch_embeddings.projection"
    kernel = checkpoint.take(f"{projection}.weight", m, channels, patch, patch)
    copier.weights["front_end.projection.weight"] = kernel.flatten(1)
    copier.weights["front_end.projection.bias"] = checkpoint.take(f"{projection}.bias", m)
    copier.weights["front_end.class_token"] = checkpoint.take("embeddings.cls_token", 1, 1, m)[0, 0]
    positions = checkpoint.take("embeddings.position_embeddings", 1, n_positions, m)
    copier.weights["encoder.positions.table.weight"] = positions[0]
    for i in range(n_layers):
        copier.layer(f"encoder.layers.{i}", f"encoder.layer.{i}.", _LAYER, m, d_ff)
    copier.norm("encoder.norm", "layernorm", m)
    labels = None
    if architecture == "ViTForImageClassification":
        labels = config.labels()
        copier.linear("head.output", "classifier", m, len(labels))
    left_out = checkpoint.finish(
        needless=(r"pooler\..*", r"embeddings\.mask_token", r"decoder\..*")
    )
    encoder = TransformerConfig(
        n_layers=n_layers,
        n_heads=config.integer("num_attention_heads", 12),
        d_ff=d_ff,
        activation=config.one_of("hidden_act", ACTIVATIONS, "gelu"),
        norm_order="pre",
        positions="learned",
        max_positions=n_positions,
        dropout=share(config, "hidden_dropout_prob", 0.0),
        attention_dropout=share(config, "attention_probs_dropout_prob", 0.0),
        norm_epsilon=config.number("layer_norm_eps", 1e-12),
    )
    model = VisionConfig(d_model=m, patch_size=patch, class_token=True, encoder=encoder)
    recipe = {
        "task": task,
        "data": {},
        "image": {"size": size, "channels": channels, **read_pixels(directory, size)},
        "model": to_dict(model),
    }
    return ImportedModel(recipe, copier.weights, labels=labels, left_out=left_out)

"""Vision: images, their models, classification, embedding, captioning."""

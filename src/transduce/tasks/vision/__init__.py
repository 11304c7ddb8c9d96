"""Tasks on images: classification, captioning, embedding."""

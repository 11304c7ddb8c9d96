"""Encoder-only tasks on text: masked language model, classification, question answering."""

"""Kernels: linear layers and attention in reduced precision, and weight layouts for inference."""

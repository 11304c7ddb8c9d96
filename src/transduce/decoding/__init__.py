"""From a model's steps to hypotheses: beam search, greedy search and sampling in one loop.

Imports nothing, so that the command line reads `options` without torch.
"""

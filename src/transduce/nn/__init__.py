"""Layers, stacks, front ends and heads."""

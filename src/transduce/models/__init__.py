"""Whole models, wired from front ends, stacks and heads."""

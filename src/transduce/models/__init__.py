"""Models: front ends, stacks and heads, wired together."""

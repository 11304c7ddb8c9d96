"""From files of pairs to batches: read, filter, encode once, batch by length, prefetch."""

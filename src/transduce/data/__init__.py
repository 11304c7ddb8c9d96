"""Turn files of pairs into batches: read, filter, encode once, batch by length, prefetch."""

"""Serving of runs over HTTP: dialects of well-known clients over a `Service`.

No import of torch here, except in the worker threads that load the runs.
"""

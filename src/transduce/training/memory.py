"""Freed memory: kept for the next step, or given back to the system."""

from __future__ import annotations

import ctypes
import gc
import os
import sys

import torch

# Parameter numbers of <malloc.h>, and the environment variables of the same.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_VARIABLES = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"}
_LARGEST_BLOCK = 1 << 30
_NEVER = -1


def keep_freed_memory() -> None:
    """Have the C library keep freed blocks of up to a GiB, as PyTorch does on a GPU: the next step
    would wait for their pages, for 4 to 9 % of its time (docs/performance.md). Settings of the
    environment take precedence; without glibc nothing happens."""
    if not _VARIABLES & os.environ.keys() and (library := _glibc()):
        library.mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK)
        library.mallopt(_TRIM_THRESHOLD, _NEVER)


def give_back_freed_memory() -> None:
    """Return unused memory to the system, from a GPU too; from a CPU only with glibc."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if library := _glibc():
        library.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None

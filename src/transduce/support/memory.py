"""Memory of the process, given back to the system."""

import ctypes
import gc
import sys


def glibc() -> ctypes.CDLL | None:
    """The C library if it is glibc, or None."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None


def release_memory() -> None:
    """Collect garbage, and return freed blocks to the system; these only with glibc."""
    gc.collect()
    if library := glibc():
        library.malloc_trim(0)

"""What a training step frees is there for the next one, and at the end for others."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.tiny_run import reversal_pairs, train_tiny, write_tsv
from transduce.training.trainer import give_back_freed_memory

# Frees a block as large as the logits of a batch, takes one again, and says how many pages of it
# the system had to give.
COUNT = """
import ctypes, resource
from transduce.training.trainer import keep_freed_memory

keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]


def use():
    block = libc.malloc(64 << 20)
    ctypes.memset(block, 1, 64 << 20)
    libc.free(block)


use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def resident() -> int:
    """Bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def pages_given(**environment: str) -> int:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run(
        [sys.executable, "-c", COUNT], env=kept | environment, capture_output=True, check=True
    )
    return int(done.stdout)


@pytest.mark.system
@pytest.mark.skipif(sys.platform != "linux", reason="glibc is asked")
def test_freed_blocks_are_kept_unless_the_environment_says_otherwise() -> None:
    assert pages_given() < 100
    assert pages_given(MALLOC_TRIM_THRESHOLD_="131072") > 10_000  # 64 MiB in pages of 4 KiB


@pytest.mark.system
@pytest.mark.skipif(sys.platform != "linux", reason="glibc is asked")
def test_training_leaves_nothing_to_be_given_back(tmp_path: Path) -> None:
    data = write_tsv(tmp_path / "pairs.tsv", reversal_pairs(400))
    wide = ("training.batch_tokens=4096", "model.decoder.d_ff=2048")
    train_tiny(data, tmp_path / "run", *wide)
    before = resident()
    give_back_freed_memory()
    assert before - resident() < 16 * 2**20


def test_collections_of_the_tests_leave_out_what_was_imported() -> None:
    assert gc.get_freeze_count() > 100_000

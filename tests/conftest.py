"""Settings common to all tests."""

import signal

import pytest
import torch

# What is started in the background of a shell ignores Ctrl-C, and so would the commands under test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

torch.set_num_threads(1)  # tiny tensors: more threads only get in each other's way


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)

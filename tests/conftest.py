"""Settings common to all tests."""

import pytest
import torch

torch.set_num_threads(1)  # tiny tensors: more threads only get in each other's way


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)

"""Settings common to all tests."""

import gc
import logging
import signal
import sys
from collections.abc import Generator, Iterator

import pytest
import torch
from hypothesis import HealthCheck, settings

# What is started in the background of a shell ignores Ctrl-C, and so would the commands under test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No example is timed: a busy machine is no error.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

torch.set_num_threads(1)  # tiny tensors: more threads only get in each other's way


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what is imported by now out of garbage collection.

    One collection of PyTorch's objects and of all tests takes half a second, and each training
    collects several times.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object],
) -> Generator[None, object, object]:
    """What several tests share is drawn from the same numbers, whichever of them comes first."""
    if fixturedef.scope != "function":
        torch.manual_seed(0)
    return (yield)


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """What the command line does to the logger is not left to the next test."""
    logger = logging.getLogger("transduce")
    before = list(logger.handlers), logger.level, logger.propagate
    yield
    logger.handlers, logger.level, logger.propagate = before


STARTS_A_PROCESS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "socket.bind"}
"""Audit events of a browser, compiler, server or other process."""
_test: pytest.Item | None = None


def _audit(event: str, _: object) -> None:
    if event in STARTS_A_PROCESS and _test is not None:
        raise RuntimeError(f"{_test.nodeid} starts a process ({event}): mark it `system`")


sys.addaudithook(_audit)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of the command line `system`."""
    for test in items:
        if "end_to_end" in test.path.parts:
            test.add_marker(pytest.mark.system)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let tests that are marked `system` or `slow` alone start processes."""
    global _test
    marked = any(item.get_closest_marker(name) for name in ("system", "slow"))
    _test = None if marked else item
    try:
        return (yield)
    finally:
        _test = None

"""Settings common to all tests."""

import contextlib
import gc
import logging
import signal
import sys
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import HealthCheck, settings

from transduce.engine.build import available, library_path
from transduce.errors import SettingError

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


_frozen_modules = 0


def _freeze_imports() -> None:
    """Leave what tests have imported since out of garbage collection, too."""
    global _frozen_modules
    if len(sys.modules) > _frozen_modules + 50:
        gc.collect()
        gc.freeze()
        _frozen_modules = len(sys.modules)


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
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


def pytest_configure(config: pytest.Config) -> None:
    """Compile the native engine before the tests, once for all that run beside each other."""
    if hasattr(config, "workerinput") or config.option.collectonly:
        return
    with contextlib.suppress(SettingError), ThreadPoolExecutor() as pool:
        list(pool.map(library_path, available()))


STARTS_A_PROCESS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "socket.bind"}
"""Audit events of a browser, compiler, server or other process."""
MAY_START_A_PROCESS = ("system", "slow")
"""Marks of the tests that may."""


class _ProcessGate:
    """Forbids the test that runs to start a process."""

    test: pytest.Item | None = None
    started: str = ""

    def __call__(self, event: str, _: object) -> None:
        if event in STARTS_A_PROCESS and self.test is not None:
            self.started = f"{self.test.nodeid} starts a process ({event}): mark it `system`"
            raise RuntimeError(self.started)


_gate = _ProcessGate()
sys.addaudithook(_gate)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of the command line `system`."""
    for test in items:
        if "end_to_end" in test.path.parts:
            test.add_marker(pytest.mark.system)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let tests that are marked `system` or `slow` alone start processes."""
    _freeze_imports()
    if not any(map(item.get_closest_marker, MAY_START_A_PROCESS)):
        _gate.test = item
    try:
        return (yield)
    finally:
        _gate.test = None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that starts a process even if what it calls survives the refusal."""
    report = yield
    if _gate.started and not report.failed:
        report.outcome, report.longrepr = "failed", _gate.started
    _gate.started = ""
    return report

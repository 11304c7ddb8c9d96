"""Work that is the same each time, launched on a GPU at once by a CUDA graph."""

from __future__ import annotations

import collections
from collections.abc import Callable

import torch

FIRST_TIMES = 3
"""Times that work is done before it is recorded, so that kernels are chosen and memory is there."""
AHEAD = 2
"""Times that the CPU may be ahead of the GPU, so that it knows how long each takes."""


class RepeatedWork:
    """Work on the same tensors each time; on a GPU, recorded after a few times and replayed.

    On other devices it is done each time.
    """

    def __init__(self, work: Callable[[], None], device: torch.device) -> None:
        """work: reads no value of a GPU."""
        self._work = work
        self._device = device
        self._times = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._events: collections.deque[torch.cuda.Event] = collections.deque()

    @property
    def is_recorded(self) -> bool:
        """True if nothing is allocated any more."""
        return self._graph is not None

    def forget(self) -> None:
        """Begin anew, as the tensors are others."""
        self._graph, self._times = None, 0

    def launch(self) -> None:
        """Do the work once; on a GPU without waiting for it."""
        if self._device.type != "cuda":
            self._work()
            return
        self._times += 1
        if self._times <= FIRST_TIMES:
            self._beside()
        else:
            if self._graph is None:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    self._work()
                self._graph = graph
            self._graph.replay()
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._events.append(event)
        if len(self._events) > AHEAD:
            self._events.popleft().synchronize()

    def _beside(self) -> None:
        """Work on another stream, as PyTorch asks for before recording."""
        stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            self._work()
        torch.cuda.current_stream(self._device).wait_stream(stream)

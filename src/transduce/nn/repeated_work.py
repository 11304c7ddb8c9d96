"""Work that is the same each time, launched on a GPU at once by a CUDA graph."""

import collections
import math
import os
from collections.abc import Callable

import torch

from transduce.errors import TransduceError, first_line, is_out_of_memory

FIRST_TIMES = 3
"""Times that work is done before it is recorded, so that kernels are chosen and memory is there."""
AHEAD = 2
"""Times that the CPU may be ahead of the GPU, so that it knows how long each takes."""


VARIABLE = "TRANSDUCE_CUDA_GRAPHS"
"""Variable of the environment; 0 records nothing."""


class RepeatedWork:
    """Work on the same tensors each time; on a GPU, recorded after a few times and replayed.

    On other devices it is done each time, and so it is where it refuses to be recorded.
    """

    def __init__(
        self,
        work: Callable[[], None],
        device: torch.device,
        log: Callable[[str], object],
        first_times: int = FIRST_TIMES,
    ) -> None:
        """work: reads no value of a GPU.  log: writes one line."""
        self._work = work
        self._device = device
        self._log = log
        self._first_times: float = math.inf if os.environ.get(VARIABLE) == "0" else first_times
        self._times = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._stream: torch.cuda.Stream | None = None
        self._events: collections.deque[torch.cuda.Event] = collections.deque()

    @property
    def is_recorded(self) -> bool:
        """True if nothing is allocated any more."""
        return self._graph is not None

    def forget(self) -> None:
        """Begin anew, as the tensors are others."""
        if self._graph is not None:  # whose memory is freed
            torch.cuda.synchronize(self._device)
        self._graph, self._times = None, 0

    def launch(self) -> None:
        """Do the work once; on a GPU without waiting for it.  Raises TransduceError if the end of
        a recording fails."""
        if self._device.type != "cuda":
            self._work()
            return
        self._times += 1
        if self._graph is None and self._times > self._first_times:
            self._record()
        if self._graph is None:
            self._beside()
        else:
            self._graph.replay()
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._events.append(event)
        if len(self._events) > AHEAD:
            self._events.popleft().synchronize()

    def _record(self) -> None:
        """Record the work.

        An error of the work alone leaves PyTorch as it was.  Where the end of the capture fails, by
        PyTorch's source, allocator and (before 2.13) random numbers still belong to the capture.
        """
        graph, cause = torch.cuda.CUDAGraph(), None
        try:
            # other threads, as of a server, may call the GPU meanwhile
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                try:
                    self._work()
                except Exception as error:
                    cause = error
                    raise
        except RuntimeError as error:
            if error is not cause:
                raise TransduceError(
                    f"a step cannot be recorded as a CUDA graph: {first_line(cause or error)}; "
                    f"start the program again with {VARIABLE}=0 in its environment"
                ) from error
            if is_out_of_memory(error):
                raise
            self._first_times = math.inf
            self._log(
                f"each step is launched by itself, as it cannot be recorded: {first_line(error)}"
            )
        else:
            self._graph = graph
        finally:
            cause = None  # its traceback holds tensors, and this frame

    def _beside(self) -> None:
        """Work on another stream, as PyTorch asks for before recording."""
        if self._stream is None:  # the same each time, as each has memory of its own
            self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            self._work()
        torch.cuda.current_stream(self._device).wait_stream(self._stream)

"""Fair batches, cancellation, deadlines and faults of the queue of a run."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest

from transduce.decoding.options import DecodingOptions
from transduce.errors import TORCH_LATER, CancelledError, DataError, needing_torch
from transduce.serve import queue as queue_module
from transduce.serve.calls import Call, RequestError
from transduce.serve.metrics import Metrics
from transduce.serve.queue import BATCH_TEXTS, SHARE, Queue

OPTIONS = DecodingOptions(beam_size=1)
SAMPLED = DecodingOptions(method="sample")


class Upper:
    """Answers in capitals, a batch whenever `go` is set."""

    options = OPTIONS
    inputs = ("source",)

    def __init__(self) -> None:
        self.batches: list[tuple[int, list[str]]] = []
        self.go = threading.Event()
        self.begun = threading.Event()
        self.torch = threading.Event()

    def attempt(
        self, inputs: Sequence[Any], options: object, first: int, cancelled: Callable[[int], bool]
    ) -> list[Any]:
        self.batches.append((first, list(inputs)))
        self.begun.set()
        assert self.go.wait(60)
        if "fault" in inputs:
            raise ValueError("of the text")
        if "sampled" in inputs:
            with needing_torch("sampling"):
                pass
        gone = CancelledError("gone")
        return [gone if cancelled(i) else text.upper() for i, text in enumerate(inputs)]

    def load_torch(self) -> None:
        assert self.torch.wait(60)

    def stream(
        self, text: Any, options: object, number: int, over: Callable[[], bool]
    ) -> Iterator[str]:
        assert self.go.wait(60)
        if text == "later":
            with needing_torch("streams"):
                pass
        yield from text.upper()

    def align(self, source: str, output: str) -> str:
        if source == "7":
            raise DataError("odd")
        return f"{source}={output}"

    def n_tokens(self, inputs: Sequence[Any], answers: Sequence[Any]) -> tuple[int, int]:
        return len(inputs), len(answers)


def in_queue(
    scenario: Callable[[Queue, Upper], Awaitable[None]], max_waiting: int = 2000
) -> tuple[Upper, Metrics]:
    """Run a scenario over a queue whose run waits for `go`."""
    run, metrics = Upper(), Metrics()

    async def play() -> None:
        queue = Queue("de-en", lambda: run, metrics, max_waiting)
        queue.start()
        try:
            await scenario(queue, run)
        finally:
            run.go.set()
            queue.close()

    asyncio.run(play())
    return run, metrics


async def begin(queue: Queue, run: Upper) -> asyncio.Task[Any]:
    """Occupy the run with one text, so that others wait together."""
    task = asyncio.create_task(queue.submit(["first"], OPTIONS, Call(60)))
    await asyncio.to_thread(run.begun.wait, 60)
    return task


def ask(
    queue: Queue, texts: Sequence[str], options: DecodingOptions = OPTIONS, seconds: float = 60
) -> tuple[Call, asyncio.Task[Any]]:
    call = Call(seconds)
    return call, asyncio.create_task(queue.submit(texts, options, call))


async def queued() -> None:
    """Let the tasks made so far reach the queue."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_texts_of_all_requests_share_a_batch_in_turn() -> None:
    async def scenario(queue: Queue, run: Upper) -> None:
        first = await begin(queue, run)
        _, long = ask(queue, [f"l{i}" for i in range(100)])
        _, short = ask(queue, ["s0", "s1"])
        await queued()
        run.go.set()
        assert await short == ["S0", "S1"]
        assert await long == [f"L{i}" for i in range(100)]
        assert await first == ["FIRST"]

    run, metrics = in_queue(scenario)
    batch = run.batches[1][1]
    assert batch[:4] == ["l0", "s0", "l1", "s1"] and len(batch) == SHARE + 2
    sizes = [len(texts) for _, texts in run.batches]
    assert max(sizes) <= BATCH_TEXTS and sum(sizes) == 103
    assert 'transduce_tokens_total{side="source"} 103' in metrics.text()


def test_others_are_answered_while_pytorch_is_loaded() -> None:
    async def scenario(queue: Queue, run: Upper) -> None:
        run.go.set()
        sampled = [ask(queue, ["a", "sampled", *"b" * 100])[1] for _ in range(2)]
        parts = queue.stream(["later", "c"], OPTIONS, Call(60))
        begun = asyncio.ensure_future(anext(parts))
        await queued()
        for text in ("x", "y"):
            assert await ask(queue, [text])[1] == [text.upper()]
        assert not begun.done() and not any(task.done() for task in sampled)
        run.torch.set()
        for task in sampled:
            assert await task == ["A", "SAMPLED", *"B" * 100]
        texts = [part for _, part in [await begun, *[part async for part in parts]]]
        assert texts == [*"LATER", None, "C", None]
        assert await queue.submit(["sampled"], OPTIONS, Call(60)) == ["SAMPLED"]

    in_queue(scenario)
    assert not TORCH_LATER


def test_a_request_alone_fills_a_batch() -> None:
    async def scenario(queue: Queue, run: Upper) -> None:
        run.go.set()
        await queue.submit([str(i) for i in range(150)], OPTIONS, Call(60))

    run, _ = in_queue(scenario)
    assert [len(texts) for _, texts in run.batches] == [64, 64, 22]


def test_nobody_waits_behind_second_texts_of_others() -> None:
    async def scenario(queue: Queue, run: Upper) -> None:
        await begin(queue, run)
        tasks = [ask(queue, [f"{n}a", f"{n}b"])[1] for n in range(BATCH_TEXTS + 6)]
        await queued()
        run.go.set()
        await asyncio.gather(*tasks)

    run, _ = in_queue(scenario)
    assert [text[-1] for text in run.batches[1][1]] == ["a"] * BATCH_TEXTS
    assert run.batches[2][1][:6] == [f"{BATCH_TEXTS + n}a" for n in range(6)]


def test_a_batch_is_bounded_by_its_work() -> None:
    async def scenario(queue: Queue, run: Upper) -> None:
        run.go.set()
        await queue.submit(["x" * 60_000] * 3, OPTIONS, Call(60))

    run, _ = in_queue(scenario)
    assert [len(texts) for _, texts in run.batches] == [1, 1, 1]


def test_samples_do_not_depend_on_who_else_asks() -> None:
    async def scenario(queue: Queue, run: Upper) -> None:
        await begin(queue, run)
        _, other = ask(queue, ["x", "y"])
        _, sampled = ask(queue, [f"s{i}" for i in range(SHARE + 1)], SAMPLED)
        await queued()
        run.go.set()
        await asyncio.gather(other, sampled)

    run, _ = in_queue(scenario)
    assert [(first, len(texts)) for first, texts in run.batches if texts[0][0] == "s"] == [
        (0, SHARE),
        (SHARE, 1),
    ]


def test_a_call_that_ends_leaves_the_queue() -> None:
    async def scenario(queue: Queue, run: Upper) -> None:
        await begin(queue, run)
        call, gone = ask(queue, ["gone"])
        _, stays = ask(queue, ["stays"])
        await queued()
        call.end()
        with pytest.raises(RequestError, match="closed") as caught:
            await gone
        assert caught.value.status == 499
        run.go.set()
        assert await stays == ["STAYS"]

    run, _ = in_queue(scenario)
    assert run.batches[1][1] == ["stays"]


def test_a_call_that_ends_is_seen_between_steps() -> None:
    async def scenario(queue: Queue, run: Upper) -> None:
        call, task = ask(queue, ["a"])
        await asyncio.to_thread(run.begun.wait, 60)
        call.deadline = 0.0
        run.go.set()
        with pytest.raises(RequestError, match="too long") as caught:
            await task
        assert caught.value.status == 503

    in_queue(scenario)


def test_a_deadline_is_kept_while_the_run_is_busy() -> None:
    async def scenario(queue: Queue, run: Upper) -> None:
        await begin(queue, run)
        _, late = ask(queue, ["late"], seconds=0.01)
        with pytest.raises(RequestError, match="takes too long"):
            await late

    in_queue(scenario)


def test_too_many_waiting_texts_are_refused_unless_none_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_module, "ROOM_SECONDS", 0.01)

    async def scenario(queue: Queue, run: Upper) -> None:
        await begin(queue, run)
        _, many = ask(queue, ["m"] * 20)
        await queued()
        with pytest.raises(RequestError, match="Slowdown") as caught:
            await queue.submit(["x"], OPTIONS, Call(60))
        assert caught.value.status == 429 and caught.value.headers["Retry-After"]
        run.go.set()
        assert await many == ["M"] * 20

    in_queue(scenario, max_waiting=10)


def test_the_cost_of_a_request_does_not_grow_with_those_that_wait() -> None:
    n_looks = 0

    class Seen(Call):
        def over(self) -> bool:
            nonlocal n_looks
            n_looks += 1
            return super().over()

    async def scenario(queue: Queue, run: Upper) -> None:
        first = await begin(queue, run)
        many = [asyncio.create_task(queue.submit(["m"], OPTIONS, Seen(60))) for _ in range(300)]
        await queued()
        assert n_looks <= 300
        run.go.set()
        assert await asyncio.gather(first, *many) == [["FIRST"], *[["M"]] * 300]

    in_queue(scenario)


def test_the_answers_of_a_batch_wake_the_event_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    wakings: list[str] = []

    def call_soon(loop: asyncio.AbstractEventLoop, function: Callable[..., Any]) -> None:
        wakings.append(function.__qualname__)
        loop.call_soon_threadsafe(function)

    async def scenario(queue: Queue, run: Upper) -> None:
        first = await begin(queue, run)
        some = [ask(queue, [f"m{i}"])[1] for i in range(30)]
        await queued()
        run.go.set()
        await asyncio.gather(first, *some)

    monkeypatch.setattr(queue_module, "_call_soon", call_soon)
    run, _ = in_queue(scenario)
    assert len(wakings) == len(run.batches) == 2


def test_a_request_waits_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "MOST_OUTSIDE", 2)

    async def scenario(queue: Queue, run: Upper) -> None:
        await begin(queue, run)
        _, many = ask(queue, ["m"] * 20)
        await queued()
        _, patient = ask(queue, ["x"])
        call, leaving = ask(queue, ["y"])
        await queued()
        with pytest.raises(RequestError, match="Slowdown"):  # as many as may wait do
            await queue.submit(["z"], OPTIONS, Call(60))
        call.end()
        with pytest.raises(RequestError) as caught:
            await leaving
        assert caught.value.status == 499
        run.go.set()
        assert await asyncio.gather(many, patient) == [["M"] * 20, ["X"]]

    run, _ = in_queue(scenario, max_waiting=10)
    assert "y" not in [text for _, texts in run.batches for text in texts]


def test_a_fault_hits_its_request_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(queue: Queue, run: Upper) -> None:
        await begin(queue, run)
        _, faulty = ask(queue, ["fault", "b"])
        _, fine = ask(queue, ["fine"])
        await queued()
        run.go.set()
        assert await fine == ["FINE"]
        with pytest.raises(RequestError) as caught:
            await faulty
        assert caught.value.status == 500
        assert await queue.submit(["next"], OPTIONS, Call(60)) == ["NEXT"]

    in_queue(scenario)
    assert "ValueError at" in caplog.text and "of the text" not in caplog.text


def test_streams_give_parts_with_their_sentence() -> None:
    async def scenario(queue: Queue, run: Upper) -> None:
        run.go.set()
        result = [part async for part in queue.stream(["ab", "c"], OPTIONS, Call(60))]
        assert result == [(0, "A"), (0, "B"), (0, None), (1, "C"), (1, None)]
        assert [part async for part in queue.stream([], OPTIONS, Call(60))] == []

    in_queue(scenario)


def test_pairs_are_aligned_in_order() -> None:
    async def scenario(queue: Queue, run: Upper) -> None:
        pairs = [(str(i), "x") for i in range(20)]
        links = await queue.observe(pairs, lambda run, pair: run.align(*pair), Call(60))
        assert str(links.pop(7)) == "odd"
        assert links == [f"{i}=x" for i in range(20) if i != 7]

    run, _ = in_queue(scenario)
    assert run.batches == []


def test_a_stream_that_is_closed_is_cancelled() -> None:
    async def scenario(queue: Queue, run: Upper) -> None:
        run.go.set()
        call = Call(60)
        parts = queue.stream(["ab", "c"], OPTIONS, call)
        assert await anext(parts) == (0, "A")
        run.go.clear()
        await parts.aclose()
        assert call.over()

    in_queue(scenario)


def test_after_the_end_requests_are_refused() -> None:
    async def scenario(queue: Queue, run: Upper) -> None:
        run.go.set()
        await queue.submit(["a"], OPTIONS, Call(60))
        queue.close()
        with pytest.raises(RequestError, match="stopping"):
            await queue.submit(["a"], OPTIONS, Call(60))

    in_queue(scenario)


def test_a_run_that_cannot_be_loaded_is_reported() -> None:
    errors: list[BaseException] = []

    def load() -> Any:
        raise ValueError("damaged")

    queue = Queue("a", load, Metrics(), failed=errors.append)
    queue.start()
    queue._thread.join()
    assert queue.run is None and str(errors[0]) == "damaged"


def test_warnings_of_texts_are_dropped_while_the_queue_lasts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logger = logging.getLogger("transduce")
    before = list(logger.filters)

    class Talkative(Upper):
        def attempt(self, inputs: Sequence[Any], *rest: Any) -> list[Any]:
            logger.warning("line 1 has %s", inputs[0])
            return super().attempt(inputs, *rest)

    run = Talkative()
    run.go.set()

    async def play() -> None:
        queue = Queue("de-en", lambda: run, Metrics(), 2000)
        queue.start()
        while queue.run is None:
            await asyncio.sleep(0)
        assert await queue.submit(["secret"], OPTIONS, Call(60)) == ["SECRET"]
        queue.close()

    asyncio.run(play())
    assert "secret" not in caplog.text
    assert logger.filters == before
    logger.warning("of another time")
    assert "of another time" in caplog.text


def test_a_run_that_cannot_be_loaded_again_is_named() -> None:
    def load() -> Any:
        raise DataError("the weights are gone")

    queue = Queue("de-en", load, Metrics(), lazy=True)
    queue.start()
    try:
        for _ in range(2):
            with pytest.raises(RequestError, match="run de-en cannot be loaded") as raised:
                queue.loaded_run()
            assert raised.value.status == 500
    finally:
        queue.close()


def test_a_run_that_left_before_a_waiter_saw_it_is_loaded_again() -> None:
    loads: list[Upper] = []
    waiter = threading.current_thread()

    class Late(threading.Condition):
        """A waiter wakes after the first run has left."""

        def wait(self, timeout: float | None = None) -> bool:
            notified = super().wait(timeout)
            while threading.current_thread() is waiter and (not loads or queue._leaving):
                assert super().wait(60)
            return notified

    def load() -> Any:
        loads.append(Upper())
        queue._leaving = len(loads) == 1
        return loads[-1]

    queue = Queue("de-en", load, Metrics(), lazy=True)
    queue._changed = Late()
    queue.start()
    try:
        assert queue.loaded_run() is loads[1]
    finally:
        queue.close()

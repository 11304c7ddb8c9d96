"""Processes of documents: their end and their memory are certain."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from helpers.waiting import wait_for
from transduce.errors import DataError
from transduce.localise.pivoting import Round, Rounds
from transduce.localise.translate import Answer, Order
from transduce.serve.calls import SHORTER_DOCUMENT, Call, RequestError
from transduce.serve.processes import BASE_BYTES, MOST_PROCESSES, DocumentProcesses

pytestmark = pytest.mark.system


def translated(text: str) -> Rounds[str]:
    """Two rounds of orders."""
    (first,) = yield 0, [Order(text)]
    (second,) = yield 1, [Order(str(first))]
    return f"{second} by {os.getpid()}"


def in_a_pattern(text: str) -> Rounds[str]:
    """In C, where no check is made."""
    yield from ()
    return str(re.fullmatch("(a+)+b", text))


def in_memory(n_bytes: int) -> Rounds[int]:
    yield from ()
    return len(bytearray(n_bytes))


def refused(message: str) -> Rounds[None]:
    yield from ()
    raise DataError(message)


def faulty(message: str) -> Rounds[None]:
    yield from ()
    raise ValueError(message)


def killed() -> Rounds[None]:
    yield from ()
    os.abort()


async def upper(orders: Round) -> list[Answer]:
    number, texts = orders
    return [f"{order.text.upper()}{number}" for order in texts]


def result(
    work: Callable[..., Rounds[Any]], *args: Any, size: int = 0, seconds: float = 60.0
) -> Any:
    async def play() -> Any:
        processes = DocumentProcesses()
        try:
            call = Call(seconds, SHORTER_DOCUMENT)
            return await processes.run(call, size, upper, work, *args)
        finally:
            processes.close()

    return asyncio.run(play())


def test_rounds_are_answered() -> None:
    text, process = result(translated, "a").split(" by ")
    assert text == "A01" and int(process) != os.getpid()


def test_a_deadline_ends_work_in_c() -> None:
    """The process has gone, and its thread takes the next documents."""

    async def play() -> None:
        processes = DocumentProcesses()
        stuck = "a" * 100
        documents = [
            processes.run(Call(1.0, SHORTER_DOCUMENT), 0, upper, in_a_pattern, stuck)
            for _ in range(MOST_PROCESSES + 1)
        ]
        began = time.monotonic()
        for error in await asyncio.gather(*documents, return_exceptions=True):
            assert isinstance(error, RequestError) and error.status == 503
            assert error.message == "the answer takes too long; send a shorter document"
        assert time.monotonic() - began < 20
        assert (await processes.run(Call(60), 0, upper, translated, "a")).startswith("A01")
        processes.close()

    asyncio.run(play())


def test_a_client_that_goes_ends_the_work() -> None:
    call = Call(60)

    async def play() -> None:
        processes = DocumentProcesses()
        running = asyncio.ensure_future(processes.run(call, 0, upper, in_a_pattern, "a" * 100))
        await asyncio.sleep(0)
        call.end()
        with pytest.raises(RequestError) as error:
            await running
        assert error.value.status == 499
        await asyncio.to_thread(wait_for, lambda: processes.reserved == 0)
        processes.close()

    asyncio.run(play())


def test_memory_is_a_multiple_of_the_document() -> None:
    room = 2 * BASE_BYTES
    assert result(in_memory, room, size=3_000_000) == room
    with pytest.raises(RequestError, match="too much memory; send it in parts") as error:
        result(in_memory, room, size=1000)
    assert error.value.status == 413


def test_errors_of_a_document(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(DataError, match=r"^a\.po: line 3$"):
        result(refused, "a.po: line 3")
    with pytest.raises(RequestError) as error:
        result(faulty, "text of a user")
    assert error.value.status == 500 and "text of a user" not in caplog.text
    assert "a document: ValueError at" in caplog.text
    with pytest.raises(RequestError) as error:
        result(killed)
    assert error.value.status == 413


def test_a_part_of_a_long_answer_moves_the_deadline() -> None:
    async def limits() -> tuple[float, float, str]:
        call = Call(60)
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(call.outcome(future))
        await asyncio.sleep(0)
        (limit,) = call._limits
        first = limit.when()
        call.go_on()
        later = limit.when()
        future.set_result("whole")
        assert first is not None and later is not None
        return first, later, await waiting

    first, later, answer = asyncio.run(limits())
    assert later > first and answer == "whole"

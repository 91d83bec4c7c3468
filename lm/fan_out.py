"""Many requests to one server, side by side: answers as they come, and failures that lose no other answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Generic, TypeVar

from lm.background import Emit, background
from lm.endpoint import Endpoint, EndpointError, FailedError, RefusedError, Session

J = TypeVar("J")
R = TypeVar("R")


def fan_out(
    endpoint: Endpoint,
    jobs: Sequence[J],
    ask: Callable[[Session, J], Awaitable[R]],
    refused: Callable[[str], R],
    meanwhile: contextlib.AbstractAsyncContextManager[Any] | None = None,
) -> Generator[tuple[int, R], None, None]:
    """Yields (position of the job, answer), each position once, in any order, while others are open.

    Args:
        endpoint: Its server says how many are open at a time.
        jobs: What is asked for.
        ask: Asks for one.
        refused: The answer that stands for a request which the server refuses for what stands in it.
        meanwhile: Entered before the first request, left after the last one, whatever happens.

    Raises:
        ValueError: The server cannot be used; or, after all other answers, some jobs have none.
    """
    if not jobs:
        return
    endpoint.server.key()  # where it is missing, say so before anything is begun
    run = _Run(endpoint, jobs, ask, refused, meanwhile)
    yield from background(run.work, room=endpoint.server.concurrency)
    if run.failed:
        raise EndpointError(
            f"{endpoint.server.place}: {len(run.failed)} of {len(jobs)} requests have no answer, the first: "
            f"{run.failed[0]}; all other answers are kept: the same command goes on"
        )


class _Run(Generic[J, R]):
    """One call: workers that take jobs from one list."""

    def __init__(
        self,
        endpoint: Endpoint,
        jobs: Sequence[J],
        ask: Callable[[Session, J], Awaitable[R]],
        refused: Callable[[str], R],
        meanwhile: contextlib.AbstractAsyncContextManager[Any] | None,
    ) -> None:
        self.failed: list[str] = []
        self._endpoint, self._ask, self._refused = endpoint, ask, refused
        self._meanwhile = contextlib.nullcontext() if meanwhile is None else meanwhile
        self._jobs, self._n = iter(enumerate(jobs)), len(jobs)
        self._held: list[tuple[int, R]] = []

    async def work(self, emit: Emit[tuple[int, R]]) -> None:
        """Emits every answer; leaves nothing open, also where it is cancelled."""
        async with self._meanwhile, self._endpoint.session() as session:
            n = min(self._endpoint.server.concurrency, self._n)
            workers = [asyncio.create_task(self._worker(session, emit)) for _ in range(n)]
            try:
                await asyncio.gather(*workers)
            finally:
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)
        await self._release(emit)

    async def _worker(self, session: Session, emit: Emit[tuple[int, R]]) -> None:
        for position, job in self._jobs:
            try:
                answer = await self._ask(session, job)
            except RefusedError as error:
                # Held back until the server has answered another one: it may refuse everything.
                self._held.append((position, self._refused(str(error))))
                self._endpoint.ledger.count("refused")
            except FailedError as error:
                self.failed.append(str(error))
            else:
                await emit((position, answer))
                await self._release(emit)

    async def _release(self, emit: Emit[tuple[int, R]]) -> None:
        while self._held:
            await emit(self._held.pop(0))

"""A plain iterator over work that runs side by side: an event loop in a thread, and its results as they come."""

from __future__ import annotations

import asyncio
import atexit
import queue
import threading
from collections.abc import Awaitable, Callable, Generator
from typing import Generic, TypeVar

T = TypeVar("T")
Emit = Callable[[T], Awaitable[None]]


class _Done:
    """Says that the work has ended, and by which error."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def background(work: Callable[[Emit[T]], Awaitable[None]], room: int) -> Generator[T, None, None]:
    """Yields what ``work`` emits, while it goes on; it is cancelled where the iterator is closed early.

    Args:
        work: Called once with a coroutine function that takes a result.
        room: Results that may wait to be taken; with that many, ``emit`` waits too, so that nothing is paid for that
            nobody wants.

    Raises:
        BaseException: What ``work`` raises, after all that it had emitted.
    """
    running = _Running(work, room)
    thread = threading.Thread(target=running.run, name="lm-background", daemon=True)

    def end() -> None:
        running.stop()
        thread.join()

    thread.start()
    # An iterator that is still open when Python ends would be closed after threads can run no more, and wait for ever.
    atexit.register(end)
    try:
        while not isinstance(item := running.items.get(), _Done):
            running.taken()
            yield item
        if item.error is not None:
            raise item.error
    finally:
        end()
        atexit.unregister(end)


class _Running(Generic[T]):
    """The side of the thread."""

    def __init__(self, work: Callable[[Emit[T]], Awaitable[None]], room: int) -> None:
        self.items: queue.SimpleQueue[T | _Done] = queue.SimpleQueue()
        self._work, self._room = work, room
        self._lock = threading.Lock()
        self._stopped = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._places: asyncio.Semaphore | None = None

    def run(self) -> None:
        """Runs the work to its end; errors go to who reads the results."""
        error: BaseException | None = None
        try:
            asyncio.run(self._main())
        except BaseException as caught:  # the reader raises it
            error = caught
        self.items.put(_Done(error))

    async def _main(self) -> None:
        places = asyncio.Semaphore(self._room)

        async def emit(item: T) -> None:
            await places.acquire()
            self.items.put(item)

        async def whole() -> None:
            await self._work(emit)

        with self._lock:
            if self._stopped:
                return
            self._loop, self._places = asyncio.get_running_loop(), places
            self._task = asyncio.ensure_future(whole())
        try:
            await self._task
        except asyncio.CancelledError:
            if not self._stopped:
                raise
        finally:
            with self._lock:
                self._loop = None

    def taken(self) -> None:
        """One result was taken: there is room for another."""
        with self._lock:
            if self._loop is not None and self._places is not None:
                self._loop.call_soon_threadsafe(self._places.release)

    def stop(self) -> None:
        """Cancels what still runs."""
        with self._lock:
            self._stopped = True
            if self._loop is not None and self._task is not None:
                self._loop.call_soon_threadsafe(self._task.cancel)

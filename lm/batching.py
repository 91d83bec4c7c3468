"""Texts in batches: sorted by length, under a token budget, over several devices, smaller when memory runs out."""

from __future__ import annotations

import gc
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

Forward: TypeAlias = Callable[[list[int]], NDArray[np.float32]]
"""Positions of texts -> their vectors, float32 (n, d); one per device."""
Finished: TypeAlias = tuple[list[int], NDArray[np.float32]]
"""Positions of the texts of a batch, and their vectors."""

CPU_TOKENS = 2048
"""Tokens per batch on a CPU: more leave its cache (MiniLM, one core: 16384 take 1.35 times as long)."""
GPU_TOKENS = 65536
"""Tokens per batch on a GPU."""

_CPU_MEMORY = ("can't allocate memory", "not enough memory", "cannot allocate memory")


class Batcher:
    """Runs texts through models in batches, and remembers how much fits into memory.

    Args:
        batch_size: At most this many texts in a batch.
        batch_tokens: At most this many tokens in a batch, padding included; a single text may have more.
    """

    def __init__(self, batch_size: int, batch_tokens: int) -> None:
        self.batch_size = batch_size
        self.batch_tokens = batch_tokens

    def run(self, lengths: Sequence[int], forwards: Sequence[Forward]) -> list[NDArray[np.float32]]:
        """The vectors in the order of the texts.

        Args:
            lengths: How many tokens each text has.
            forwards: One per device; each takes the next batch as soon as it is free.
        """
        vectors: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(lengths)
        for part, found in self.stream(lengths, forwards):
            for position, vector in zip(part, found, strict=True):
                vectors[position] = vector
        return vectors

    def stream(self, lengths: Sequence[int], forwards: Sequence[Forward]) -> Iterator[Finished]:
        """The same batch by batch, as they finish: positions of texts, and their vectors in this order.

        Who leaves the iterator early stops the devices after their current batch.
        """
        batches = self._batches(lengths)
        if len(forwards) > 1:
            yield from self._in_threads(batches, lengths, forwards)
            return
        for batch in batches:
            yield from self._whole(batch, lengths, forwards[0])

    def _in_threads(
        self, batches: Iterator[list[int]], lengths: Sequence[int], forwards: Sequence[Forward]
    ) -> Iterator[Finished]:
        results: queue.SimpleQueue[Finished | BaseException | None] = queue.SimpleQueue()
        lock, stop, main = threading.Lock(), threading.Event(), threading.main_thread()

        def work(forward: Forward) -> None:
            try:
                # When the interpreter ends, nobody may be left to close the iterator.
                while main.is_alive() and not stop.is_set():
                    with lock:
                        batch = next(batches, None)
                    if batch is None:
                        break
                    for finished in self._whole(batch, lengths, forward):
                        results.put(finished)
            except BaseException as error:  # raised again by whoever reads the results
                results.put(error)
            finally:
                results.put(None)

        threads = [threading.Thread(target=work, args=(each,), name=f"batches-{i}") for i, each in enumerate(forwards)]
        try:
            for thread in threads:
                thread.start()
            working = len(threads)
            while working:
                found = results.get()
                if isinstance(found, BaseException):
                    raise found
                if found is None:
                    working -= 1
                else:
                    yield found
        finally:
            stop.set()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()

    def _batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Longest texts first: little padding, and memory runs out at once or not at all."""
        order = sorted(range(len(lengths)), key=lambda position: (-lengths[position], position))
        start = 0
        while start < len(order):
            longest = max(1, lengths[order[start]])
            size = max(1, min(self.batch_size, self.batch_tokens // longest))  # read anew: it may have shrunk
            yield order[start : start + size]
            start += size

    def _whole(self, batch: list[int], lengths: Sequence[int], forward: Forward) -> Iterator[Finished]:
        pending = [batch]
        while pending:
            part = pending.pop()
            longest = max(1, *(lengths[position] for position in part))
            found = _attempt(forward, part)
            if found is not None:
                yield part, found
            elif len(part) == 1:
                raise ValueError(f"one text of {longest} tokens does not fit into memory: lower max_length")
            else:
                half = (len(part) + 1) // 2
                self.batch_tokens = min(self.batch_tokens, half * longest)
                pending += [part[half:], part[:half]]


def _attempt(forward: Forward, part: list[int]) -> NDArray[np.float32] | None:
    """The vectors, or None when memory ran out; by then the failed batch's own memory is free again."""
    try:
        return forward(part)
    except torch.OutOfMemoryError:
        pass
    except RuntimeError as error:  # what the CPU's allocator raises
        if not any(words in str(error).lower() for words in _CPU_MEMORY):
            raise
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return None


def check_sizes(**sizes: int | None) -> None:
    """Refuses sizes below 1; None stands for a default.

    Raises:
        ValueError: Names the first of them.
    """
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise ValueError(f"{name}={size}: expected at least 1")


def find_batch_tokens(batch_tokens: int | None, device: str | None) -> int:
    """The given number of tokens per batch, or what suits the devices."""
    on_cpu = any(each.type == "cpu" for each in find_devices(device))
    return batch_tokens or (CPU_TOKENS if on_cpu else GPU_TOKENS)


def find_devices(device: str | None) -> list[torch.device]:
    """Devices for one replica each.

    Args:
        device: None: all GPUs, or the CPU where there is none; ``cuda``: all GPUs; else one name or several,
            separated by commas (``cuda:0,cuda:2``).
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device is None and count == 0:
        return [torch.device("cpu")]
    if device in (None, "cuda") and count:
        return [torch.device("cuda", index) for index in range(count)]
    try:
        found = [torch.device(name.strip()) for name in str(device).split(",")]
    except RuntimeError as error:
        raise ValueError(f"device={device}: expected cpu, cuda, cuda:0 or several with commas") from error
    if missing := [str(each) for each in found if each.type == "cuda" and (each.index or 0) >= count]:
        raise ValueError(f"device={device}: there is no {', '.join(missing)} here ({count} GPUs): use device=cpu")
    return found

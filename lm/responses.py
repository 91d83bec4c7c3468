"""Answers of language models on disk: what was paid for once is not asked again.

A segment store (corpora/segments.py) under a 16-byte key, the hash of all that was sent and of how the answer is
checked. Blocks of 256 answers, or of what came within 10 seconds, are published while a run goes on, so that a kill
loses one block at most.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from corpora.artefacts import cache_root
from corpora.segments import Segments

BLOCK = 256
"""Answers per published segment: what a kill can lose."""
BLOCK_S = 10.0
"""Answers are published at the latest this long after they came."""
SCHEMA = pa.schema(
    [
        pa.field("text", pa.string(), nullable=False),
        pa.field("input_tokens", pa.int64()),
        pa.field("output_tokens", pa.int64()),
        pa.field("cost_usd", pa.float64()),
        pa.field("details", pa.string(), nullable=False),
    ]
)
"""details: a JSON object with what else came: model, finish reason, log-probabilities, seed, temperature."""

Record = dict[str, Any]
"""Column -> value; ``details`` as a dictionary."""


class ResponseStore:
    """Answers by key, shared by any number of processes and by the threads of this one; read on first use.

    Args:
        folder: Default: ``responses`` in the cache.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._segments: Segments | None = None
        self._lock = threading.Lock()

    def get_many(self, keys: Sequence[bytes]) -> list[Record | None]:
        """The answers of these keys, None where there is none; takes up what was published since."""
        with self._lock:
            segments = self._opened()
            segments.refresh()
            found, table = segments.get(keys)
        rows = iter(table.to_pylist())
        return [_record(next(rows)) if there else None for there in found.tolist()]

    def has(self, keys: Sequence[bytes]) -> list[bool]:
        """Which of these keys have an answer; takes up what was published since."""
        with self._lock:
            segments = self._opened()
            segments.refresh()
            found: list[bool] = segments.lookup(keys, ())[0].tolist()
            return found

    def writer(self) -> ResponseWriter:
        """A writer with a block of its own."""
        return ResponseWriter(self)

    def publish(self, keys: Sequence[bytes], records: Sequence[Record]) -> None:
        """Writes one segment."""
        columns: dict[str, list[object]] = {name: [record[name] for record in records] for name in SCHEMA.names}
        columns["details"] = [json.dumps(details, ensure_ascii=True) for details in columns["details"]]
        with self._lock:
            self._opened().publish(list(keys), columns)

    def compact(self) -> None:
        """Merges the small segments that this process wrote."""
        with self._lock:
            self._opened().compact()

    def _opened(self) -> Segments:
        if self._segments is None:
            folder = cache_root() / "responses" if self._folder is None else Path(self._folder)
            self._segments = Segments(folder, SCHEMA)
        return self._segments


class ResponseWriter:
    """Publishes every 256 answers and 10 seconds, and the rest at the end; then merges its own small segments.

    In an event loop (``async with``) a block is published after 10 seconds even where no other answer comes.
    """

    def __init__(self, store: ResponseStore) -> None:
        self._store = store
        self._keys: list[bytes] = []
        self._records: list[Record] = []
        self._since = 0.0
        self._published = 0
        self._timer: asyncio.Task[None] | None = None

    def __enter__(self) -> ResponseWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.publish()
        if self._published > 1:
            self._store.compact()

    async def __aenter__(self) -> ResponseWriter:
        self._timer = asyncio.create_task(self._keep_publishing())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.__exit__(kind, error, trace)

    def add(self, key: bytes, record: Record) -> None:
        """Takes one answer."""
        if not self._keys:
            self._since = time.monotonic()
        self._keys.append(key)
        self._records.append(record)
        if len(self._keys) >= BLOCK or time.monotonic() - self._since >= BLOCK_S:
            self.publish()

    def publish(self) -> None:
        """Writes what was added since the last time."""
        if self._keys:
            self._store.publish(self._keys, self._records)
            self._keys, self._records = [], []
            self._published += 1

    async def _keep_publishing(self) -> None:
        while True:
            await asyncio.sleep(BLOCK_S / 10)
            if self._keys and time.monotonic() - self._since >= BLOCK_S:
                self.publish()


def _record(row: Record) -> Record:
    return {**row, "details": json.loads(row["details"])}

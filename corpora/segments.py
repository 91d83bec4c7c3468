"""Append-only stores of records under 16-byte keys: judgements, answers of language models, embeddings.

A store is a folder of immutable files. Each is an Arrow IPC file named by the SHA-256 of its content, written under
a temporary name and renamed. Nothing is locked or appended to, so any number of processes on a network file system
may write at once and be killed at any moment; what was published stays.

- Several records of one key are allowed: the one whose values have the smallest digest counts, for every reader.
- A writer merges its own small segments when it ends. The merged segment (``*.merged.arrow``) names those that it
  replaces; they are skipped at once, and deleted after a grace period.
- A damaged file is named in one warning and skipped: its records count as missing.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from corpora import _record as record
from corpora._index import KeyIndex, Keys, halves, joined
from corpora._segment_files import GONE, SegmentFiles

__all__ = ["Keys", "Report", "Segments"]

OPEN_FILES = 64
"""Segments that one reader keeps memory-mapped."""
STACK_ROWS = 1 << 22
"""Records whose small arrays are held at a time while a store is loaded."""

_ATTEMPTS = 8
_SHIFT, _ROW = np.uint64(32), np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class Report:
    """What ``Segments.verify`` found.

    Attributes:
        segments: Intact files that count, without those that a merged one replaces.
        records: Records in them.
        duplicates: Records beyond the first of each key.
        damaged: File name -> what is wrong with it; replaced files are checked too.
    """

    segments: int
    records: int
    duplicates: int
    damaged: Mapping[str, str]


class Segments(SegmentFiles):
    """One store; an instance is for one thread of one process.

    Args:
        folder: Made when first written to.
        schema: The columns: numbers, texts (also dictionary-encoded), bytes, fixed-size lists of numbers.
        resident: Numeric columns that are kept in memory, for ``lookup``; all others stay on disk.
    """

    def __init__(self, folder: Path, schema: pa.Schema, resident: Sequence[str] = ()) -> None:
        super().__init__(folder, schema)
        self.resident = tuple(resident)
        self._clear()

    def _clear(self) -> None:
        self._levels: list[KeyIndex] = []  # from large to small; a key may be in several
        self._names: list[str] = []  # by segment number
        self._rows: dict[int, int] = {}  # segment number -> records, of the segments that count
        self._parents = {}
        self._open: OrderedDict[int, pa.RecordBatch] = OrderedDict()

    def load(self) -> Segments:
        """Reads all segments anew, and returns this store."""
        self._clear()
        self.refresh()
        return self

    def refresh(self) -> int:
        """Takes up what was published since; returns the number of new segments."""
        n_new, missed = 0, set[str]()
        for attempt in range(_ATTEMPTS):
            listed = self._listed()
            live = {self._names[number] for number in self._rows}
            try:
                n_added, complete = self._take_up([name for name in listed if name not in live])
            except BaseException:
                self._clear()  # half taken up: whoever goes on after an interrupt reads anew
                raise
            n_new += n_added
            gone = live - self._replaced() - set(listed)
            if complete and not gone:
                return n_new
            if gone & missed:  # twice, so no race with a writer that merges: deleted by hand
                self._clear()  # records that had lost against the deleted ones may now count
            missed = gone
            time.sleep(0.01 * 2**attempt)  # a file went away while we read: list again, to see what replaced it
        warnings.warn(f"{self.folder}: files vanish while they are read; load again for what is missing", stacklevel=2)
        return n_new

    def _replaced(self) -> set[str]:
        return set().union(*self._parents.values())

    def _take_up(self, names: Sequence[str]) -> tuple[int, bool]:
        """Adds segments to the index; returns how many, and whether none had vanished."""
        complete, replaced, first = True, self._replaced(), len(self._names)
        recent: list[dict[str, NDArray[Any]]] = []
        stacked: dict[str, list[NDArray[Any]]] = {}
        n_recent = 0
        for name in names:
            if name in replaced:
                continue
            try:
                part = self._read(name)
            except FileNotFoundError:
                complete = False
                continue
            if part is not None:
                number = len(self._names)
                self._names.append(name)
                self._rows[number] = part[0].num_rows
                recent.append(record.index_columns(part[0], number, self.resident))
                n_recent += part[0].num_rows
                if part[1]:
                    self._parents[name] = part[1]
                    replaced |= part[1]
            if n_recent >= STACK_ROWS:
                _stack(recent, stacked)
                n_recent = 0
        _stack(recent, stacked)
        # Before the index is built: of equal records it keeps any, and must not keep one that is dropped then.
        self._drop([number for number in self._rows if self._names[number] in replaced], stacked)
        if stacked:
            self._levels.append(KeyIndex.build(stacked))
        while len(self._levels) > 1 and 4 * len(self._levels[-1]) > len(self._levels[-2]):
            self._levels[-2:] = [KeyIndex.merge(self._levels[-2:])]
        return sum(number >= first for number in self._rows), complete

    def _drop(self, numbers: Sequence[int], stacked: dict[str, list[NDArray[Any]]]) -> None:
        for number in numbers:
            del self._rows[number]
            self._open.pop(number, None)
        for i, level in enumerate(self._levels):
            keep = _without(numbers, level.columns["place"])
            if not keep.all():
                self._levels[i] = level.where(keep)
        for i, places in enumerate(stacked.get("place", [])):
            keep = _without(numbers, places)
            for column in stacked.values() if not keep.all() else ():
                column[i] = column[i][keep]

    def __len__(self) -> int:
        """Returns the number of distinct keys that are loaded."""
        if len(self._levels) > 1:
            self._levels = [KeyIndex.merge(self._levels)]
        return len(self._levels[0]) if self._levels else 0

    def keys(self) -> NDArray[np.uint8]:
        """Returns all distinct keys that are loaded in ascending order, uint8 (n, 16)."""
        if not len(self):
            return np.zeros((0, 16), np.uint8)
        return joined(self._levels[0].columns["high"], self._levels[0].columns["low"])

    def lookup(self, keys: Keys, names: Sequence[str]) -> tuple[NDArray[np.bool_], dict[str, NDArray[Any]]]:
        """Returns which keys are there, bool (n,), and the values (n,) of resident columns, 0 where they are not."""
        high, low = halves(keys)
        found, digest = np.zeros(len(high), np.bool_), np.zeros(len(high), np.uint64)
        values: dict[str, NDArray[Any]] = {}
        for level in self._levels:
            position, here = level.find(high, low)
            better = here & (~found | (level.columns["digest"][position] < digest)) if len(level) else here
            for name in names:
                column = level.columns[name]
                target = values.setdefault(name, np.zeros(len(high), column.dtype))
                target[better] = column[position[better]]
            digest[better] = level.columns["digest"][position[better]]
            found |= here
        return found, {name: values.get(name, np.zeros(len(high))) for name in names}

    def get(self, keys: Keys, names: Sequence[str] | None = None) -> tuple[NDArray[np.bool_], pa.Table]:
        """Returns which keys are there, bool (n,), and the records of these (dictionaries decoded), in their order."""
        chosen = list(self.schema.names if names is None else names)
        for _ in range(_ATTEMPTS):
            found, columns = self.lookup(keys, ("place",))
            try:
                return found, self._take(columns["place"][found].astype(np.uint64), chosen)
            except OSError as error:
                if error.errno not in GONE:
                    raise
            self.refresh()  # merged and deleted by its writer
        raise ValueError(f"{self.folder}: segments vanish while they are read; is somebody deleting this folder?")

    def _take(self, places: NDArray[np.uint64], names: list[str]) -> pa.Table:
        numbers = (places >> _SHIFT).astype(np.int64)
        order = np.argsort(numbers, kind="stable")
        rows = (places & _ROW).astype(np.int64)[order]
        cuts = np.flatnonzero(np.diff(numbers[order])) + 1
        pieces = [record.concatenate([], self._schema).select(names)]
        firsts = numbers[order][np.append(0, cuts)] if len(rows) else numbers
        for part, number in zip(np.split(rows, cuts) if len(rows) else [], firsts, strict=True):
            pieces.append(self._mapped(int(number)).select(names).take(pa.array(part)))
        table = pa.Table.from_batches([record.decoded(batch) for batch in pieces])
        return table.take(pa.array(np.argsort(order)))

    def _mapped(self, number: int) -> pa.RecordBatch:
        if number not in self._open:
            with pa.memory_map(str(self.folder / self._names[number])) as source:
                self._open[number] = pa.ipc.open_file(source).get_batch(0)
            if len(self._open) > OPEN_FILES:
                self._open.popitem(last=False)
        self._open.move_to_end(number)
        return self._open[number]

    def verify(self) -> Report:
        """Loads the store and checks the hashes of all its files."""
        self.load()
        live = {self._names[number] for number in self._rows}
        for name in self._listed():
            if name not in live and name not in self.damaged:
                with contextlib.suppress(FileNotFoundError):
                    self._read(name)
        n_records = sum(self._rows.values())
        return Report(len(self._rows), n_records, n_records - len(self), dict(self.damaged))


def _stack(recent: list[dict[str, NDArray[Any]]], stacked: dict[str, list[NDArray[Any]]]) -> None:
    """Joins small arrays to large ones, whose memory goes back to the system when they are freed."""
    for name in recent[0] if recent else ():
        stacked.setdefault(name, []).append(np.concatenate([columns[name] for columns in recent]))
    recent.clear()


def _without(numbers: Sequence[int], places: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Returns which places, uint64 (n,), are not in these segments, bool (n,)."""
    if not numbers:
        return np.ones(len(places), np.bool_)
    return ~np.isin(places >> _SHIFT, np.array(numbers, np.uint64))

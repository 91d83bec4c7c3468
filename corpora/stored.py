"""What corpora have in common that are read once into a passage store: build, look-ups, parts, and the plan before."""

from __future__ import annotations

import copy
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from tqdm import tqdm

from corpora.artefacts import artefact, cache_root, find_artefact
from corpora.lines import InputError
from corpora.store import FORMAT, PassageStore, build_store
from corpora.types import Passage, Span

PASSAGES_PER_S = 60_000
"""Passages of 100 words read and stored in a second: measured on one core of a server, gzip and TSV included."""
_ROW_BYTES = 40
"""What a passage takes in a store beyond its texts: lengths, offset, hash, row."""
_GIB = 1 << 30


class StoredCorpus:
    """A corpus whose passages lie in a store: one artefact of the cache, built on first use.

    A subclass says what the store depends on (``_key``), how its passages are read (``_passages``), and how the source
    is called (``_label``).
    """

    _store: PassageStore | None = None
    _counting: ClassVar[str] = ""
    """Added to errors that count passages: what is no passage in the source."""

    def _key(self) -> str:
        """A hash of what the passages are made from; cheap, and without a download."""
        raise NotImplementedError

    def _passages(self) -> Iterable[Passage]:
        """The passages, streaming; what has to be downloaded is downloaded here."""
        raise NotImplementedError

    def _label(self) -> str:
        """The source in a few words or as a path, for messages."""
        raise NotImplementedError

    def _total(self) -> int | None:
        """The number of passages, where it is known beforehand: then it is checked."""
        return None

    def plan(self) -> Plan:
        """What the build takes, as far as it can be told beforehand."""
        return Plan(f"read {self._label()} into a passage store")

    @property
    def store(self) -> PassageStore:
        """The passages on disk, built or opened on first use; a ValueError where the machine is too small for it."""
        if self._store is None:
            key = self._artefact_key()
            if find_artefact("store", key) is None:
                self.plan().check()
            self._store = PassageStore(artefact("store", key, self._build))
        return self._store

    def pending(self) -> str | None:
        """What has to be done before anything is known of the content; None where the store is there."""
        if self._store or find_artefact("store", self._artefact_key()):
            return None
        return str(self.plan())

    def expected(self) -> int | None:
        """The number of passages as far as it is known before the store is built."""
        return self._total() if self.pending() else len(self)

    @property
    def fingerprint(self) -> str:
        """A hash of the content: the same for the same passages from another source."""
        return self.store.fingerprint

    @property
    def span(self) -> Span:
        """Where this corpus lies in the whole."""
        return self.store.span

    def __len__(self) -> int:
        """Number of passages."""
        return len(self.store)

    def __iter__(self) -> Iterator[Passage]:
        """All passages in row order, streaming."""
        return iter(self.store)

    def get(self, ids: Sequence[str]) -> list[Passage]:
        """The passages with these identifiers; a KeyError names one that is unknown."""
        return self.store.get(ids)

    def ids(self, rows: Sequence[int]) -> list[str]:
        """The passage identifiers of these rows (0-based)."""
        return self.store.ids(rows)

    def part(self, i: int, n: int) -> Self:
        """Part ``i`` of ``n``: a view of contiguous rows, cut at whole blocks."""
        part = copy.copy(self)
        part._store = self.store.part(i, n)
        return part

    def for_question(self, question_id: str) -> Self:
        """This corpus: every question is searched in all of it."""
        return self

    def _artefact_key(self) -> str:
        return f"{self._key()}-store{FORMAT}"

    def _build(self, folder: Path) -> None:
        label, total = self._label(), self._total()
        quiet = not sys.stderr.isatty()
        with tqdm(desc=f"store: {Path(label).name}", total=total, unit=" passages", disable=quiet) as bar:
            try:
                build_store(self._passages(), folder, progress=bar.update)
            except InputError:
                raise
            except ValueError as error:
                raise InputError(f"{label}: {error}{self._counting}") from None
            found = len(PassageStore(folder))
        if total is not None and found != total:
            raise InputError(f"{label}: found {found} passages, expected {total}: is it another edition of the file?")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a build takes; ``str`` of it is one line.

    Attributes:
        what: What is done.
        download_bytes: Of the net.
        disk_bytes: In the cache at the same time, downloads included.
        memory_bytes: At the same time.
        seconds: Without the download.
        notes: What else there is to know.
    """

    what: str
    download_bytes: int = 0
    disk_bytes: int = 0
    memory_bytes: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [self.what]
        if self.disk_bytes:
            parts.append(f"needs {size(self.disk_bytes)} of disk and {size(self.memory_bytes)} of memory")
            parts.append(f"takes about {_time(self.seconds)} at {PASSAGES_PER_S} passages a second")
        return "; ".join([*parts, *self.notes])

    def check(self) -> None:
        """Raise a ValueError of one line where disk or memory do not suffice."""
        root = cache_root()
        place = next(folder for folder in (root, *root.parents) if folder.exists())
        free, memory = shutil.disk_usage(place).free, memory_available()
        if self.disk_bytes > free:
            needs = f"{size(self.disk_bytes)} of disk in {root}, {size(free)} are free"
            raise ValueError(f"{self.what}: needs {needs}: make room or choose another --cache")
        if memory is not None and self.memory_bytes > memory:
            needs = f"{size(self.memory_bytes)} of memory, {size(memory)} are available"
            raise ValueError(f"{self.what}: needs {needs}: use a larger machine or a smaller sample")


def build_needs(passages: int, text_bytes: int) -> tuple[int, int, float]:
    """Disk and memory in bytes and seconds for a store of so many passages with so much text."""
    sorting = 64 * min(passages, 1 << 25)  # the build sorts the identifiers' hashes in blocks of this size
    return text_bytes + _ROW_BYTES * passages, sorting + (256 << 20), passages / PASSAGES_PER_S


def memory_available() -> int | None:
    """Bytes of memory that a process may still take here; None where that cannot be told."""
    found = []
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) << 10)
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        found += [int(limit)] if limit.isdecimal() else []
    except OSError:
        pass
    return min(found, default=None)


def size(n: float) -> str:
    """A number of bytes for people: ``4.4 GiB``."""
    return f"{n / 2**40:.1f} TiB" if n >= 1000 * _GIB else f"{n / _GIB:.1f} GiB"


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"

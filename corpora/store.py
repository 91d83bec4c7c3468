"""Passages on disk: memory-mapped, found by row or by identifier, with a fingerprint of their content.

A store is a folder of four files, all little-endian:

* ``records.bin``: one record per passage, in row order: four uint32 byte lengths (identifier, title, text, url), then
  these four fields in UTF-8. The fingerprint is the SHA-256 of this file's content, so that it depends on the passages
  and their order alone, and not on the file that they came from, nor on how the store was built.
* ``offsets.u64``: where each record begins.
* ``hashes.u64`` and ``rows.u64``: the 64-bit hashes of the identifiers, ascending, and the row of each. A hash only
  says where to look: the identifier in the record decides, so that colliding hashes do no harm.
* ``store.json``: format, number of passages, size, rows per block, fingerprint.

Opening maps the files and reads nothing else than ``store.json``, whatever the number of passages.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from corpora.types import Passage, Span

FORMAT = 1
"""Version of the files' layout: part of the key of every store that is kept as an artefact."""

BLOCK_ROWS = 4096
"""Rows per block: parts of a corpus are cut at whole blocks."""

_LENGTHS = struct.Struct("<4I")
_SORT_ROWS = 1 << 25
"""Hashes sorted in memory at once (24 bytes each)."""


def hash_id(passage_id: bytes) -> int:
    """A 64-bit hash of an identifier, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(passage_id, digest_size=8).digest(), "little")


def record(passage: Passage, row: int) -> bytes:
    """The bytes of one passage, without ambiguity: what is stored, and what the fingerprint is made of.

    Raises:
        ValueError: The identifier is empty or has white space, or a field has no UTF-8 form; names row and identifier.
    """
    passage_id = passage.passage_id
    if passage_id.split() != [passage_id]:
        what = "has white space" if passage_id.strip() else "is empty"
        raise ValueError(
            f"line {row + 1}: the passage identifier {passage_id!r} {what}: give it one of one word, as runs need"
        )
    try:
        fields = [f.encode() for f in (passage_id, passage.title, passage.text, passage.url)]
    except UnicodeEncodeError as error:
        raise ValueError(
            f"line {row + 1}: passage {passage_id!r} has half a surrogate pair ({error.reason}): repair or remove it"
        ) from None
    return _LENGTHS.pack(*map(len, fields)) + b"".join(fields)


def part_fingerprint(fingerprint: str, start: int, stop: int, n: int) -> str:
    """The fingerprint of the rows ``start:stop`` of ``n``; all rows together have that of the whole."""
    if (start, stop) == (0, n):
        return fingerprint
    return hashlib.sha256(f"{fingerprint} rows {start}:{stop}".encode()).hexdigest()


def part_rows(i: int, n: int, rows: int, block_rows: int) -> tuple[int, int]:
    """The first row of part ``i`` of ``n`` (else a ValueError) and the row after its last, cut at whole blocks."""
    if not 0 <= i < n:
        raise ValueError(f"part {i} of {n}: expected a part from 0 to {n - 1}")
    blocks = -(-rows // block_rows)
    return min(blocks * i // n * block_rows, rows), min(blocks * (i + 1) // n * block_rows, rows)


def unknown_id(passage_id: str, n: int, example: str) -> KeyError:
    """The error for an identifier that a corpus of ``n`` passages does not have."""
    return KeyError(
        f"no passage {passage_id!r} in this corpus of {n} passages (its first is {example!r}): "
        "was the run or the qrels made with another corpus?"
    )


def duplicate_id(passage_id: str, first: int, second: int) -> ValueError:
    """The error for an identifier that two rows share."""
    return ValueError(
        f"passage identifier {passage_id!r} is on lines {first + 1} and {second + 1} (blank lines not counted)"
    )


def build_store(
    passages: Iterable[Passage],
    folder: Path,
    *,
    progress: Callable[[int], object] = lambda rows: None,
    block_rows: int = BLOCK_ROWS,
    hash_id: Callable[[bytes], int] = hash_id,
) -> str:
    """Write passages in this order and return their fingerprint; memory does not grow with the number of passages.

    Args:
        passages: What to store.
        folder: An existing, empty folder.
        progress: Called with the number of passages written since the last call.
        block_rows: Parts are cut at its multiples; the fingerprint does not depend on it.
        hash_id: The 64-bit hash of identifiers (for tests).

    Raises:
        ValueError: No passages; an identifier twice, empty or with white space (with its line, from 1).
    """
    digest, n, size = hashlib.sha256(), 0, 0
    with (
        (folder / "records.bin").open("wb", buffering=1 << 20) as records,
        (folder / "offsets.u64").open("wb") as offsets,
        (folder / "unsorted.u64").open("wb") as hashes,
    ):
        for block in _blocks(passages, block_rows):
            rows = [record(passage, n + i) for i, passage in enumerate(block)]
            offsets.write((size + np.cumsum([0, *map(len, rows[:-1])])).astype("<u8").tobytes())
            hashes.write(np.array([hash_id(p.passage_id.encode()) for p in block], dtype="<u8").tobytes())
            digest.update(data := b"".join(rows))
            n, size = n + len(rows), size + records.write(data)
            progress(len(rows))
    if not n:
        raise ValueError("the corpus is empty: expected at least one passage")
    _sort_hashes(folder)
    meta = {"format": FORMAT, "passages": n, "bytes": size, "block_rows": block_rows, "fingerprint": digest.hexdigest()}
    (folder / "store.json").write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")
    _refuse_duplicates(PassageStore(folder))
    return digest.hexdigest()


def _blocks(passages: Iterable[Passage], rows: int) -> Iterator[list[Passage]]:
    block: list[Passage] = []
    for passage in passages:
        block.append(passage)
        if len(block) == rows:
            yield block
            block = []
    if block:
        yield block


def _sort_hashes(folder: Path) -> None:
    """Write ``hashes.u64`` and ``rows.u64``, one range of hash values after the other, rows ascending in ties."""
    unsorted = _map(folder / "unsorted.u64")
    passes = -(-len(unsorted) // _SORT_ROWS)
    with (folder / "hashes.u64").open("wb") as hashes, (folder / "rows.u64").open("wb") as rows:
        for i in range(passes):
            low, high = np.uint64((i << 64) // passes), np.uint64((((i + 1) << 64) // passes) - 1)
            found = []
            for start in range(0, len(unsorted), _SORT_ROWS):
                chunk = unsorted[start : start + _SORT_ROWS]
                found.append(np.flatnonzero((chunk >= low) & (chunk <= high)) + start)
            chosen = np.concatenate(found)
            values = unsorted[chosen]
            order = np.argsort(values, kind="stable")
            hashes.write(values[order].tobytes())
            rows.write(chosen[order].astype("<u8").tobytes())
    (folder / "unsorted.u64").unlink()


def _refuse_duplicates(store: PassageStore) -> None:
    """Compare the identifiers of rows with equal hashes.

    Raises:
        ValueError: One stands twice; of several, the one that is met first in row order.
    """
    hashes, rows = store._hashes, store._rows
    found: tuple[int, int, str] | None = None
    seen: dict[str, int] = {}
    previous = -2
    for start in range(0, len(hashes) - 1, _SORT_ROWS):
        chunk = hashes[start : start + _SORT_ROWS + 1]
        for at in (np.flatnonzero(chunk[1:] == chunk[:-1]) + start).tolist():
            if at != previous + 1:  # another hash
                seen = {store.ids([rows[at]])[0]: int(rows[at])}
            (passage_id,), row = store.ids([rows[at + 1]]), int(rows[at + 1])
            first = seen.setdefault(passage_id, row)
            if first != row and (found is None or row < found[0]):
                found = (row, first, passage_id)
            previous = at
    if found:
        raise duplicate_id(found[2], found[1], found[0])


def _map(path: Path) -> NDArray[np.uint64]:
    return np.asarray(np.memmap(path, dtype="<u8", mode="r"))


class PassageStore:
    """A corpus in a folder that ``build_store`` wrote.

    Raises:
        ValueError: The folder holds no store, one of another format, or a damaged one.
    """

    def __init__(self, folder: Path, *, hash_id: Callable[[bytes], int] = hash_id) -> None:
        try:
            meta = json.loads((folder / "store.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ValueError(f"{folder} holds no passage store: store.json is missing") from None
        if meta["format"] != FORMAT:
            raise ValueError(f"{folder} is a store of format {meta['format']}, expected {FORMAT}: build it again")
        n = meta["passages"]
        expected = {"records.bin": meta["bytes"], "offsets.u64": 8 * n, "hashes.u64": 8 * n, "rows.u64": 8 * n}
        for name, size in expected.items():
            if (folder / name).stat().st_size != size:
                raise ValueError(f"{folder / name} does not have {size} bytes: the store is damaged, build it again")
        with (folder / "records.bin").open("rb") as file:
            self._records = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._offsets = _map(folder / "offsets.u64")
        self._hashes, self._rows = _map(folder / "hashes.u64"), _map(folder / "rows.u64")
        self._hash_id = hash_id
        self._whole: str = meta["fingerprint"]
        self._block_rows: int = meta["block_rows"]
        self._start: int = 0
        self._stop: int = n
        self._n: int = n

    @property
    def fingerprint(self) -> str:
        """A hash of identifiers, titles, texts and urls in order; of a part: of the whole's and its rows."""
        return part_fingerprint(self._whole, self._start, self._stop, self._n)

    @property
    def span(self) -> Span:
        """Where this corpus lies in the whole store."""
        return Span(self._whole, self._start, self._stop)

    def __len__(self) -> int:
        """Number of passages."""
        return self._stop - self._start

    def __iter__(self) -> Iterator[Passage]:
        """All passages in row order, streaming."""
        at = int(self._offsets[self._start]) if len(self) else 0
        for _ in range(len(self)):
            passage, at = self._read(at)
            yield passage

    def get(self, ids: Sequence[str]) -> list[Passage]:
        """The passages with these identifiers, in this order.

        Raises:
            KeyError: An identifier is not in the corpus; the message names it.
        """
        return [self._read(self._find(passage_id))[0] for passage_id in ids]

    def ids(self, rows: Sequence[int]) -> list[str]:
        """The passage identifiers of these rows (0-based), in this order; an IndexError where there is no such row."""
        for row in rows:
            if not 0 <= row < len(self):
                raise IndexError(f"row {row}: this corpus has the rows 0 to {len(self) - 1}")
        return [self._id(int(self._offsets[self._start + int(row)])).decode() for row in rows]

    def part(self, i: int, n: int) -> Self:
        """Part ``i`` of ``n``: a view of contiguous rows, cut at whole blocks; a part may be empty."""
        start, stop = part_rows(i, n, len(self), self._block_rows)
        view = object.__new__(type(self))
        view.__dict__.update(self.__dict__, _start=self._start + start, _stop=self._start + stop)
        return view

    def for_question(self, question_id: str) -> Self:
        """This corpus: every question is searched in all of it."""
        return self

    def _find(self, passage_id: str) -> int:
        """Where the record of this identifier begins."""
        wanted = passage_id.encode(errors="surrogatepass")
        hashed = np.uint64(self._hash_id(wanted))
        at = int(self._hashes.searchsorted(hashed))
        while at < len(self._hashes) and self._hashes[at] == hashed:
            row = int(self._rows[at])
            start = int(self._offsets[row])
            if self._start <= row < self._stop and self._id(start) == wanted:
                return start
            at += 1
        raise unknown_id(passage_id, len(self), self.ids([0])[0] if len(self) else "")

    def _id(self, at: int) -> bytes:
        body = at + _LENGTHS.size
        return self._records[body : body + int(_LENGTHS.unpack_from(self._records, at)[0])]

    def _read(self, at: int) -> tuple[Passage, int]:
        """The passage whose record begins here, and where the next record begins."""
        n_id, n_title, n_text, n_url = _LENGTHS.unpack_from(self._records, at)
        title = at + _LENGTHS.size + n_id
        text = title + n_title
        url = text + n_text
        end = url + n_url
        fields = (title - n_id, title), (text, url), (title, text), (url, end)
        return Passage(*(self._records[i:j].decode() for i, j in fields)), end

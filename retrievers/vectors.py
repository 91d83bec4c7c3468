"""Vectors on disk: memory-mapped shards, opened in a time that does not depend on their size.

How shards lie in the cache stands in ``retrievers/shards.py``.

Vectors built elsewhere are opened from a folder of two-dimensional fp16 or fp32 ``*.npy`` files, taken in the order of
their names. Their rows are the corpus' rows, unless passage identifiers are given: ``ids.txt`` for all files together,
or ``<name>.ids.txt`` beside each ``<name>.npy``, one a line. A ``manifest.json`` may name the ``encoder`` and the
``corpus`` by fingerprint; another encoder or corpus is then refused.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
import json
import mmap
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corpora.fingerprint import digest
from retrievers.shards import (
    DTYPES,
    Shard,
    is_shard,
    map_array,
    open_shard,
    read_manifest,
    shard_folders,
    vectors_folder,
)

Ids = Callable[[Sequence[int]], list[str]]
"""Row numbers of the whole -> passage identifiers."""

_EVERY = 64
"""One offset is kept for so many lines of a file of identifiers."""
_SAMPLE = 64
"""Rows of a file built elsewhere that its fingerprint is made of, besides its size: nobody hashes a terabyte."""


class Vectors:
    """The vectors of the rows ``start:stop``, mapped from any shards that cover them.

    Args:
        shards: In any order; they may overlap and reach beyond the rows.
        start: First row.
        stop: The row after the last.
        fingerprint: Names the content.
        ids: Where the vectors came with passage identifiers of their own.

    Raises:
        ValueError: Rows that no shard has, or shards of several dimensions.
    """

    def __init__(self, shards: Sequence[Shard], start: int, stop: int, fingerprint: str, ids: Ids | None = None):
        self.start, self.stop, self.fingerprint, self.ids = start, stop, fingerprint, ids
        self._pieces: list[Shard] = []
        at = start
        while at < stop:
            best = max((s for s in shards if s.start <= at < s.stop), key=lambda s: s.stop, default=None)
            if best is None:
                raise ValueError(f"no vectors of row {at}: encode the missing rows first (--until index)")
            end = min(best.stop, stop)
            self._pieces.append(Shard(at, end, best.data[at - best.start : end - best.start], best.max_norm))
            at = end
        if len(found := {piece.data.shape[1] for piece in self._pieces}) > 1:
            raise ValueError(f"shards of several dimensions: {', '.join(map(str, sorted(found)))}")
        self.dimension = int(next(iter(found), 0))

    def __len__(self) -> int:
        """Number of vectors."""
        return self.stop - self.start

    def part(self, start: int, stop: int) -> Vectors:
        """The vectors of some of the rows."""
        return Vectors(self._pieces, start, stop, digest([self.fingerprint, start, stop]), self.ids)

    @property
    def max_norm(self) -> float | None:
        """At least the length of the longest vector; None where it is not known."""
        norms = [piece.max_norm for piece in self._pieces]
        return max((n for n in norms if n is not None), default=0.0) if None not in norms else None

    def blocks(self, rows: int) -> Iterator[tuple[int, NDArray[np.floating]]]:
        """First row and vectors as stored, block by block, cut at multiples of ``rows`` whatever the shards."""
        for start, stop in cut(self.start, self.stop, rows):
            yield start, self.read(start, stop)

    @property
    def mapped(self) -> bool:
        """Whether all vectors are fp32 in one piece each, so that they can be searched where they lie."""
        return all(p.data.dtype == np.float32 and p.data.flags.c_contiguous for p in self._pieces)

    def pieces(self) -> Iterator[tuple[int, NDArray[np.floating]]]:
        """First row and vectors as stored, shard by shard: views of mapped files."""
        for piece in self._pieces:
            yield piece.start, piece.data

    def read(self, start: int, stop: int) -> NDArray[np.floating]:
        """(stop - start, d) as stored: a view where one shard has them all."""
        found = [
            p.data[max(start - p.start, 0) : stop - p.start] for p in self._pieces if p.start < stop > start < p.stop
        ]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """float64 (n, d): the vectors of these rows of the whole, in this order."""
        out = np.empty((len(rows), self.dimension), dtype=np.float64)
        for piece in self._pieces:
            here = (rows >= piece.start) & (rows < piece.stop)
            if here.all():
                out[:] = piece.data[rows - piece.start]
            elif here.any():
                out[here] = piece.data[rows[here] - piece.start]
        return out


def cut(start: int, stop: int, rows: int) -> list[tuple[int, int]]:
    """The range cut at multiples of ``rows``."""
    edges = [start, *range((start // rows + 1) * rows, stop, rows), stop]
    return list(itertools.pairwise(edges)) if stop > start else []


def open_vectors(source: Path | Sequence[Path], encoder: str | None = None, corpus: str | None = None) -> Vectors:
    """Vectors that lie anywhere: folders of shards as in the cache, or of ``.npy`` files built elsewhere.

    Args:
        source: One folder or several, all of the same kind; those built elsewhere follow one another.
        encoder: Fingerprint of the encoder that must have made them, where they say so.
        corpus: The same for the whole corpus.

    Raises:
        ValueError: No vectors there, another encoder or corpus, or files that are no vectors.
    """
    folders = [source] if isinstance(source, Path) else list(source)
    own = [shard for folder in folders for shard in ([folder] if is_shard(folder) else shard_folders(folder))]
    if not own:
        return _open_foreign(folders, encoder, corpus)
    manifests = [read_manifest(folder, corpus, encoder) for folder in own]
    for folder, each in zip(own, manifests, strict=True):
        read_manifest(folder, manifests[0].corpus, manifests[0].encoder)
        if each.dtype != manifests[0].dtype:
            raise ValueError(f"shard {folder} has the dtype {each.dtype}, others have {manifests[0].dtype}")
    shards = [open_shard(folder, manifest) for folder, manifest in zip(own, manifests, strict=True)]
    start, stop = min(shard.start for shard in shards), max(shard.stop for shard in shards)
    name = vectors_folder(manifests[0].corpus, manifests[0].encoder, manifests[0].dtype).name
    return Vectors(shards, start, stop, digest([name, start, stop]))


def _open_foreign(folders: Sequence[Path], encoder: str | None, corpus: str | None) -> Vectors:
    files = [file for folder in folders for file in sorted(folder.glob("*.npy"))]
    if not files:
        raise ValueError(f"no vectors in {', '.join(map(str, folders))}: expected shards or .npy files")
    for folder in folders:
        if (manifest := folder / "manifest.json").is_file():
            said = json.loads(manifest.read_text(encoding="utf-8"))
            for what, expected in (("encoder", encoder), ("corpus", corpus)):
                if None not in (expected, said.get(what)) and said[what] != expected:
                    raise ValueError(f"the vectors in {folder} were made with {what} {said[what]}, not {expected}")
    shards, at, seen = [], 0, []
    for file in files:
        data = map_array(file)
        if data.ndim != 2 or data.dtype not in DTYPES.values():
            raise ValueError(f"{file} holds {data.dtype} {data.shape}, expected float16 or float32 (rows, dimension)")
        shards.append(Shard(at, at := at + len(data), data, None))
        sample = data[np.linspace(0, max(len(data) - 1, 0), min(_SAMPLE, len(data))).astype(int)]
        seen.append([list(data.shape), str(data.dtype), hashlib.sha256(sample.tobytes()).hexdigest()])
    texts = [path for folder in folders if (path := folder / "ids.txt").is_file()]
    texts = texts or [path for file in files if (path := file.with_suffix(".ids.txt")).is_file()]
    lines = [_Lines(path) for path in texts]
    if lines and sum(map(len, lines)) != at:
        raise ValueError(f"{sum(map(len, lines))} passage identifiers for {at} vectors: {', '.join(map(str, texts))}")
    ends = np.cumsum([len(each) for each in lines]).tolist()

    def ids(rows: Sequence[int]) -> list[str]:
        places = [bisect.bisect_right(ends, row) for row in rows]
        return [lines[i].get(row - (ends[i] - len(lines[i]))) for i, row in zip(places, rows, strict=True)]

    return Vectors(shards, 0, at, digest([seen, [each.sample() for each in lines]]), ids if lines else None)


class _Lines:
    """The lines of a file, mapped, found by number; one offset in 64 is kept in memory."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._offsets, self._n, at = array("Q"), 0, 0
            for line in file:
                if self._n % _EVERY == 0:
                    self._offsets.append(at)
                self._n, at = self._n + 1, at + len(line)

    def __len__(self) -> int:
        return self._n

    def get(self, row: int) -> str:
        at = self._offsets[row // _EVERY]
        for _ in range(row % _EVERY):
            at = self._text.find(b"\n", at) + 1
        end = self._text.find(b"\n", at)
        return self._text[at : end if end >= 0 else len(self._text)].decode().strip()

    def sample(self) -> list[object]:
        return [self._n, *(self.get(row) for row in np.linspace(0, self._n - 1, min(_SAMPLE, self._n)).astype(int))]

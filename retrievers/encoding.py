"""A corpus becomes vectors on disk, block by block (``retrievers/vectors.py`` opens them).

A finished block of at most 4096 rows of the whole corpus is published as ``blocks/<start>-<stop>-<SHA-256>.bin``; when
all blocks of a shard are there, they become one file, and the shard's manifest, written last, publishes it. Everything
appears by one rename and is named by its content, without locks: any number of processes may write the same rows and
be killed at any moment. What is repeated then is at most one block.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from corpora.artefacts import atomic_file, remove_stale, write_atomic
from corpora.base import Corpus, span_of
from corpora.fingerprint import digest
from corpora.types import Passage
from lm.base import Encoder
from retrievers.shards import DTYPES, FORMAT, Manifest, open_shard, read_manifest, shard_folders, vectors_folder
from retrievers.vectors import Vectors, cut

BLOCK_ROWS = 4096
"""Rows that are encoded and published at a time, cut at its multiples in the whole corpus."""
SHARD_ROWS = 2048 * BLOCK_ROWS
"""A longer range becomes several shards: only so much lies on disk twice while blocks become one file."""

Range = tuple[int, int]
_BLOCK = re.compile(r"(?P<start>\d+)-(?P<stop>\d+)-(?P<sha>[0-9a-f]{64})\.bin")


def passage_fingerprint(encoder: Encoder) -> str:
    """What the vectors of passages depend on: ``passage_fingerprint`` where an encoder has it, else all of it.

    An encoder whose fingerprint also counts query templates or a query model may have this property, so that another
    query template re-encodes nothing.
    """
    own = getattr(encoder, "passage_fingerprint", None)
    return own if isinstance(own, str) else encoder.fingerprint


def missing_rows(corpus: Corpus, encoder: str, dtype: str = "fp16") -> list[Range]:
    """The rows of the whole that this corpus needs, and that no shard of the encoder with this fingerprint holds."""
    span = span_of(corpus)
    folder = vectors_folder(span.fingerprint, encoder, dtype)
    held = [read_manifest(shard, span.fingerprint, encoder) for shard in shard_folders(folder)]
    gaps, at = [], span.start
    for start, stop in sorted((manifest.start, manifest.stop) for manifest in held):
        if at < min(start, span.stop):
            gaps.append((at, min(start, span.stop)))
        at = max(at, stop)
    return [*gaps, (at, span.stop)] if at < span.stop else gaps


def corpus_vectors(corpus: Corpus, encoder: Encoder, dtype: str = "fp16") -> Vectors:
    """The vectors of a corpus or a part of one, opened; rows that no shard holds are encoded first.

    Raises:
        ValueError: Not enough disk; an encoder that gives other than finite numbers (names the passage); a shard that
            is damaged, or of another corpus or encoder.
    """
    span, name = span_of(corpus), passage_fingerprint(encoder)
    folder = vectors_folder(span.fingerprint, name, dtype)
    if gaps := missing_rows(corpus, name, dtype):
        ranges = [piece for gap in gaps for piece in cut(*gap, SHARD_ROWS)]
        writer = _Writer(corpus, encoder, dtype, folder)
        writer.check_space(ranges)
        with tqdm(total=sum(b - a for a, b in gaps), desc="encode", unit=" passages", disable=None) as bar:
            for start, stop in ranges:
                writer.shard(start, stop, bar)
    manifests = {shard: read_manifest(shard, span.fingerprint, name) for shard in shard_folders(folder)}
    _remove_blocks(folder / "blocks", [(manifest.start, manifest.stop) for manifest in manifests.values()])
    used = {s: m for s, m in manifests.items() if m.start < span.stop and m.stop > span.start}
    key = digest([folder.name, span.start, span.stop])
    return Vectors([open_shard(*each) for each in used.items()], span.start, span.stop, key)


class _Writer:
    """Encodes rows of one corpus into blocks and shards."""

    def __init__(self, corpus: Corpus, encoder: Encoder, dtype: str, folder: Path) -> None:
        self.corpus, self.encoder, self.dtype, self.folder = corpus, encoder, dtype, folder
        self.span, self.blocks, self.name = span_of(corpus), folder / "blocks", passage_fingerprint(encoder)

    def check_space(self, ranges: Sequence[Range]) -> None:
        """Refuse in one line what the disk cannot hold: the rows, and one shard twice."""
        rows = [stop - start for start, stop in ranges]
        done = sum(stop - start for start, stop in _blocks(self.blocks))
        needed = (sum(rows) + max(rows) - done) * self.encoder.dimension * DTYPES[self.dtype].itemsize
        place = next(path for path in (self.folder, *self.folder.parents) if path.exists())
        free = shutil.disk_usage(place).free
        if needed > free:
            raise ValueError(
                f"encoding {sum(rows):,} passages needs {needed / 2**30:.2f} GiB and {place} has {free / 2**30:.2f} "
                "GiB free: free some, or choose another disk by --cache"
            )

    def shard(self, start: int, stop: int, bar: tqdm[None]) -> None:
        """Encode the blocks that are not there, then make them one file, which publishes the shard."""
        pieces = cut(start, stop, BLOCK_ROWS)
        if self.blocks.is_dir():
            remove_stale(self.blocks)
        while True:
            done = _blocks(self.blocks)
            with _full_disk(self.folder):
                for piece in pieces:
                    if piece not in done:
                        self.block(*piece)
                    bar.update(piece[1] - piece[0])
                try:
                    self.consolidate(start, stop, pieces)
                    return
                except FileNotFoundError:  # another process has made a shard of some of these blocks
                    if not missing_rows(self.corpus, self.name, self.dtype):
                        return
            bar.update(start - stop)

    def block(self, start: int, stop: int) -> None:
        """Encode and publish one block."""
        passages = self.corpus.get(self.corpus.ids(range(start - self.span.start, stop - self.span.start)))
        data = self.checked(self.encoder.encode_passages(passages), passages).tobytes()
        write_atomic(self.blocks / f"{start}-{stop}-{hashlib.sha256(data).hexdigest()}.bin", data)

    def checked(self, vectors: NDArray[np.float32], passages: Sequence[Passage]) -> NDArray[np.floating]:
        """The vectors as they are stored; a ValueError where the encoder breaks its promise."""
        expected = (len(passages), self.encoder.dimension)
        if vectors.shape != expected:
            raise ValueError(f"the encoder gave an array of shape {vectors.shape}, expected {expected}")
        with np.errstate(over="ignore"):
            stored = np.ascontiguousarray(vectors, dtype=DTYPES[self.dtype])
        bad = np.flatnonzero(~np.isfinite(stored).all(axis=1))
        if len(bad):
            name = passages[int(bad[0])].passage_id
            if np.isfinite(vectors[bad[0]]).all():
                raise ValueError(f"the vector of passage {name!r} has numbers too large for fp16: choose dtype=fp32")
            raise ValueError(f"the encoder gave NaN or infinite numbers for passage {name!r}")
        return stored

    def consolidate(self, start: int, stop: int, pieces: Sequence[Range]) -> None:
        """Make one file of the blocks, checked; raises FileNotFoundError where one has gone."""
        done, shape = _blocks(self.blocks), (stop - start, self.encoder.dimension)
        if missing := [piece for piece in pieces if piece not in done]:
            raise FileNotFoundError(f"block {missing[0]} is gone")
        place, dtype, norm = self.folder / f"rows-{start}-{stop}", DTYPES[self.dtype], 0.0
        # Named by the hashes of its blocks: processes whose encoders differ in the last bit never share a file.
        path = place / f"{digest([done[piece].name for piece in pieces])}.npy"
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": dtype.str, "fortran_order": False, "shape": shape})
        sha = hashlib.sha256(header.getvalue())
        with atomic_file(path) as temporary, temporary.open("wb") as file:
            file.write(header.getvalue())
            for piece in pieces:
                data = _read_block(done[piece])
                vectors = np.frombuffer(data, dtype=dtype).reshape(piece[1] - piece[0], -1).astype(np.float64)
                norm = max(norm, float(np.sqrt(np.einsum("ij,ij->i", vectors, vectors)).max()))
                sha.update(data)
                file.write(data)
            size = file.tell()
        manifest = Manifest(
            format=FORMAT,
            corpus=self.span.fingerprint,
            encoder=self.name,
            dtype=self.dtype,
            dimension=shape[1],
            start=start,
            stop=stop,
            max_norm=norm * (1 + 1e-9),
            file=path.name,
            bytes=size,
            sha256=sha.hexdigest(),
        )
        write_atomic(place / "manifest.json", json.dumps(asdict(manifest), indent=1) + "\n")


def _blocks(folder: Path) -> dict[Range, Path]:
    """The published blocks; of two of the same rows, the one with the smaller hash."""
    found: dict[Range, Path] = {}
    if folder.is_dir():
        for path in sorted(folder.iterdir(), reverse=True):
            if match := _BLOCK.fullmatch(path.name):
                found[int(match["start"]), int(match["stop"])] = path
    return found


def _read_block(path: Path) -> bytes:
    data = path.read_bytes()
    match = _BLOCK.fullmatch(path.name)
    if match is None or hashlib.sha256(data).hexdigest() != match["sha"]:
        raise ValueError(f"block {path} is damaged (wrong SHA-256): remove it, and its rows are encoded again")
    return data


def _remove_blocks(folder: Path, held: Sequence[Range]) -> None:
    """Remove the blocks that a published shard holds."""
    if folder.is_dir():
        for path in folder.iterdir():
            match = _BLOCK.fullmatch(path.name)
            if match and any(a <= int(match["start"]) and int(match["stop"]) <= b for a, b in held):
                path.unlink(missing_ok=True)


@contextlib.contextmanager
def _full_disk(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise ValueError(
            f"the disk of {folder} is full: free some, or choose another by --cache; finished blocks are kept"
        ) from error

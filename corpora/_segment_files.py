"""The files of a segment store: writing, checking, merging and deleting them. No index, no look-ups."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from corpora import _record as record
from corpora._index import KeyIndex, Keys, halves, joined
from corpora.artefacts import remove_stale, write_atomic

GRACE_S = 48 * 3600.0
"""Replaced segments are deleted this long after the merged one appeared: readers may still have them open."""
SMALL_BYTES = 64 << 20
"""Own segments below this size are merged ..."""
MERGED_BYTES = 256 << 20
"""... into segments of about this size."""

_NAME = re.compile(r"(?P<hash>[0-9a-f]{64})(\.merged)?\.arrow")
GONE = {errno.ENOENT, errno.ESTALE}
"""How a file looks that another process has deleted."""


class SegmentFiles:
    """The folder of a segment store; see ``corpora.segments.Segments``."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self.folder, self.schema = Path(folder), schema
        self.damaged: dict[str, str] = {}
        self._schema = record.file_schema(schema)
        self._own: dict[str, int] = {}  # name -> bytes, of what this instance published
        self._parents: dict[str, frozenset[str]] = {}  # merged segment -> those that it replaces

    def publish(self, keys: Keys, columns: Mapping[str, Any]) -> Path:
        """Writes one segment and returns its path.

        Args:
            keys: uint8 (n, 16) or n byte strings of length 16.
            columns: Name -> n values: a list (None: missing), an array, for lists of fixed size also (n, d), or Arrow.
        """
        batch = record.to_batch(joined(*halves(keys)), columns, self.schema)
        if not batch.num_rows:
            raise ValueError("a segment needs at least one record, got none")
        return self._write(batch)

    def _write(self, batch: pa.RecordBatch, supersedes: frozenset[str] = frozenset()) -> Path:
        data = record.serialise(batch, supersedes)
        path = self.folder / (hashlib.sha256(data).hexdigest() + (".merged.arrow" if supersedes else ".arrow"))
        write_atomic(path, data)
        self._own[path.name] = len(data)
        return path

    def compact(self) -> None:
        """Merges the small segments that this instance wrote; deletes what was replaced a grace period ago."""
        own = sorted((n_bytes, name) for name, n_bytes in self._own.items() if n_bytes < SMALL_BYTES)
        rest = sum(n_bytes for n_bytes, _ in own)
        while own and own[-1][0] > 4 * (rest - own[-1][0]):
            # What is large beside all the rest is left alone: many short sessions shall not rewrite it each time.
            rest -= own.pop()[0]
        group: list[str] = []
        size = 0
        for n_bytes, name in own:
            group.append(name)
            size += n_bytes
            if size >= MERGED_BYTES:
                self._merge(group)
                group, size = [], 0
        self._merge(group)
        if self.folder.is_dir():
            self._sweep()

    def _merge(self, group: Sequence[str]) -> None:
        parts = {}
        for name in group:
            with contextlib.suppress(FileNotFoundError):
                if part := self._read(name):
                    parts[name] = part
        if len(parts) < 2:
            return
        batch = record.concatenate([batch for batch, _ in parts.values()], self._schema)
        pieces = {name: [column] for name, column in record.index_columns(batch, 0).items()}
        batch = batch.take(pa.array(KeyIndex.build(pieces).columns["place"]))
        self._write(batch, frozenset(parts).union(*(parents for _, parents in parts.values())))
        for name in parts:
            self._own.pop(name, None)

    def _sweep(self) -> None:
        remove_stale(self.folder)
        for name, parents in self._parents.items():
            try:
                old = time.time() - (self.folder / name).stat().st_mtime > GRACE_S
                present = [path for parent in parents if (path := self.folder / parent).exists()] if old else []
                intact = bool(present) and self._read(name) is not None
            except OSError:
                continue
            for path in present if intact else []:
                with contextlib.suppress(OSError):  # gone already, or another user's: then it only takes space
                    path.unlink()

    def _listed(self) -> list[str]:
        """Returns the names of all segments; merged ones first, so that what they replace need not be read."""
        try:
            names = [name for name in os.listdir(self.folder) if _NAME.fullmatch(name)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ValueError(f"cannot read the folder {self.folder}: {error.strerror}") from error
        return sorted(names, key=lambda name: (not name.endswith(".merged.arrow"), name))

    def _read(self, name: str) -> tuple[pa.RecordBatch, frozenset[str]] | None:
        """Returns the records of a file and what it replaces, or None (and one warning) where it is damaged."""
        path = self.folder / name
        try:
            data = path.read_bytes()  # not mapped: a file cut short while it is read must not kill the process
            if hashlib.sha256(data).hexdigest() != name[:64]:
                raise ValueError(f"its {len(data)} bytes do not have the hash in its name")
            part = record.parse(data, self._schema)
        except (OSError, ValueError, pa.ArrowException) as error:
            if isinstance(error, OSError) and error.errno in GONE:
                raise FileNotFoundError(error.errno, "segment is gone", str(path)) from error
            if name not in self.damaged:
                reason = str(getattr(error, "strerror", None) or error).splitlines()[0]
                self.damaged[name] = reason
                warnings.warn(f"{path}: skipped, its records count as missing: {reason}", stacklevel=2)
            return None
        self.damaged.pop(name, None)
        return part

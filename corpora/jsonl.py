"""Any corpus in BEIR's form: a file of JSON lines with ``_id``, ``title`` and ``text`` (``url`` where there is one)."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Self

from tqdm import tqdm

from corpora.artefacts import artefact, content_hash, find_artefact
from corpora.lines import InputError
from corpora.records import read_passages
from corpora.store import FORMAT, PassageStore, build_store
from corpora.types import Passage

NAMES = ("corpus.jsonl", "corpus.jsonl.gz")


class Jsonl:
    """The passages of a file ``corpus.jsonl`` or ``corpus.jsonl.gz``, or of a folder that has one of these.

    The file is read once: on first use a store of its passages is made, and kept as long as the file stays the same.

    Args:
        path: The file or the folder.

    Raises:
        InputError: On first use: no such file, or a line that is no passage (both named).
    """

    version: ClassVar[int] = 1

    def __init__(self, path: Path) -> None:
        self.path = path
        self._store: PassageStore | None = None

    @property
    def store(self) -> PassageStore:
        """The passages on disk, built or opened on first use."""
        if self._store is None:
            file = self._file()
            self._store = PassageStore(artefact("store", self._key(file), lambda folder: _build(file, folder)))
        return self._store

    def pending(self) -> str | None:
        """What has to be done before anything is known of the content; None where the store is there."""
        key = self._key(self._file())
        return None if self._store or find_artefact("store", key) else f"read {self._file()} into a passage store"

    @property
    def fingerprint(self) -> str:
        """A hash of the content: the same for the same passages from another file."""
        return self.store.fingerprint

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

    def _key(self, file: Path) -> str:
        return f"{content_hash(file)}-jsonl{self.version}-store{FORMAT}"

    def _file(self) -> Path:
        path = Path(self.path)
        if not path.is_dir():
            if not path.is_file():
                raise InputError(f"corpus {path}: no such file or folder")
            return path
        found = [path / name for name in NAMES if (path / name).is_file()]
        if len(found) != 1:
            what = "neither" if not found else "both"
            raise InputError(f"corpus {path}: the folder has {what} of {' and '.join(NAMES)}, expected one of them")
        return found[0]


def _build(file: Path, folder: Path) -> None:
    with tqdm(desc=f"store: {file.name}", unit=" passages", disable=not sys.stderr.isatty()) as bar:
        try:
            build_store(read_passages(file), folder, progress=bar.update)
        except InputError:
            raise
        except ValueError as error:
            raise InputError(f"{file}: {error}") from None

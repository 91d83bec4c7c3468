"""Any corpus in BEIR's form: a file of JSON lines with ``_id``, ``title`` and ``text`` (``url`` where there is one)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from corpora.artefacts import content_hash
from corpora.lines import InputError
from corpora.records import read_passages
from corpora.stored import StoredCorpus
from corpora.types import Passage

NAMES = ("corpus.jsonl", "corpus.jsonl.gz")


class Jsonl(StoredCorpus):
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

    def _key(self) -> str:
        return f"{content_hash(self._file())}-jsonl{self.version}"

    def _passages(self) -> Iterator[Passage]:
        return read_passages(self._file())

    def _label(self) -> str:
        return str(self._file())

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

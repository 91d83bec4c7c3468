"""Wikipedia in passages of 100 words, as DPR cut the dump of December 2018.

Karpukhin et al., Dense Passage Retrieval for Open-Domain Question Answering, 2020, https://arxiv.org/abs/2004.04906;
code and data: https://github.com/facebookresearch/DPR (resource ``data.wikipedia_split.psgs_w100``).

The file is a TSV with the header ``id text title`` and csv's quoting (a field in double quotes, quotes inside doubled),
one passage per line. It is read as DPR's first release and Contriever read it: by the csv rules and without any further
change (later releases of DPR strip quotation marks from both ends of a text as well).
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from corpora.artefacts import content_hash
from corpora.assets import Asset, asset_path, fetch
from corpora.lines import InputError, decoded, raw_lines, shown
from corpora.stored import Plan, StoredCorpus, build_needs, size
from corpora.types import Passage

PSGS_W100 = Asset(
    name="wikipedia/psgs_w100.tsv.gz",
    urls=("https://dl.fbaipublicfiles.com/dpr/wikipedia_split/psgs_w100.tsv.gz",),
    sha256="c39b020c855a2b5c25ffef3abe4a3b6f9b829ad7dbc14ec3d163d34d7c53ea8d",
    size=4_694_541_059,
    source="github.com/huggingface/datasets, datasets/wiki_dpr/dataset_infos.json; the url is DPR's download_data.py",
    licence="text of Wikipedia: CC BY-SA 3.0 and GFDL",
)
PASSAGES = 21_015_324
TEXT_BYTES = 13_900_000_000
"""Of identifiers, texts and titles together (wiki_dpr's dataset_infos.json, less its embeddings)."""
HEADER = ["id", "text", "title"]


class Wikipedia(StoredCorpus):
    """The passages of ``psgs_w100.tsv``: downloaded once, or a file of that form.

    Args:
        path: The file, gzip or not; None: DPR's own, 21,015,324 passages (4.4 GiB to download).

    Raises:
        InputError: On first use: no such file, or a line that is no passage (both named).
    """

    version: ClassVar[int] = 1
    _counting: ClassVar[str] = " (nor is the header)"

    def __init__(self, path: Path | None = None) -> None:
        self.path = path

    def plan(self) -> Plan:
        """Download and build: disk, memory, time."""
        if self.path is None:
            there = asset_path(PSGS_W100).exists()
            download = 0 if there else (PSGS_W100.size or 0)
            disk, memory, seconds = build_needs(PASSAGES, TEXT_BYTES)
            first = "" if there else f"download {PSGS_W100.urls[0]} ({size(download)}) and "
            what = f"{first}build a store of {PASSAGES} passages"
            return Plan(what, download, disk + download, memory, seconds)
        file = self._given()
        with file.open("rb") as opened:
            packed = opened.read(2) == b"\x1f\x8b"
        text = int(file.stat().st_size * (TEXT_BYTES / (PSGS_W100.size or 1) if packed else 1))
        passages = text * PASSAGES // TEXT_BYTES
        disk, memory, seconds = build_needs(passages, text)
        return Plan(f"read {file} into a passage store (about {passages} passages)", 0, disk, memory, seconds)

    def prefetch(self) -> None:
        """Download DPR's file, where it is needed and not there; a ValueError where the disk is too small."""
        if self.path is None:
            self.plan().check()
            fetch(PSGS_W100)

    def _key(self) -> str:
        return f"{PSGS_W100.sha256 if self.path is None else content_hash(self._given())}-wikipedia{self.version}"

    def _label(self) -> str:
        return str(asset_path(PSGS_W100) if self.path is None else self.path)

    def _total(self) -> int | None:
        return PASSAGES if self._key().startswith(f"{PSGS_W100.sha256}-") else None

    def _passages(self) -> Iterator[Passage]:
        return read_dpr_tsv(fetch(PSGS_W100) if self.path is None else self._given())

    def _given(self) -> Path:
        path = Path(self.path or "")
        if not path.is_file():
            raise InputError(f"corpus {path}: no such file: name DPR's psgs_w100.tsv or psgs_w100.tsv.gz")
        return path


def read_dpr_tsv(path: Path | str) -> Iterator[Passage]:
    """Yields the passages of a file in the form of ``psgs_w100.tsv``, gzip or not, checked line by line."""
    csv.field_size_limit(sys.maxsize)
    lines = _Lines(path)
    for row in csv.reader(lines, delimiter="\t"):
        line = lines.taken()
        if line == 1:
            if row != HEADER:
                do = "is it DPR's passage file?"
                raise InputError.at(path, 1, found=shown("\t".join(row)), expected="the header id, text, title", do=do)
            continue
        if len(row) != 3:
            found, expected = f"{len(row)} columns", "id, text, title separated by tabs"
            raise InputError.at(path, line, found=found, expected=expected, do="correct this line")
        if row[0].split() != [row[0]]:
            expected = "an id without white space, not empty"
            raise InputError.at(path, line, found=f"id = {shown(row[0])}", expected=expected, do="correct this line")
        yield Passage(row[0], row[1], row[2])


class _Lines:
    """Feeds csv with lines, and refuses a second one for the same record: a quote that is not closed eats the file."""

    def __init__(self, path: Path | str) -> None:
        self.path = path
        self.raw = raw_lines(path)
        self.open: int | None = None  # where the record begins that csv has not finished

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        if self.open is not None:
            found, do = "a quoted field that does not end on its line", "close it, and double the quotes inside"
            raise InputError.at(self.path, self.open, found=found, expected="one passage per line", do=do)
        self.open, raw = next(self.raw)
        return decoded(self.path, self.open, raw)

    def taken(self) -> int:
        """The line of the record that csv has just finished."""
        line, self.open = self.open or 0, None
        return line

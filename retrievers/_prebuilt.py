"""Pyserini's prebuilt indexes by name: its own table says where they are; downloads resume and are checked by MD5."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from corpora.artefacts import artefact, find_artefact
from corpora.assets import Asset, fetch
from corpora.java import start_java

Kind = Literal["sparse", "dense"]
_MARK = {"sparse": "segments_*", "dense": "docid"}


@dataclass(frozen=True, slots=True)
class Prebuilt:
    """An entry of pyserini's table of indexes.

    Attributes:
        name: Pyserini's name, for example ``wikipedia-dpr-100w``.
        kind: ``sparse`` (Lucene) or ``dense`` (FAISS).
        urls: Where its archive is.
        filename: The archive's name.
        md5: The archive's checksum.
        size: The archive's size in bytes; None where the table has none.
        documents: How many documents it holds, by the table.
    """

    name: str
    kind: Kind
    urls: tuple[str, ...]
    filename: str
    md5: str
    size: int | None
    documents: int

    @property
    def stem(self) -> str:
        """What pyserini calls its folder."""
        return f"{re.sub(r'[.]tar[.]gz.*$', '', self.filename)}.{self.md5}"


def find_prebuilt(name: str, kind: Kind) -> Prebuilt:
    """The entry of a name.

    Raises:
        ValueError: Pyserini has no index of that name and kind; names close ones.
    """
    start_java()  # pyserini's table is partly in its jar
    import pyserini.prebuilt_index_info as tables

    table: dict[str, dict[str, Any]] = tables.TF_INDEX_INFO if kind == "sparse" else tables.FAISS_INDEX_INFO
    if name not in table:
        close = difflib.get_close_matches(name, table, n=3)
        hint = f"did you mean {' or '.join(map(repr, close))}?" if close else "see pyserini's list of prebuilt indexes"
        raise ValueError(f"{name!r} is neither a folder nor a {kind} index of pyserini's: {hint}")
    entry = table[name]
    filename = entry.get("filename") or entry["urls"][0].split("/")[-1]
    size = entry.get("size compressed (bytes)")
    return Prebuilt(name, kind, tuple(entry["urls"]), filename, entry["md5"], size, int(entry.get("documents") or 0))


def prebuilt_folder(entry: Prebuilt) -> Path:
    """The folder of a prebuilt index: where pyserini itself keeps it, or in the cache; downloaded where it is absent.

    Raises:
        ValueError: The download fails, is forbidden, or has another checksum than pyserini's table says.
    """
    pyserini_cache = Path(os.environ.get("PYSERINI_CACHE") or Path.home() / ".cache" / "pyserini")
    if (there := pyserini_cache / "indexes" / entry.stem).is_dir():
        return there
    key = re.sub(r"[^A-Za-z0-9._+=@,-]", "_", entry.stem)[-200:].lstrip("._+=@,-")
    folder = find_artefact("prebuilt", key) or artefact("prebuilt", key, lambda path: _unpack(entry, path))
    found = sorted(folder.rglob(_MARK[entry.kind]))
    if not found:
        raise ValueError(f"prebuilt index {entry.name!r} in {folder} lacks {_MARK[entry.kind]}: remove the folder")
    return found[0].parent


def _unpack(entry: Prebuilt, folder: Path) -> None:
    source = "https://github.com/castorini/pyserini (prebuilt_index_info.py)"
    size = entry.size if entry.size and entry.size > 0 else None
    archive = fetch(Asset(f"pyserini/{entry.filename}", entry.urls, size=size, source=source))
    with archive.open("rb") as file:
        md5 = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if md5 != entry.md5:
        raise ValueError(f"{archive} has the MD5 {md5}, pyserini's table says {entry.md5}: remove the file, try again")
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    except (tarfile.TarError, EOFError) as error:
        raise ValueError(f"{archive} cannot be unpacked: {error}") from error
    archive.unlink()  # the index takes its place

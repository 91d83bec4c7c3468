"""Lucene indexes as others made them: opened, and read passage by passage from their stored fields.

Two forms are known. Anserini's own: ``id``, and ``raw`` holding the JSON line that was indexed or ``contents`` its
text. Sphere's (https://github.com/facebookresearch/Sphere): ``id`` holds a JSON object with ``title`` and ``url``,
and ``raw`` the passage's text, as https://github.com/princeton-nlp/ALCE (retrieval.py) reads it. The index itself
(775.6 GiB) was not at hand when this was written: a form that differs is refused in one line, not guessed.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from corpora.java import java_class, java_message
from corpora.types import Passage

_BLANK = re.compile(r"\s")
_ID_KEYS = ("id", "_id", "docid")
_TEXT_KEYS = ("contents", "text", "passage")


def open_lucene_index(path: Path) -> Any:
    """A reader (``DirectoryReader``) of a Lucene 8 or 9 index; close it by ``close()``.

    Raises:
        ValueError: The folder is missing, is no index, is damaged, or of another Lucene.
    """
    if not path.is_dir():
        raise ValueError(f"there is no folder {path}: expected a Lucene index")
    paths = java_class("java.nio.file.Paths")
    folder = java_class("org.apache.lucene.store.FSDirectory").open(paths.get(str(path)))
    try:
        return java_class("org.apache.lucene.index.DirectoryReader").open(folder)
    except Exception as error:
        raise ValueError(f"{path} cannot be opened as a Lucene 8 or 9 index: {java_message(error)}") from error


def lucene_fingerprint(path: Path) -> str:
    """A hash of the index' commit, which names all its files and their random ids; reads a few hundred bytes.

    Raises:
        ValueError: The folder holds no commit.
    """
    commits = [file for file in path.glob("segments_*") if file.is_file()]
    if not commits:
        raise ValueError(f"{path} is no Lucene index: it has no file segments_N")
    return hashlib.sha256(max(commits, key=lambda file: int(file.name[9:], 36)).read_bytes()).hexdigest()[:32]


def passage_id(docid: str) -> str:
    """The passage identifier of a document: its id, or the ``id`` inside where that is a JSON object.

    Identifiers have no white space here, so any in a document's id becomes ``%20`` and the like.
    """
    if docid[:1] == "{":
        inner = _object(docid)
        docid = next((str(inner[key]) for key in _ID_KEYS if inner.get(key) not in (None, "")), docid)
    return _BLANK.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), docid)


def read_lucene_passages(path: Path, start: int = 0, stop: int | None = None) -> Iterator[Passage]:
    """Yields the passages that a Lucene index has stored, in the index' order, without those deleted.

    Args:
        path: Folder of the index.
        start: First document, counted from 0; several processes can read ranges of one index.
        stop: The document after the last; None: to the end.

    Raises:
        ValueError: The index has not stored the passages' texts, or in no form that is known.
    """
    reader = open_lucene_index(path)
    try:
        fields, live = reader.storedFields(), java_class("org.apache.lucene.index.MultiBits").getLiveDocs(reader)
        for row in range(start, min(reader.maxDoc(), sys.maxsize if stop is None else stop)):
            if live is None or live.get(row):
                document = fields.document(row)
                stored = {name: document.get(name) for name in ("id", "raw", "contents")}
                yield _passage(stored, f"{path}, document {row}")
    finally:
        reader.close()


def _passage(stored: dict[str, str | None], where: str) -> Passage:
    docid, raw = stored["id"], stored["raw"]
    if not docid:
        raise ValueError(f"{where}: no stored field 'id'")
    about = _object(docid)
    if raw is None:
        if stored["contents"] is None:
            raise ValueError(f"{where}: neither 'raw' nor 'contents' is stored, so its text cannot be read")
        text, source = stored["contents"], about
    elif not about and (line := _object(raw)):
        texts = [line[key] for key in _TEXT_KEYS if isinstance(line.get(key), str)]
        if not texts:
            raise ValueError(f"{where}: 'raw' has the keys {', '.join(line)}, expected one of {', '.join(_TEXT_KEYS)}")
        text, source = texts[0], line
    else:
        text, source = raw, about
    title, url = (source.get(key) or "" for key in ("title", "url"))
    return Passage(passage_id(docid), text, str(title), str(url))


def _object(text: str) -> dict[str, Any]:
    """The JSON object that a text is, or an empty one."""
    if text.lstrip()[:1] != "{":
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}

"""The forms in which Sphere's passages are kept: JSONL shards, and the metadata of distributed-faiss."""

from __future__ import annotations

import hashlib
import io
import pickle
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from corpora.artefacts import content_hash
from corpora.fingerprint import digest
from corpora.lines import InputError, decoded, json_lines, json_object, json_value, shown
from corpora.records import Record
from corpora.types import Passage

_TARS = (".tar", ".tar.gz", ".tgz")
_SHARDS = (".jsonl", ".jsonl.gz", *_TARS)
_WHOLE_BYTES = 1 << 30
_ENDS = 1 << 20


def files_key(files: Sequence[Path]) -> str:
    """A hash of names, sizes and contents; of files above 1 GiB only both ends are read: nobody hashes a terabyte."""
    described: list[object] = []
    for file in files:
        n = file.stat().st_size
        if n <= _WHOLE_BYTES:
            described.append([file.name, n, content_hash(file)])
            continue
        with file.open("rb") as opened:
            ends = opened.read(_ENDS)
            opened.seek(-_ENDS, io.SEEK_END)
            described.append([file.name, n, hashlib.sha256(ends + opened.read()).hexdigest()])
    return digest(described)


def hash_of(seed: int, passage_id: str) -> int:
    """A 64-bit hash for drawing samples, the same on every machine."""
    text = f"{seed}:{passage_id}".encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar archive; nothing in it can be written outside of the folder."""
    try:
        with tarfile.open(archive, "r|*") as tar:
            tar.extractall(folder, filter="data")
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise InputError(f"{archive}: damaged archive ({error}): remove it to download it again") from None


def jsonl_files(place: Path) -> list[Path]:
    """The shards of a folder, by name, or the file itself."""
    if place.is_file():
        return [place]
    found = sorted(file for file in place.rglob("*") if file.is_file() and file.name.endswith(_SHARDS))
    if not found:
        raise InputError(f"corpus {place}: no file that ends in {', '.join(_SHARDS)}")
    return found


def jsonl_passages(place: Path) -> Iterator[Passage]:
    """Yields the passages of shards with ``id``, ``url``, ``title`` and ``raw`` (``text``) on each line.

    Other fields (``sha``, ``vector``) are not kept. Archives are read without unpacking them.
    """
    for file in jsonl_files(place):
        for record in _tar_records(file) if file.name.endswith(_TARS) else _records(file):
            text = record.text("raw" if "raw" in record.fields else "text")
            title, url = record.text("title", optional=True), record.text("url", optional=True)
            yield Passage(record.identifier("id", number=True), text, title, url)


def _records(file: Path) -> Iterator[Record]:
    for line, fields in json_lines(file):
        yield Record(file, line, fields)


def _tar_records(file: Path) -> Iterator[Record]:
    try:
        with tarfile.open(file, "r|*") as tar:
            for member in tar:
                lines = tar.extractfile(member) if member.name.endswith(".jsonl") else None
                for number, raw in enumerate(lines or (), 1):
                    where = f"{file}/{member.name}"
                    if text := decoded(where, number, raw).strip():
                        yield Record(where, number, json_object(where, number, json_value(where, number, text)))
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise InputError(f"{file}: damaged archive ({error}): fetch it again") from None


def partitions(place: Path) -> list[Path]:
    """The partition folders of a distributed-faiss index, in the order of their numbers: those with ``meta.pkl``."""
    found = [file.parent for file in place.rglob("meta.pkl")]
    if not found:
        raise InputError(
            f"{place}: no partition of a distributed-faiss index in it (folders with index.faiss, meta.pkl)"
        )
    return sorted(found, key=lambda folder: (int(folder.name) if folder.name.isdecimal() else -1, str(folder)))


class _PlainUnpickler(pickle.Unpickler):
    """Reads what is made of lists, tuples, dicts, texts, bytes and numbers alone.

    A pickle can run code only through a class or function that it looks up by name, and every such look-up comes here
    (``find_class``; objects kept elsewhere come to ``persistent_load``). Both refuse, so nothing of a file can run.
    """

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, expected plain lists, texts and numbers")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("it refers to objects outside, expected plain lists, texts and numbers")


def read_metadata(file: Path) -> list[Any]:
    """The rows of a ``meta.pkl``: one per vector, ``(id, text, title, flag)`` with text and title packed by zlib.

    The list is in memory as a whole: about 15 GB for one of Sphere's 32 partitions.

    Raises:
        InputError: It is no pickle, a damaged one, or holds anything else than plain values.
    """
    try:
        with file.open("rb") as opened:
            rows = _PlainUnpickler(opened).load()
    except FileNotFoundError:
        raise InputError(f"{file}: no such file") from None
    except Exception as error:  # a damaged pickle raises almost anything
        raise InputError(
            f"{file}: refused as metadata: {' '.join(str(error).split()) or type(error).__name__}"
        ) from None
    if not isinstance(rows, list):
        raise InputError(f"{file}: found {type(rows).__name__}, expected a list with a row per vector")
    return rows


def row_id(file: Path, row: int, value: Any) -> str:
    """The identifier of a row: its first field, or the row itself."""
    found = value[0] if isinstance(value, list | tuple) and value else value
    if isinstance(found, int | str) and not isinstance(found, bool) and str(found).split() == [str(found)]:
        return str(found)
    raise InputError(f"{file}: row {row} is {shown(value)}, expected a tuple that begins with an id of one word")


def dense_passages(place: Path) -> Iterator[Passage]:
    """Yields the passages in the metadata of a dense index, partition after partition."""
    for folder in partitions(place):
        file = folder / "meta.pkl"
        for row, value in enumerate(read_metadata(file)):
            passage_id = row_id(file, row, value)
            if not isinstance(value, list | tuple) or len(value) < 3:
                raise InputError(f"{file}: row {row} is {shown(value)}, expected (id, text, title, ...)")
            yield Passage(passage_id, _text(file, row, value[1]), _text(file, row, value[2]))


def _text(file: Path, row: int, value: Any) -> str:
    try:
        return value if isinstance(value, str) else zlib.decompress(value).decode()
    except (TypeError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"{file}: row {row} has {shown(value)} ({error}), expected a text packed by zlib") from None

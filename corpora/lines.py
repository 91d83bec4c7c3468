"""Lines and JSON records of files, plain or gzip; errors name the place; files are written whole or not at all."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from corpora.artefacts import atomic_file

_GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"


class InputError(ValueError):
    """A file that cannot be used; the message is one line: ``PATH:LINE: found ..., expected ...: do ...``."""

    @classmethod
    def at(cls, path: Path | str, line: int | None, *, found: str, expected: str, do: str) -> InputError:
        """Returns the error for one place of a file; ``line`` is None where the file as a whole is meant."""
        where = f"{path}:{line}" if line is not None else f"{path}"
        return cls(" ".join(f"{where}: found {found}, expected {expected}: {do}".splitlines()))


def shown(value: object, width: int = 60) -> str:
    """Returns a value as an error message shows it: one line, shortened."""
    text = repr(value)
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):
            text = repr(value.decode())
    return text if len(text) <= width else f"{text[:width]}..."


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Yields the (decompressed) bytes; gzip is recognised by content, so that the suffix does not matter."""
    expected, do = "a readable file", "check the path"
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise InputError.at(path, None, found="nothing there", expected=expected, do=do) from None
    except IsADirectoryError:
        raise InputError.at(path, None, found="a folder", expected="a file", do="name a file inside it") from None
    except OSError as error:
        raise InputError.at(path, None, found=str(error.strerror), expected=expected, do=do) from None
    with file:
        if file.peek(2)[:2] == _GZIP_MAGIC:
            # GzipFile's own line iteration is slow; the buffer on top makes it as fast as a plain file
            yield cast(BinaryIO, io.BufferedReader(gzip.GzipFile(fileobj=file), 1 << 18))
        else:
            yield file


def raw_lines(path: Path | str) -> Iterator[tuple[int, bytes]]:
    """Yields (line number from 1, bytes of the line with its end); a byte order mark is dropped."""
    path, number = Path(path), 0
    with _opened(path) as file:
        try:
            for number, raw in enumerate(file, 1):
                yield number, raw.removeprefix(_BOM) if number == 1 else raw
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            do = "fetch or compress it again"
            found = f"damaged gzip data ({error})"
            raise InputError.at(path, number + 1, found=found, expected="a whole gzip file", do=do) from None
    if number == 0:
        raise InputError.at(path, None, found="an empty file", expected="at least one line", do="write it again")


def decoded(path: Path | str, number: int, raw: bytes) -> str:
    """Returns the text of a line, without its end."""
    try:
        return raw.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        found = f"byte 0x{raw[error.start]:02x} at column {error.start + 1}"
        do = "save the file as UTF-8"
        raise InputError.at(path, number, found=found, expected="UTF-8 text", do=do) from None


def json_value(path: Path | str, number: int, text: str) -> object:
    """Returns the JSON value of one text that starts at a line."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        found = f"{shown(text[max(0, error.pos - 20) : error.pos + 20])} at column {error.colno} ({error.msg})"
        line = number + error.lineno - 1
    except (ValueError, RecursionError) as error:
        found, line = f"{shown(text[:20])} ({error})", number
    raise InputError.at(path, line, found=found, expected="valid JSON", do="correct or remove it") from None


def json_lines(path: Path | str) -> Iterator[tuple[int, dict[str, object]]]:
    """Yields (line number, object) of a JSONL file; blank lines are skipped."""
    seen = False
    for number, raw in raw_lines(path):
        text = decoded(path, number, raw)
        if not text.strip():
            continue
        seen = True
        yield number, json_object(path, number, json_value(path, number, text))
    if not seen:
        raise InputError.at(path, None, found="blank lines only", expected="JSON objects", do="write it again")


def json_object(path: Path | str, number: int, value: object) -> dict[str, object]:
    """Returns the value if it is a JSON object."""
    if isinstance(value, dict):
        return value
    found, do = f"{type(value).__name__} {shown(value)}", "write one {...} per record"
    raise InputError.at(path, number, found=found, expected="a JSON object", do=do)


@contextmanager
def published(path: Path | str) -> Iterator[BinaryIO]:
    """Yields a binary file that appears under its name only when all is written; a ``.gz`` name compresses.

    The bytes are a function of the content: the gzip header holds neither a time nor a name.
    """
    path = Path(path)
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        if path.suffix == ".gz":
            with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0) as packed:
                yield cast(BinaryIO, packed)
        else:
            yield file


def write_lines(path: Path | str, lines: Iterable[str]) -> None:
    """Writes lines (without their ends) as UTF-8."""
    with published(path) as file:
        file.writelines(f"{line}\n".encode() for line in lines)


def to_json(record: object) -> str:
    """Returns a record as one line of JSON."""
    return json.dumps(record, ensure_ascii=False, allow_nan=False)

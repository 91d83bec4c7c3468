"""Files from the net: resumed downloads with mirrors, sizes, checksums and an offline switch.

pooch verifies and caches but begins a broken download again, which a file of terabytes cannot afford, and it knows no
mirrors; huggingface_hub resumes, but only on its own hub. So this module is a small layer over ``urllib``, and the base
install needs no further package. Data sets with many files are left to ``datasets`` (``corpora/hub.py``).

A checksum that nobody publishes is None: then the one of the first complete download is kept in the cache
(``<cache>/assets/<name>.json``), and a later download that differs is refused (trust on first use).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import http.client
import json
import os
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from tqdm import tqdm

from corpora.artefacts import cache_root, content_hash, write_atomic

OFFLINE_VARIABLES = ("RETRIEVAL_DIVERSITY_OFFLINE", "HF_HUB_OFFLINE")
TIMEOUT_S = 60.0
"""A connection that gives no byte for so long is taken as broken."""
ATTEMPTS = 5
"""So many connections to one mirror in a row may break without bringing a byte."""
PAUSE_S = 1.0
"""Wait after a broken connection that brought nothing; doubled every time."""
SPARE_BYTES = 64 << 20
"""Left free on the disk."""


class AssetError(ValueError):
    """A file could not be had; the message is one line."""


class _MirrorError(Exception):
    """This mirror does not have the file as it should be: try the next."""


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that is downloaded once.

    Attributes:
        name: Its name in the cache, a relative path.
        urls: Where it is, the original place first; the others are mirrors.
        sha256: Its published checksum; None where none is known.
        size: Its published size in bytes; None where it is not known exactly.
        source: Where url, checksum and size are published.
        licence: Its licence as published.
    """

    name: str
    urls: tuple[str, ...]
    sha256: str | None = None
    size: int | None = None
    source: str = ""
    licence: str = ""


def offline() -> str | None:
    """The environment variable that forbids downloads, as ``NAME=value``; None where they are allowed."""
    for name in OFFLINE_VARIABLES:
        value = os.environ.get(name, "")
        if value.strip().lower() in ("1", "true", "yes", "on"):
            return f"{name}={value}"
    return None


def asset_path(asset: Asset) -> Path:
    """Where the file lies in the cache once it is there; a file put there by hand is taken, after its checks."""
    parts = Path(asset.name).parts
    if not parts or ".." in parts or Path(asset.name).is_absolute():
        raise ValueError(f"asset name {asset.name!r}: expected a relative path")
    return cache_root() / "assets" / asset.name


def recorded(asset: Asset) -> dict[str, Any]:
    """What the cache knows of the file: url, sha256, size, date, commit (of a hub); empty where nothing is known."""
    return _json(_record_path(asset))


def fetch(asset: Asset) -> Path:
    """The file, downloaded where it is not in the cache; a broken download is resumed, also by a later process.

    Raises:
        AssetError: It cannot be had: offline, no mirror has it, truncated, wrong checksum or size, no room.
    """
    path = asset_path(asset)
    if _present(asset, path):
        return path
    if forbidden := offline():
        do = f"unset it, or put the file of {' or '.join(asset.urls)} at {path}"
        raise AssetError(f"{asset.name} is not in the cache and {forbidden} forbids downloads: {do}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(_beside(path, "lock")):
        if _present(asset, path):  # another process has brought it meanwhile
            return path
        problems = []
        for url in asset.urls:
            try:
                headers = _download(asset, url, path)
                _publish(asset, url, path, headers)
                return path
            except _MirrorError as problem:
                problems.append(f"{url}: {problem}")
    raise AssetError(f"cannot download {asset.name}: {'; '.join(problems) or 'it has no url'}")


def _record_path(asset: Asset) -> Path:
    return asset_path(asset).with_name(f"{Path(asset.name).name}.json")


def _expected(asset: Asset) -> tuple[str | None, str]:
    """The checksum that is wanted, and who says so."""
    if asset.sha256:
        return asset.sha256, asset.source or "published"
    return recorded(asset).get("sha256"), f"seen at the first download, kept in {_record_path(asset)}"


def _present(asset: Asset, path: Path) -> bool:
    """Whether the file is there; its content is hashed again only when its time stamp or size changed."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return False
    if recorded(asset).get("stamp") != [stat.st_size, stat.st_mtime_ns]:
        _check(asset, path, f"remove {path} to download it again")
        _record(asset, path, "put there by hand", {})
    return True


def _check(asset: Asset, path: Path, do: str) -> None:
    size, (wanted, by) = path.stat().st_size, _expected(asset)
    if asset.size is not None and size != asset.size:
        raise AssetError(f"{asset.name} has {size} bytes, expected {asset.size}: {do}")
    if wanted is not None and (found := content_hash(path)) != wanted:
        raise AssetError(f"{asset.name} has the wrong checksum {found}, expected {wanted} ({by}): {do}")


def _record(asset: Asset, path: Path, url: str, headers: dict[str, str]) -> None:
    stat = path.stat()
    entry: dict[str, Any] = {"url": url, "sha256": asset.sha256 or recorded(asset).get("sha256") or content_hash(path)}
    entry |= {"size": stat.st_size, "date": time.strftime("%Y-%m-%d"), "stamp": [stat.st_size, stat.st_mtime_ns]}
    entry |= {"commit": headers.get("x-repo-commit"), "etag": headers.get("etag")}
    write_atomic(_record_path(asset), json.dumps(entry | {"source": asset.source, "licence": asset.licence}, indent=1))


def _publish(asset: Asset, url: str, path: Path, headers: dict[str, str]) -> None:
    part = _beside(path, "part")
    try:
        _check(asset, part, "the download is dropped")
    except AssetError as error:
        part.unlink()
        raise _MirrorError(str(error).removeprefix(f"{asset.name} ")) from None
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.replace(path)
    _record(asset, path, url, headers)
    _beside(path, "state").unlink(missing_ok=True)


def _beside(path: Path, end: str) -> Path:
    return path.with_name(f".{path.name}.{end}")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keeps other processes of this machine from writing to the same partial file."""
    with path.open("wb") as file:
        with contextlib.suppress(OSError):  # a file system without locks: as before
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _download(asset: Asset, url: str, path: Path) -> dict[str, str]:
    """Bring the partial file to its full length, in as many connections as it takes; returns the last headers."""
    failures, part = 0, _beside(path, "part")
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            headers, total = _connect(asset, url, path)
            have = part.stat().st_size
            if total is None or have == total:
                return headers
            problem = f"truncated download, got {have} of {total} bytes"
        except (TimeoutError, ConnectionError, urllib.error.URLError, http.client.HTTPException) as error:
            problem = str(getattr(error, "reason", None) or error) or type(error).__name__
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise AssetError(
                f"no room for {asset.name} in {path.parent}: make room and start again, what is there is kept"
            ) from None
        have = part.stat().st_size if part.exists() else 0
        failures = 0 if have > before else failures + 1
        if failures >= ATTEMPTS:
            raise _MirrorError(f"{problem} (start again to resume)" if have else problem)
        if failures:
            time.sleep(PAUSE_S * 2 ** (failures - 1))


def _connect(asset: Asset, url: str, path: Path) -> tuple[dict[str, str], int | None]:
    """One connection: append what is missing, or write anew where the server has another file or knows no ranges."""
    if not url.startswith(("http://", "https://")):
        raise _MirrorError("expected http or https")
    part, state = _beside(path, "part"), _json(_beside(path, "state"))
    have = part.stat().st_size if part.exists() else 0
    if have and url != state.get("url") and not (asset.sha256 or _expected(asset)[0]):
        have = 0  # without a checksum nothing says that two mirrors have the same file
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity", "User-Agent": "retrieval-diversity"})  # noqa: S310
    if have:
        request.add_header("Range", f"bytes={have}-")
        if (validator := state.get("validator")) and url == state.get("url"):
            request.add_header("If-Range", validator)
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT_S)  # noqa: S310
    except urllib.error.HTTPError as error:
        with error:
            return _refused(error, part, have, state)
    with response:
        headers = {name.lower(): value for name, value in response.headers.items()}
        start, total = _extent(headers, response.status)
        if start != have or (start and state.get("total") not in (None, total)):
            if start:
                raise _MirrorError(
                    f"answers from byte {start} of {total}, asked from byte {have} of {state.get('total')}"
                )
            have = 0
        if asset.size is not None and total is not None and total != asset.size:
            raise _MirrorError(f"has {total} bytes, expected {asset.size}")
        _room(asset, path, total, have)
        etag = headers.get("etag", "")
        validator = etag if etag and not etag.startswith("W/") else headers.get("last-modified")
        write_atomic(_beside(path, "state"), json.dumps({"url": url, "validator": validator, "total": total}))
        with part.open("r+b" if have else "wb") as file:
            file.truncate(have)
            file.seek(have)
            _copy(response, file, asset.name, total)
    return headers, total


def _json(path: Path) -> dict[str, Any]:
    """An object that was kept in a file; empty where there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _refused(error: urllib.error.HTTPError, part: Path, have: int, state: dict[str, Any]) -> tuple[dict[str, str], int]:
    if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and have:
        if have == state.get("total"):
            return {}, have  # it was complete already
        part.unlink()
        raise urllib.error.URLError("the partial file does not fit what the server has: begun again")
    if error.code >= 500 or error.code == http.HTTPStatus.TOO_MANY_REQUESTS:
        raise urllib.error.URLError(f"HTTP {error.code} {error.reason}")
    raise _MirrorError(f"HTTP {error.code} {error.reason}")


def _extent(headers: dict[str, str], status: int) -> tuple[int, int | None]:
    """The first byte of the answer, and the length of the whole file."""
    if status == http.HTTPStatus.PARTIAL_CONTENT:
        span, _, whole = headers.get("content-range", "").removeprefix("bytes ").partition("/")
        start = span.partition("-")[0]
        if not (start.isdecimal() and whole.isdecimal()):
            raise _MirrorError(f"unusable Content-Range {headers.get('content-range')!r}")
        return int(start), int(whole)
    length = headers.get("content-length", "")
    return 0, int(length) if length.isdecimal() else None


def _room(asset: Asset, path: Path, total: int | None, have: int) -> None:
    missing = (total or 0) - have
    free = shutil.disk_usage(path.parent).free
    if missing + SPARE_BYTES > free:
        gib = f"{missing / 2**30:.1f} GiB to download, {free / 2**30:.1f} GiB free"
        raise AssetError(f"no room for {asset.name} in {path.parent}: {gib}: make room or choose another --cache")


def _copy(response: http.client.HTTPResponse, file: BinaryIO, name: str, total: int | None) -> None:
    quiet = not sys.stderr.isatty()
    with tqdm(desc=name, total=total, initial=file.tell(), unit="B", unit_scale=True, disable=quiet) as bar:
        while block := response.read(1 << 20):
            file.write(block)
            bar.update(len(block))

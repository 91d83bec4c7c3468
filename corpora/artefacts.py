"""What is kept on disk under a key: the cache's root, folder artefacts, atomic files, content hashes.

Light on purpose (standard library only): planning a sweep asks here what is done, thousands of times.
Everything becomes visible by one rename, so that a process may be killed at any moment.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import platform
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

CACHE_VARIABLE = "RETRIEVAL_DIVERSITY_CACHE"
GRACE_S = 24 * 3600.0
"""A dead process's temporary files are removed when nothing in them changed for this long."""
FOREIGN_GRACE_S = 7 * 24 * 3600.0
"""The same for temporary files of other machines, where nobody here can tell whether the process lives."""
MEMO_BYTES = 1 << 20
"""Files at least this large have their hashes remembered; smaller ones are hashed again."""
SETTLED_S = 2.0
"""A file changed more recently is not remembered: a second change might leave the same time stamp."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+=@,-]{0,199}")
_TEMPORARY = re.compile(r"\.tmp-(?P<host>.*)-(?P<pid>\d+)-[0-9a-f]{32}(-.*)?", re.DOTALL)
_UNWRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST}


def cache_root() -> Path:
    """Returns the cache's folder: ``$RETRIEVAL_DIVERSITY_CACHE``, else ``retrieval_diversity`` in the user's cache."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says that relative paths in this variable are to be ignored.
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "retrieval_diversity"


def artefact(stage: str, key: str, make: Callable[[Path], None]) -> Path:
    """Returns the folder ``<cache>/<stage>/<key>``; made once, whoever comes first.

    Args:
        stage: Kind of artefact, for example ``search``.
        key: Hash of exactly what the artefact depends on.
        make: Fills the empty folder that it is given; when it raises, nothing is left behind.
    """
    place = _place(stage, key)
    if place.is_dir():
        return place
    with _writable(place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
        remove_stale(place.parent)
        temporary = place.parent / _temporary_name()
        temporary.mkdir()
    try:
        make(temporary)
        _sync_tree(temporary)
        try:
            temporary.rename(place)
        except OSError:
            if not place.is_dir():
                raise
        _sync(place.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return place


def find_artefact(stage: str, key: str) -> Path | None:
    """Returns the artefact's folder, or None where it has not been made."""
    place = _place(stage, key)
    return place if place.is_dir() else None


def list_artefacts(stage: str) -> list[str]:
    """Returns the keys of all published artefacts of a stage, sorted."""
    folder = _place(stage, "key").parent
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if _NAME.fullmatch(entry.name) and entry.is_dir())
    except FileNotFoundError:
        return []


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yields a temporary path to write to; it is synced and renamed to ``path`` at the end, or removed on errors.

    The temporary name ends like the final one. It is random: give ``gzip`` an empty ``filename``, because that
    format stores the name.
    """
    temporary = path.parent / _temporary_name(path.name[-80:])
    with _writable(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.open("xb").close()
    try:
        yield temporary
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomic(path: Path, data: bytes | str) -> None:
    """Writes a file (text as UTF-8) so that others see either what was there before or the whole of it."""
    with atomic_file(path) as temporary:
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)


def remove_stale(folder: Path) -> None:
    """Removes what dead processes left half-written in this folder, after a grace period."""
    with os.scandir(folder) as entries:
        found = [(Path(entry.path), match) for entry in entries if (match := _TEMPORARY.fullmatch(entry.name))]
    for path, match in found:
        here = match["host"] == platform.node()
        if here and _alive(int(match["pid"])):
            continue
        if time.time() - _newest(path) > (GRACE_S if here else FOREIGN_GRACE_S):
            shutil.rmtree(path, ignore_errors=True)
            with contextlib.suppress(OSError):  # a folder, gone already, or another user's: not ours to mind
                path.unlink()


def content_hash(path: Path) -> str:
    """Returns the SHA-256 of a file's content, or of a folder's relative names and contents.

    Hashes of large files are remembered in the cache as long as path, size, times and inode stay the same.
    """
    path = Path(os.path.abspath(path))
    if not path.is_dir():
        return _file_hash(path)
    digest = hashlib.sha256(b"folder\n")
    for file in sorted(_files(path), key=lambda file: file.relative_to(path).as_posix()):
        name = os.fsencode(file.relative_to(path).as_posix())
        digest.update(b"%d:%s=%s\n" % (len(name), name, _file_hash(file).encode()))
    return digest.hexdigest()


def _file_hash(path: Path) -> str:
    before = _stamp(path)
    memo = cache_root() / "content_hash" / f"{hashlib.sha256(os.fsencode(path)).hexdigest()}.json"
    if before["size"] >= MEMO_BYTES and (known := _remembered(memo, before)):
        return known
    with path.open("rb") as file:
        value = hashlib.file_digest(file, "sha256").hexdigest()
    if before != _stamp(path):
        raise ValueError(f"{path} changed while it was being read: wait until it is complete")
    settled = time.time_ns() - max(before["mtime_ns"], before["ctime_ns"]) >= SETTLED_S * 1e9
    if before["size"] >= MEMO_BYTES and settled:
        with contextlib.suppress(OSError, ValueError):  # a cache that cannot be written costs time, nothing else
            write_atomic(memo, json.dumps({"path": str(path), "stamp": before, "sha256": value}))
    return value


def _stamp(path: Path) -> dict[str, int]:
    stat = path.stat()
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "inode": stat.st_ino, "ctime_ns": stat.st_ctime_ns}


def _remembered(memo: Path, stamp: dict[str, int]) -> str | None:
    try:
        entry = json.loads(memo.read_text())
    except (OSError, ValueError):
        return None
    return str(entry["sha256"]) if isinstance(entry, dict) and entry.get("stamp") == stamp else None


def _files(folder: Path) -> Iterator[Path]:
    """Yields all files below a folder, links followed: a linked model is content too."""
    for path in folder.iterdir():
        if path.is_dir():
            yield from _files(path)
        else:
            yield path


def _place(stage: str, key: str) -> Path:
    for what, name in (("stage", stage), ("key", key)):
        if not _NAME.fullmatch(name):
            raise ValueError(f"{what} {name!r} is no safe file name: use letters, digits and ._+=@,- (at most 200)")
    return cache_root() / stage / key


def _temporary_name(end: str = "") -> str:
    return f".tmp-{platform.node()[:64]}-{os.getpid()}-{uuid.uuid4().hex}" + (f"-{end}" if end else "")


@contextlib.contextmanager
def _writable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        message = f"cannot write to {folder} ({error.strerror}): choose another place: results --output, the cache "
        raise ValueError(message + f"--cache or ${CACHE_VARIABLE}") from error


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _newest(path: Path) -> float:
    newest = 0.0
    for folder, _, names in os.walk(path):
        for name in [folder, *(os.path.join(folder, name) for name in names)]:
            with contextlib.suppress(OSError):
                newest = max(newest, os.lstat(name).st_mtime)
    with contextlib.suppress(OSError):
        newest = max(newest, path.lstat().st_mtime)
    return newest


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EBADF}:  # no sync of folders there
            raise
    finally:
        os.close(handle)


def _sync_tree(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_symlink():
            continue
        if path.is_dir():
            _sync_tree(path)
        else:
            _sync(path)
    _sync(folder)

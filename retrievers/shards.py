"""Shards of vectors on disk: where they lie, what they say of themselves, and whether that is true.

In the cache, where the key is a hash of the whole corpus, the encoder, the dtype and the format:

    vectors/<key>/rows-<start>-<stop>/manifest.json    a shard: what it holds; the name, size and SHA-256 of its file
    vectors/<key>/rows-<start>-<stop>/<hash>.npy       its vectors, fp16 or fp32 (rows, dimension)
    vectors/<key>/blocks/...                           finished blocks of a shard in the making (encoding.py)

Rows are those of the whole corpus, whichever part was encoded. Any shards that cover a corpus serve it, overlapping or
not. Opening checks manifests and sizes; ``verify`` also reads the vectors and checks their hashes.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpora.artefacts import cache_root
from corpora.fingerprint import digest

FORMAT = 1
DTYPES: dict[str, np.dtype[Any]] = {"fp16": np.dtype("<f2"), "fp32": np.dtype("<f4")}

_SHARD = re.compile(r"rows-\d+-\d+")
_AGAIN = "remove the folder and its rows are encoded again"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a shard holds; ``max_norm`` is at least the length of its longest vector."""

    format: int
    corpus: str
    encoder: str
    dtype: str
    dimension: int
    start: int
    stop: int
    max_norm: float
    file: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """Mapped vectors of the rows ``start:stop``; ``max_norm`` is None where nobody knows it."""

    start: int
    stop: int
    data: NDArray[np.floating]
    max_norm: float | None


def vectors_folder(corpus: str, encoder: str, dtype: str) -> Path:
    """Where the vectors of a whole corpus lie: a function of both fingerprints, the dtype and the format."""
    if dtype not in DTYPES:
        raise ValueError(f"dtype {dtype!r} is unknown: expected {' or '.join(DTYPES)}")
    return cache_root() / "vectors" / digest({"corpus": corpus, "encoder": encoder, "dtype": dtype, "format": FORMAT})


def is_shard(folder: Path) -> bool:
    """Whether this is the folder of a published shard."""
    return _SHARD.fullmatch(folder.name) is not None and (folder / "manifest.json").is_file()


def shard_folders(folder: Path) -> list[Path]:
    """The published shards in a folder of vectors."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if is_shard(path))


def read_manifest(folder: Path, corpus: str | None = None, encoder: str | None = None) -> Manifest:
    """What a shard holds; its size is checked, its vectors are not read.

    Args:
        folder: The shard.
        corpus: Fingerprint of the whole corpus that it must be of; None: any.
        encoder: Fingerprint of the encoder that must have made it; None: any.

    Raises:
        ValueError: Another corpus or encoder, another format, or a damaged shard.
    """
    try:
        values = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        manifest = Manifest(**{field.name: values[field.name] for field in fields(Manifest)})
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"shard {folder}: manifest.json is damaged: {_AGAIN}") from None
    if manifest.format != FORMAT:
        raise ValueError(f"shard {folder} is of format {manifest.format}, expected {FORMAT}: {_AGAIN}")
    for what, found, expected in (("corpus", manifest.corpus, corpus), ("encoder", manifest.encoder, encoder)):
        if expected is not None and found != expected:
            raise ValueError(f"shard {folder} was made with another {what}: its fingerprint is {found}, not {expected}")
    path = folder / manifest.file
    size = path.stat().st_size if path.is_file() else -1
    if size != manifest.bytes:
        raise ValueError(f"shard {path} has {max(size, 0)} bytes, expected {manifest.bytes}: {_AGAIN}")
    return manifest


def open_shard(folder: Path, manifest: Manifest) -> Shard:
    """The shard's vectors, mapped."""
    rows, dtype = manifest.stop - manifest.start, DTYPES[manifest.dtype]
    data = map_array(folder / manifest.file)
    if data.shape != (rows, manifest.dimension) or data.dtype != dtype:
        raise ValueError(f"shard {folder} holds {data.dtype} {data.shape}, its manifest says otherwise: remove it")
    return Shard(manifest.start, manifest.stop, data, manifest.max_norm)


def verify(folder: Path) -> int:
    """Read all shards of a folder of vectors (or one shard) and check their hashes; returns how many there are.

    Raises:
        ValueError: A shard is damaged.
    """
    folders = [folder] if is_shard(folder) else shard_folders(folder)
    for each in folders:
        manifest = read_manifest(each)
        with (each / manifest.file).open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != manifest.sha256:
            raise ValueError(
                f"shard {each / manifest.file} is damaged: its SHA-256 is {found}, expected {manifest.sha256}: {_AGAIN}"
            )
    return len(folders)


def map_array(file: Path) -> NDArray[np.floating]:
    """The array of a ``.npy`` file, mapped; a ValueError where it is none."""
    try:
        return np.asarray(np.load(file, mmap_mode="r", allow_pickle=False))
    except (ValueError, EOFError) as error:
        raise ValueError(f"{file} is no array of NumPy, or a truncated one: {error}") from None

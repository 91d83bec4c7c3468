"""Sphere: 134 million pages of CCNet in 906 million passages of 100 words.

Piktus et al., The Web Is Your Oyster, 2021, https://arxiv.org/abs/2112.09924; https://github.com/facebookresearch/Sphere
(archived; CC BY-NC 4.0). Meta publishes no plain passages: they are in the stored fields of the sparse (Lucene) index
and, compressed, in the metadata of the dense one (distributed-faiss; see ``retrievers/sphere_dense.py``). Weaviate
publishes JSONL made from the dense one, whole and its first 100 thousand to 100 million lines, with the vectors inside
(https://weaviate.io/blog/sphere-dataset-in-weaviate): 899 million lines, not 906. Checksums are published nowhere.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar, Literal, get_args

from corpora.artefacts import artefact, find_artefact
from corpora.assets import Asset, asset_path, fetch, recorded
from corpora.fingerprint import digest
from corpora.lines import InputError
from corpora.sphere_files import dense_passages, files_key, hash_of, jsonl_files, jsonl_passages, partitions, unpack
from corpora.stored import Plan, StoredCorpus, build_needs, size
from corpora.types import Passage

PASSAGES = 906_000_000
PASSAGE_BYTES = 750
"""Of identifier, title, text and url of one passage: an estimate (Wikipedia's passages without url have 660)."""
VECTOR_BYTES = 768 * 2
GPU_PASSAGES_PER_S = 83
"""What DPR's authors report for one GPU of 2020: 21 million passages in 8.8 hours on 8 (arXiv 2004.04906, 5.4)."""
VECTOR_LINES = 10
"""So many times slower than others are lines read that carry their vectors as JSON (measured)."""

_META = "https://dl.fbaipublicfiles.com/sphere/"
_SOURCE, _LICENCE = "README of github.com/facebookresearch/Sphere (sizes rounded there; no checksums)", "CC BY-NC 4.0"
SPARSE = Asset(
    "sphere/sphere_sparse_index.tar.gz", (f"{_META}sphere_sparse_index.tar.gz",), None, None, _SOURCE, _LICENCE
)
SPARSE_BYTES = int(775.6 * 2**30)
DENSE = Asset("sphere/sphere_dense_index.tar.gz", (f"{_META}sphere_dense_index.tar.gz",), None, None, _SOURCE, _LICENCE)
DENSE_BYTES = int(1.2 * 2**40)

Source = Literal["lucene", "dense", "jsonl", "100k", "1M", "10M", "100M", "899M"]
_LINES = {"100k": 10**5, "1M": 10**6, "10M": 10**7, "100M": 10**8, "899M": 899 * 10**6}


def weaviate(lines: str) -> Asset:
    """Weaviate's JSONL with so many lines: ``100k``, ``1M``, ``10M``, ``100M`` or ``899M``."""
    name = f"sphere.{lines}.jsonl.tar.gz"
    source = "github.com/weaviate/weaviate-io, post of 2022-12-06 on the Sphere dataset"
    return Asset(
        f"sphere/{name}", (f"https://storage.googleapis.com/sphere-demo/{name}",), None, None, source, _LICENCE
    )


class Sphere(StoredCorpus):
    """Passages of Sphere, all of them or a sample.

    Args:
        source: What is read: ``lucene``, the published sparse index (775.6 GiB to download); ``dense``, the metadata of
            the published dense index (1.2 TiB); ``jsonl``, shards in Weaviate's form (``path`` needed); or ``100k`` to
            ``899M``, one of Weaviate's files.
        path: Where the source lies: a folder or a file; None: it is downloaded.
        sample: So many passages, those with the smallest hashes of seed and identifier, so that a sample does not
            depend on the order in which they come, and a smaller one is the beginning of a larger.
        seed: Another seed, another sample.

    Raises:
        InputError: On first use: nothing there, or a record that is no passage (file and line named).
    """

    version: ClassVar[int] = 1

    def __init__(
        self, source: Source = "lucene", path: Path | None = None, sample: int | None = None, seed: int = 0
    ) -> None:
        if source not in get_args(Source):
            raise ValueError(f"source={source}: expected one of {', '.join(get_args(Source))}")
        if source == "jsonl" and path is None:
            raise ValueError("source=jsonl needs path=...: a folder of shards; or take source=1M to download a million")
        if sample is not None and sample < 1:
            raise ValueError(f"sample={sample}: expected at least one passage")
        self.source, self.path, self.sample, self.seed = source, path, sample, seed

    def plan(self) -> Plan:
        """Download, unpacking and build: disk, memory, hours; and what a Contriever index would take."""
        there = self.path is not None or asset_path(self._asset()).exists()
        download = 0 if there else self._download_bytes()
        total, kept = self._read_and_kept()
        disk, memory, _ = build_needs(kept, kept * PASSAGE_BYTES)
        seconds = build_needs(total, 0)[2] * (VECTOR_LINES if self.source in _LINES else 1)
        if self.sample:
            memory += 2 * kept * PASSAGE_BYTES  # a sample is drawn in memory
        if self.source == "dense":
            memory += self._metadata_bytes()
        if self.path is None:
            disk += download + (self._download_bytes() if not self._unpacked() else 0)
        what = f"download {self._asset().urls[0]} ({size(download)}), " if download else ""
        what += f"read {self._label()} and store {kept} passages"
        return Plan(what, download, disk, memory, seconds, self._notes(kept))

    def expected(self) -> int:
        """The number of passages, about, before the store is built."""
        return self._read_and_kept()[1] if self.pending() else len(self)

    def _read_and_kept(self) -> tuple[int, int]:
        """About how many passages are read, and how many of them are kept."""
        total = _LINES.get(self.source, PASSAGES) if self.path is None else self._about()
        return total, min(self.sample or total, total)

    def _notes(self, kept: int) -> tuple[str, ...]:
        hours = kept / GPU_PASSAGES_PER_S / 3600
        return (
            f"no Contriever index of Sphere is published: encoding {kept} passages takes about {hours:.0f} GPU hours "
            f"at {GPU_PASSAGES_PER_S} passages a second (DPR's authors, 2020: measure yours) and "
            f"{kept * VECTOR_BYTES / 1e9:.1f} GB in fp16",
        )

    def _metadata_bytes(self) -> int:
        """Memory for the metadata of one partition, which can only be read as a whole."""
        if self.path is None:
            return 15 << 30  # 906 M / 32 rows of about 500 bytes
        return 2 * max((folder / "meta.pkl").stat().st_size for folder in partitions(self._place()))

    def _asset(self) -> Asset:
        return {"lucene": SPARSE, "dense": DENSE}.get(self.source) or weaviate(self.source)

    def _download_bytes(self) -> int:
        known = {"lucene": SPARSE_BYTES, "dense": DENSE_BYTES}
        # 768 numbers of about 11 digits per line, packed to about half: an estimate, no sizes are published
        return known.get(self.source) or _LINES[self.source] * 5000

    def _unpacked(self) -> bool:
        """Whether what has to be unpacked is; the JSONL files are read without unpacking."""
        return self.source in _LINES or find_artefact("unpacked", self._unpack_key()) is not None

    def _unpack_key(self) -> str:
        return str(recorded(self._asset()).get("sha256") or digest(self._asset().name))

    def _about(self) -> int:
        """About how many passages lie at the path."""
        place = self._place()
        files = [place] if place.is_file() else [file for file in place.rglob("*") if file.is_file()]
        found = sum(file.stat().st_size for file in files)
        per_passage = {"lucene": SPARSE_BYTES / PASSAGES, "dense": DENSE_BYTES / PASSAGES}
        return max(1, int(found / per_passage.get(self.source, PASSAGE_BYTES)))

    def _place(self) -> Path:
        """What is read, where it is here already.

        Raises:
            InputError: There is nothing at the path.
        """
        if self.path is None:
            return asset_path(self._asset())
        if not Path(self.path).exists():
            raise InputError(f"corpus {self.path}: no such file or folder")
        return Path(self.path)

    def prefetch(self) -> None:
        """Download the source, where it is needed and not there; a ValueError where the disk is too small."""
        if self.path is None:
            self.plan().check()
            fetch(self._asset())

    def _key(self) -> str:
        identity = f"asset:{self._asset().name}" if self.path is None else _identity(self.source, self._place())
        drawn = [self.sample, self.seed] if self.sample else None
        return f"{digest([identity, drawn])}-sphere{self.version}"

    def _label(self) -> str:
        return str(asset_path(self._asset()) if self.path is None else self.path)

    def _passages(self) -> Iterable[Passage]:
        place = self._place()
        if self.path is None:
            place = fetch(self._asset())
            if self.source not in _LINES:
                place = artefact("unpacked", self._unpack_key(), lambda folder: unpack(place, folder))
        passages = _read(self.source, place)
        return passages if self.sample is None else draw(passages, self.sample, self.seed)


def _identity(source: str, place: Path) -> str:
    if source == "lucene":
        from corpora.lucene_index import lucene_fingerprint

        return lucene_fingerprint(_lucene_folder(place))
    files = [folder / "meta.pkl" for folder in partitions(place)] if source == "dense" else jsonl_files(place)
    return files_key(files)


def _read(source: str, place: Path) -> Iterator[Passage]:
    if source == "lucene":
        from corpora.lucene_index import read_lucene_passages  # needs Java

        return read_lucene_passages(_lucene_folder(place))
    return dense_passages(place) if source == "dense" else jsonl_passages(place)


def _lucene_folder(place: Path) -> Path:
    found = sorted({file.parent for file in place.rglob("segments_*")})
    if len(found) != 1:
        raise InputError(f"corpus {place}: {len(found)} Lucene indexes in it (files segments_*), expected one")
    return found[0]


def draw(passages: Iterable[Passage], n: int, seed: int) -> Iterator[Passage]:
    """Yields the n passages with the smallest hashes of seed and identifier, in the order of these hashes.

    Raises:
        ValueError: There are fewer.
    """
    heap: list[tuple[int, int, Passage]] = []  # the largest hash first, as heapq knows only the smallest
    for row, passage in enumerate(passages):
        item = (-hash_of(seed, passage.passage_id), -row, passage)
        if len(heap) < n:
            heapq.heappush(heap, item)
        elif item > heap[0]:
            heapq.heapreplace(heap, item)
    if len(heap) < n:
        raise ValueError(f"sample={n}: there are only {len(heap)} passages: ask for fewer, or leave it out")
    for _, _, passage in sorted(heap, reverse=True):
        yield passage

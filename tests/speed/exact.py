"""Exact search from disk: ``python tests/speed/exact.py [--large]``.

Against FAISS IndexFlatIP in memory on 300,000 x 768 fp32 and 1,000 queries, in one run. ``--large`` also measures the
anonymous memory of a search over 3,000,000 x 768 fp16 (4.3 GiB of disk) and the times of up to ten million
128-dimensional vectors in 1 to 10 shards.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import faiss
import numpy as np

from corpora.memory import MemoryCorpus
from corpora.types import Passage
from lm.base import QueryVectors
from retrievers.encoding import corpus_vectors
from retrievers.exact import search
from retrievers.vectors import open_vectors

K = 100


def write(folder: Path, shards: int, rows: int, d: int, dtype: str) -> None:
    """Shards of pseudo-random vectors, written in pieces."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for i in range(shards):
        data = np.lib.format.open_memmap(folder / f"{i:03}.npy", "w+", dtype, (rows, d))
        for start in range(0, rows, 50_000):
            stop = min(start + 50_000, rows)
            data[start:stop] = rng.standard_normal((stop - start, d), dtype=np.float32)
        data.flush()


def queries(n: int, d: int) -> QueryVectors:
    """Pseudo-random queries."""
    return QueryVectors(np.random.default_rng(1).standard_normal((n, d), dtype=np.float32), np.arange(n))


def ids(rows: Sequence[int]) -> list[str]:
    """Identifiers that sort like rows."""
    return [f"{row:09}" for row in rows]


def anonymous_mib() -> float:
    """RssAnon now."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon"))


class Random:
    """An encoder of pseudo-random vectors, the same for the same passages."""

    fingerprint = "random"
    dimension = 768

    def encode_passages(self, passages: Sequence[Passage]) -> np.ndarray:
        """float32 (n, 768)."""
        seed = int(passages[0].passage_id)
        return np.random.default_rng(seed).standard_normal((len(passages), 768), dtype=np.float32)


def against_faiss(folder: Path) -> None:
    """Times alternate, so that a busy machine is unfair to neither."""
    corpus = MemoryCorpus(Passage(f"{row:09}", "text") for row in range(300_000))
    with mock.patch.dict(os.environ, {"RETRIEVAL_DIVERSITY_CACHE": str(folder)}):
        for i in range(3):
            corpus_vectors(corpus.part(i, 3), Random(), "fp32")
        asked, vectors = queries(1000, 768), corpus_vectors(corpus, Random(), "fp32")
    flat = faiss.IndexFlatIP(768)
    flat.add(np.ascontiguousarray(vectors.read(0, len(vectors))))
    ours, theirs = [], []
    for _ in range(5):
        start = time.perf_counter()
        rankings = search(vectors, asked, K, ids)
        ours.append(time.perf_counter() - start)
        start = time.perf_counter()
        scores, rows = flat.search(asked.vectors, K)
        theirs.append(time.perf_counter() - start)
    same, ties = 0, 0
    for ranking, row, score in zip(rankings, rows, scores, strict=True):
        for hit, other, value in zip(ranking, ids(row.tolist()), score.tolist(), strict=True):
            same += hit.passage_id == other
            ties += hit.passage_id != other and abs(hit.score - value) <= 1e-5 * max(1.0, abs(value))
    print(
        f"300,000 x 768 fp32, 1,000 queries, k={K}: from disk {np.median(ours):.2f} s (all {_list(ours)}), IndexFlatIP "
        f"in memory {np.median(theirs):.2f} s (all {_list(theirs)}): ratio of medians "
        f"{np.median(ours) / np.median(theirs):.3f}, of the best {min(ours) / min(theirs):.3f}; "
        f"of {same + ties:,} of {1000 * K:,} hits equal {same:,}, and {ties:,} tie within 1e-5"
    )
    if same + ties != 1000 * K:
        sys.exit("other passages than IndexFlatIP")


def memory(folder: Path) -> None:
    """The most anonymous memory during a search."""
    write(folder / "v", 6, 500_000, 768, "float16")
    vectors, before, most, done = open_vectors(folder / "v"), anonymous_mib(), 0.0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.02):
            most = max(most, anonymous_mib())

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    search(vectors, queries(100, 768), K, ids)
    seconds = time.perf_counter() - start
    done.set()
    watcher.join()
    print(
        f"3,000,000 x 768 fp16 from disk, 100 queries: {seconds:.1f} s, RssAnon {before:.0f} -> {most:.0f} MiB at most"
    )


def linear(folder: Path) -> None:
    """Times of more and more shards of a million vectors."""
    write(folder / "v", 10, 1_000_000, 128, "float16")
    whole, asked = open_vectors(folder / "v"), queries(100, 128)
    for shards in (1, 2, 5, 10):
        start = time.perf_counter()
        search(whole.part(0, shards * 1_000_000), asked, K, ids)
        seconds = time.perf_counter() - start
        print(f"{shards:2} shards of 1,000,000 x 128 fp16: {seconds:.2f} s, {seconds / shards:.3f} s a shard")


def _list(times: Sequence[float]) -> str:
    return ", ".join(f"{each:.2f}" for each in times)


def main() -> None:
    """Run what the flags ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true")
    large = parser.parse_args().large
    for measure, gib in ((against_faiss, 1.0), *(((memory, 4.4), (linear, 2.5)) if large else ())):
        with tempfile.TemporaryDirectory() as name:
            if shutil.disk_usage(name).free < gib * 2**30:
                print(f"{measure.__name__}: left out, {gib} GiB of disk are not free")
            else:
                measure(Path(name))


if __name__ == "__main__":
    main()

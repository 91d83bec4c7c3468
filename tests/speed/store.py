"""Times of the passage store at one million synthetic passages: ``python tests/speed/store.py [PASSAGES]``."""

import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from corpora.store import PassageStore, build_store
from corpora.types import Passage


def passages(n: int) -> Iterator[Passage]:
    """Passages of about 100 words, as in Wikipedia split for retrieval."""
    words = [f"w{i:05d}" for i in range(20_000)]
    texts = [" ".join(random.Random(i).choices(words, k=100)) for i in range(1000)]
    for i in range(n):
        yield Passage(f"{i * 7919 % 10**10}-{i}", f"{i} {texts[i % 1000]}", f"Title {i // 5}")


def rss_mb() -> float:
    """Resident memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def main(n: int) -> None:
    """Print build and opening times, memory, and the time of one look-up."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        before, start = rss_mb(), time.perf_counter()
        build_store(passages(n), folder)
        size = sum(file.stat().st_size for file in folder.iterdir()) / 2**20
        print(
            f"build: {n:,} passages, {size:,.0f} MiB, {time.perf_counter() - start:.1f} s, +{rss_mb() - before:.0f} MiB"
        )
        before, start = rss_mb(), time.perf_counter()
        store = PassageStore(folder)
        print(f"open: {1000 * (time.perf_counter() - start):.2f} ms, +{rss_mb() - before:.2f} MiB, {len(store):,} rows")
        ids = store.ids(random.Random(0).sample(range(n), min(n, 20_000)))
        store.get(ids)  # warm
        start = time.perf_counter()
        for passage_id in ids:
            store.get([passage_id])
        print(f"get([id]): {1e6 * (time.perf_counter() - start) / len(ids):.1f} us warm")
        start = time.perf_counter()
        store.get(ids)
        print(f"get(ids): {1e6 * (time.perf_counter() - start) / len(ids):.1f} us a passage")
        start = time.perf_counter()
        count = sum(1 for _ in store)
        print(f"iterate: {count / (time.perf_counter() - start):,.0f} passages a second")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)

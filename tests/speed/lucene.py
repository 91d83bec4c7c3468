"""Lucene here against pyserini's searcher and BM25, in one run: ``python tests/speed/lucene.py [PASSAGES]``.

The corpus is synthetic, with words drawn by Zipf's law. Pyserini searches the very index that was built here; what it
returns is read as far as a ranking needs (identifier and score).
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from corpora.java import java_class
from corpora.memory import MemoryCorpus
from corpora.types import Passage, Query
from retrievers.base import Index, Retriever
from retrievers.bm25 import BM25

K = 100


def synthetic(n: int, n_queries: int) -> tuple[MemoryCorpus, list[Query]]:
    """Passages of 100 words and queries of 8, of 100,000 words by Zipf's law."""
    rng = np.random.default_rng(0)
    words = np.array([f"word{i}" for i in range(100_000)])
    weights = 1 / np.arange(1, len(words) + 1)
    drawn = rng.choice(len(words), size=(n, 100), p=weights / weights.sum())
    asked = rng.choice(len(words), size=(n_queries, 8), p=weights / weights.sum())
    corpus = MemoryCorpus(Passage(f"d{i}", " ".join(words[row])) for i, row in enumerate(drawn))
    return corpus, [Query(str(i), str(i), " ".join(words[row])) for i, row in enumerate(asked)]


def fastest(runs: dict[str, Callable[[], object]], rounds: int = 5) -> dict[str, float]:
    """Seconds of each, the best of some rounds in turn: Java compiles while it runs."""
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def build(name: str, retriever: Retriever, corpus: MemoryCorpus) -> Index:
    """Build an index and print how long it took."""
    with_start = time.perf_counter()
    index = retriever.index(corpus)
    print(f"  index  {name:34} {time.perf_counter() - with_start:7.2f} s")
    return index


def build_pyserini(corpus: MemoryCorpus, folder: Path, threads: int) -> None:
    """The same index by pyserini's indexer (``python -m pyserini.index.lucene`` calls this class), and its time."""
    start = time.perf_counter()
    (folder / "lines").mkdir(parents=True)
    for i in range(threads):
        with (folder / "lines" / f"{i}.jsonl").open("w") as file:
            for p in corpus.passages[i::threads]:
                file.write(json.dumps({"id": p.passage_id, "contents": p.text}) + "\n")
    options = ["-collection", "JsonCollection", "-threads", str(threads), "-storeDocvectors", "-quiet"]
    arguments = ["-input", str(folder / "lines"), "-index", str(folder / "index"), *options]
    java_class("io.anserini.index.IndexCollection").main(arguments)
    print(f"  index  {f'pyserini threads={threads}':34} {time.perf_counter() - start:7.2f} s")


def pyserini(folder: Path, queries: list[Query]) -> dict[str, Callable[[], object]]:
    """Pyserini's searcher on the same index, one by one and in a batch."""
    os.environ.setdefault("OPENAI_API_KEY", "none")  # importing it builds a client
    from pyserini.search.lucene import LuceneSearcher

    searcher = LuceneSearcher(str(folder))
    searcher.set_bm25(0.9, 0.4)
    texts, names = [query.text for query in queries], [query.query_id for query in queries]

    def single() -> object:
        return [[(hit.docid, hit.score) for hit in searcher.search(text, K)] for text in texts]

    def batch() -> object:
        found = searcher.batch_search(texts, names, K, os.cpu_count() or 1)
        return {name: [(hit.docid, hit.score) for hit in hits] for name, hits in found.items()}

    return {"pyserini, one by one": single, "pyserini, batch on all cores": batch}


def main(n: int) -> None:
    """Time every engine in one run."""
    from retrievers.lucene import Lucene

    corpus, queries = synthetic(n, 200)
    print(f"{n:,} passages, {len(queries)} queries, k={K}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["RETRIEVAL_DIVERSITY_CACHE"] = cache
        cores = os.cpu_count() or 1
        Lucene().index(MemoryCorpus([Passage("warm", "start Java")]))
        known = set((Path(cache) / "index").iterdir())
        one = build(f"lucene threads={cores}", Lucene(threads=cores), corpus)
        (folder,) = set((Path(cache) / "index").iterdir()) - known
        build_pyserini(corpus, Path(cache) / "pyserini", cores)
        bm25 = build("bm25", BM25(), corpus)
        single, rm3 = Lucene().index(corpus), Lucene(rm3=True).index(corpus)
        runs: dict[str, Callable[[], object]] = {
            "lucene threads=1": lambda: single.search(queries, K),
            f"lucene threads={cores}": lambda: one.search(queries, K),
            "lucene rm3 threads=1": lambda: rm3.search(queries, K),
            "bm25 threads=1": lambda: bm25.search(queries, K),
            **pyserini(folder, queries),
        }
        first = 0.0
        for name, took in fastest(runs).items():
            each = 1000 * took / len(queries)
            first = first or each
            print(f"  search {name:34} {each:8.3f} ms a query {each / first:7.2f} x")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)

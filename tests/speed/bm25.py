"""BM25 here against rank-bm25 and, where installed, PISA: ``python tests/speed/bm25.py [PASSAGES] [PISA_PYTHON]``.

The corpus is synthetic, with words drawn by Zipf's law; where the shared Perspectrum data is present, it is timed too.
PISA_PYTHON: a Python with pyterrier-pisa, where that package lives in an environment of its own.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from corpora.memory import MemoryCorpus
from corpora.types import Passage, Query
from retrievers.base import Retriever
from retrievers.bm25 import BM25
from retrievers.rank_bm25 import RankBM25

PERSPECTRUM = Path(__file__).parents[3] / "shared" / "data" / "perspectrum"
PISA = """
import json, sys, time
from pyterrier_pisa import PisaIndex
folder = sys.argv[1]
documents = json.load(open(folder + "/documents.json"))
queries = json.load(open(folder + "/queries.json"))
import pandas as pd
start = time.perf_counter()
index = PisaIndex(folder + "/pisa", stemmer="none", stops="terrier", threads=1)
index.index(documents)
built = time.perf_counter() - start
engine = index.bm25(k1=1.5, b=0.75, num_results=100, threads=1, verbose=False)
frame = pd.DataFrame([{"qid": str(i), "query": text} for i, text in enumerate(queries)])
engine(frame[:1])
start = time.perf_counter()
engine(frame)
print(json.dumps([built, time.perf_counter() - start]))
"""


def synthetic(n: int, n_queries: int) -> tuple[list[Passage], list[str]]:
    """Passages of 100 words and queries of 8, of 100,000 words by Zipf's law."""
    rng = np.random.default_rng(0)
    words = np.array([f"word{i}" for i in range(100_000)])
    weights = 1 / np.arange(1, len(words) + 1)
    drawn = rng.choice(len(words), size=(n, 100), p=weights / weights.sum())
    asked = rng.choice(len(words), size=(n_queries, 8), p=weights / weights.sum())
    passages = [Passage(f"d{i}", " ".join(words[row])) for i, row in enumerate(drawn)]
    return passages, [" ".join(words[row]) for row in asked]


def perspectrum() -> tuple[list[Passage], list[str]]:
    """The passages and questions of Perspectrum."""
    with (PERSPECTRUM / "corpus.jsonl").open(encoding="utf-8") as file:
        passages = [Passage(record["_id"], record["text"]) for record in map(json.loads, file)]
    with (PERSPECTRUM / "questions.jsonl").open(encoding="utf-8") as file:
        return passages, [record["question"] for record in map(json.loads, file)]


def timed(retriever: Retriever, passages: Sequence[Passage], texts: Sequence[str]) -> tuple[float, float]:
    """Seconds to index, and seconds to search all queries (k = 100)."""
    corpus = MemoryCorpus(passages)
    queries = [Query(str(i), str(i), text) for i, text in enumerate(texts)]
    start = time.perf_counter()
    index = retriever.index(corpus)
    built = time.perf_counter() - start
    index.search(queries[:1], 100)
    start = time.perf_counter()
    index.search(queries, 100)
    return built, time.perf_counter() - start


def timed_pisa(python: str, passages: Sequence[Passage], texts: Sequence[str]) -> tuple[float, float]:
    """The same for PISA in another Python, one thread."""
    with tempfile.TemporaryDirectory() as folder:
        documents = [{"docno": passage.passage_id, "text": passage.text} for passage in passages]
        (Path(folder) / "documents.json").write_text(json.dumps(documents), encoding="utf-8")
        clean = ["".join(c if c.isalnum() else " " for c in text) for text in texts]
        (Path(folder) / "queries.json").write_text(json.dumps(clean), encoding="utf-8")
        done = subprocess.run([python, "-c", PISA, folder], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-500:])
    built, searched = json.loads(done.stdout.splitlines()[-1])
    return built, searched


def compare(name: str, passages: Sequence[Passage], texts: Sequence[str], pisa: str, slow_queries: int) -> None:
    """Print a line for each engine; rank-bm25 gets fewer queries, because it is slow."""
    print(f"{name}: {len(passages):,} passages, {len(texts)} queries, k=100")
    engines: dict[str, Callable[[], tuple[float, float]]] = {
        "bm25": lambda: timed(BM25(), passages, texts),
        "bm25 again": lambda: timed(BM25(), passages, texts),
        "bm25 threads=2": lambda: timed(BM25(threads=2), passages, texts),
        "rank_bm25": lambda: timed(RankBM25(), passages, texts[:slow_queries]),
        "pisa": lambda: timed_pisa(pisa, passages, texts),
    }
    first = 0.0
    for engine, run in engines.items():
        asked = slow_queries if engine == "rank_bm25" else len(texts)
        try:
            built, searched = run()
        except (OSError, RuntimeError) as error:
            print(f"  {engine:15} not measured: {str(error).strip().splitlines()[-1]}")
            continue
        each = 1000 * searched / asked
        first = first or each
        print(f"  {engine:15} index {built:7.2f} s   search {each:8.3f} ms a query   {each / first:7.2f} x")


def main(n: int, pisa: str) -> None:
    """Time every engine on both corpora in one run."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RETRIEVAL_DIVERSITY_CACHE"] = folder
        compare("synthetic", *synthetic(n, 200), pisa, slow_queries=5)
        if PERSPECTRUM.exists():
            compare("perspectrum", *perspectrum(), pisa, slow_queries=50)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000, sys.argv[2] if len(sys.argv) > 2 else sys.executable)

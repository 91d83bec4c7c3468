"""The other retrievers beside their peers, in one run: ``python tests/speed/other_retrievers.py``.

* encoding: our encoder and sentence-transformers, all-MiniLM-L6-v2, the same passages, fp32;
* ``dense index_type=IVF...``: the same FAISS index searched by FAISS itself, without our second scoring;
* ``pyserini_dense``: the same flat FAISS folder searched by Pyserini's own searcher;
* ``sphere_dense``: one partition of Sphere's form, searched by FAISS itself;
* ``terrier``: PISA's BM25 called by PyTerrier itself;
* ``hybrid``: its two members one after the other; ``runfile``: a plain reading of the lines.

BM25, Lucene and exact search have scripts of their own. Every line says peer, both times and their ratio.
"""

import contextlib
import json
import os
import pickle
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import faiss
import numpy as np
import pandas as pd

from corpora.fingerprint import digest
from corpora.memory import MemoryCorpus
from corpora.types import Passage, Query
from lm import make_encoder
from lm.base import QueryVectors
from retrievers.bm25 import BM25
from retrievers.dense import Dense
from retrievers.hybrid import Hybrid
from retrievers.runfile import RunFile

D, N, K, ROUNDS = 128, 100_000, 100, 3
RNG = np.random.default_rng(0)


class Drawn:
    """An encoder of pseudo-random vectors, a function of the texts' numbers."""

    fingerprint, dimension = "drawn", D

    def encode_passages(self, passages: Sequence[Passage]) -> np.ndarray:
        """float32 (n, 128)."""
        first = int(passages[0].passage_id)
        return np.random.default_rng(first).standard_normal((len(passages), D), dtype=np.float32)

    def encode_queries(self, queries: Sequence[Query]) -> QueryVectors:
        """One vector each."""
        vectors = np.random.default_rng(1).standard_normal((len(queries), D), dtype=np.float32)
        return QueryVectors(vectors, np.arange(len(queries)))


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """PISA and bm25s write to the descriptors themselves."""
    kept, nowhere = [os.dup(1), os.dup(2)], os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        for descriptor, before in zip((1, 2), kept, strict=True):
            os.dup2(before, descriptor)
            os.close(before)
        os.close(nowhere)


def words(n: int, size: int = 100) -> list[str]:
    """Texts of pseudo-random words by Zipf's law."""
    vocabulary = np.array([f"word{i}" for i in range(20_000)])
    weights = 1 / np.arange(1, len(vocabulary) + 1)
    return [" ".join(row) for row in RNG.choice(vocabulary, size=(n, size), p=weights / weights.sum())]


def compare(name: str, ours: Callable[[], object], peer: str, theirs: Callable[[], object]) -> None:
    """Both in turn, after one call each that is not counted; medians."""
    times: tuple[list[float], list[float]] = ([], [])
    for round_ in range(ROUNDS + 1):
        for each, seconds in zip((ours, theirs), times, strict=True):
            start = time.perf_counter()
            each()
            if round_:
                seconds.append(time.perf_counter() - start)
    mine, other = (statistics.median(each) for each in times)
    print(f"{name:42} {mine:8.3f} s   {peer:34} {other:8.3f} s   ratio {mine / other:.2f}", flush=True)


def encoding() -> None:
    """Passages a second of a real encoder."""
    from sentence_transformers import SentenceTransformer

    from lm.source import Source

    minilm = make_encoder("minilm")
    passages = [Passage(str(i), text) for i, text in enumerate(words(200, 40))]
    model = SentenceTransformer(str(Source(minilm.model, minilm.revision, minilm.package).folder), device="cpu")
    compare(
        "dense: encode 200 passages",
        lambda: minilm.encode_passages(passages),
        "sentence-transformers",
        lambda: model.encode([p.text for p in passages], batch_size=32, normalize_embeddings=True),
    )


def dense(corpus: MemoryCorpus, queries: list[Query], asked: np.ndarray) -> None:
    """An IVF index; ours scores four times k candidates once more in float64."""
    index = Dense(Drawn(), index_type="IVF256,Flat", nprobe=16, recall_queries=0).index(corpus)
    raw = faiss.read_index(str(next(Path(os.environ["RETRIEVAL_DIVERSITY_CACHE"]).rglob("*.faiss"))))
    raw.nprobe = 16
    compare(
        f"dense IVF256: {len(queries)} queries", lambda: index.search(queries, K), "FAISS", lambda: raw.search(asked, K)
    )


def pyserini_dense(folder: Path, corpus: MemoryCorpus, queries: list[Query], asked: np.ndarray) -> None:
    """A flat index in Pyserini's form."""
    from corpora.java import start_java

    start_java()
    os.environ.setdefault("OPENAI_API_KEY", "none")  # importing the searcher builds a client
    from pyserini.search.faiss import FaissSearcher

    from retrievers.pyserini_dense import PyseriniDense, record_encoder

    flat = faiss.IndexFlatIP(D)
    flat.add(RNG.standard_normal((len(corpus), D), dtype=np.float32))
    faiss.write_index(flat, str(folder / "index"))
    (folder / "docid").write_text("".join(f"{p.passage_id}\n" for p in corpus))
    record_encoder(folder, Drawn.fingerprint)
    index, peer = PyseriniDense(str(folder), Drawn()).index(corpus), FaissSearcher(str(folder), None)
    compare(
        f"pyserini_dense: {len(queries)} queries",
        lambda: index.search(queries, K),
        "pyserini FaissSearcher",
        lambda: peer.batch_search(asked, [q.query_id for q in queries], k=K),
    )


def sphere_dense(folder: Path, corpus: MemoryCorpus, queries: list[Query], asked: np.ndarray) -> None:
    """One partition of distributed-faiss' form."""
    from retrievers.sphere_dense import SphereDense

    vectors = RNG.standard_normal((len(corpus), D), dtype=np.float32)
    norms = np.square(vectors).sum(axis=1)
    index = faiss.index_factory(D + 1, "IVF256,Flat", faiss.METRIC_L2)
    stored = np.hstack([vectors, np.sqrt(norms.max() - norms)[:, None]])
    index.train(stored)
    index.add(stored)
    (folder / "0").mkdir()
    faiss.write_index(index, str(folder / "0" / "index.faiss"))
    meta = [(p.passage_id, zlib.compress(p.text.encode()), zlib.compress(b""), False) for p in corpus]
    (folder / "0" / "meta.pkl").write_bytes(pickle.dumps(meta))
    (folder / "0" / "cfg.json").write_text(json.dumps({"metric": "l2", "nprobe": 16, "dim": D + 1}))
    (folder / "encoder.json").write_text(json.dumps({"encoder": "drawn", "fingerprint": Drawn.fingerprint}))
    ours = SphereDense(folder, Drawn()).index(corpus)
    index.nprobe = 16
    wide = np.hstack([asked, np.zeros((len(asked), 1), np.float32)])
    compare(
        f"sphere_dense: {len(queries)} queries",
        lambda: ours.search(queries, K),
        "FAISS",
        lambda: index.search(wide, K),
    )


def pisa(corpus: MemoryCorpus) -> object:
    """PISA's BM25 over a corpus, as a pipeline of PyTerrier."""
    from pyterrier_pisa import PisaIndex

    from corpora.artefacts import artefact
    from retrievers.terrier import documents

    def build(folder: Path) -> None:
        index = PisaIndex(str(folder), text_field=["title", "text"], threads=1)
        with silent():
            index.index(documents(corpus))
            index.bm25()

    folder = artefact("index", digest({"pisa": 1, "corpus": corpus.fingerprint}), build)
    return PisaIndex(str(folder), threads=1).bm25(num_results=K, verbose=False)


def texts(folder: Path) -> None:
    """Retrievers that read words, and a run file."""
    from retrievers.terrier import Terrier

    corpus = MemoryCorpus(Passage(f"{i:06}", text) for i, text in enumerate(words(20_000, 60)))
    queries = [Query(str(i), str(i), text) for i, text in enumerate(words(200, 8))]
    frame = pd.DataFrame([{"qid": q.query_id, "query": q.text} for q in queries])
    pipeline = pisa(corpus)
    terrier = Terrier(pipeline).index(corpus)
    compare("terrier: 200 queries", lambda: terrier.search(queries, K), "PyTerrier, PISA", lambda: pipeline(frame))

    with silent():
        first, second = BM25().index(corpus), BM25(k1=0.9, b=0.4).index(corpus)
        hybrid = Hybrid(BM25(), BM25(k1=0.9, b=0.4), depth=K).index(corpus)
    compare(
        "hybrid of two bm25: 200 queries",
        lambda: hybrid.search(queries, K),
        "both members",
        lambda: (first.search(queries, K), second.search(queries, K)),
    )
    path = folder / "run.trec"
    path.write_text("".join(f"{q} Q0 {i:06} {i + 1} {1000 - i} x\n" for q in range(200) for i in range(1000)))

    def plain() -> dict[str, list[tuple[str, float]]]:
        run: dict[str, list[tuple[str, float]]] = {}
        for line in path.read_text().splitlines():
            query_id, _, passage_id, _, score, _ = line.split()
            run.setdefault(query_id, []).append((passage_id, float(score)))
        return run

    compare("runfile: 200,000 lines", lambda: RunFile(path).index(corpus).search(queries, 1000), "split()", plain)


def main() -> None:
    """Run all, each with a cache of its own."""
    corpus = MemoryCorpus(Passage(f"{i:06}", "text") for i in range(N))
    queries = [Query(str(i), str(i), "") for i in range(200)]
    asked = Drawn().encode_queries(queries).vectors
    for measure in (
        lambda _: encoding(),
        lambda _: dense(corpus, queries, asked),
        lambda folder: pyserini_dense(folder, corpus, queries, asked),
        lambda folder: sphere_dense(folder, corpus, queries, asked),
        texts,
    ):
        with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as folder:
            os.environ["RETRIEVAL_DIVERSITY_CACHE"] = cache
            measure(Path(folder))


if __name__ == "__main__":
    main()

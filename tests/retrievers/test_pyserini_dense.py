# ruff: noqa: E402  skipped as a whole where the extra is missing
"""Pyserini's FAISS folders: against full products in NumPy, with an encoder made here."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

faiss = pytest.importorskip("faiss")
pytest.importorskip("pyserini")

from corpora.memory import MemoryCorpus
from corpora.types import Passage, Query
from lm.base import QueryVectors
from retrievers.checks import PASSAGES, check_retriever
from retrievers.pyserini_dense import PyseriniDense, record_encoder
from tests.retrievers.fake_encoder import FakeEncoder as WordEncoder

D = 8
IDS = [f"p{i:03d}" for i in range(300)]
ROWS = np.random.default_rng(0).integers(-2, 3, (300, D)).astype(np.float32)  # whole numbers: many exact ties
CORPUS = MemoryCorpus(Passage(i, "text") for i in sorted(IDS))
QUERIES = [Query(f"q{i}", f"q{i}", str(i)) for i in range(20)]


class FakeEncoder:
    """The vector of a query is drawn with its text as the seed."""

    fingerprint = "fake-encoder"

    def __init__(self, dimension=D, per_query=1):
        self.dimension, self.per_query = dimension, per_query

    def encode_passages(self, passages):
        raise NotImplementedError

    def vector(self, query, i):
        return np.random.default_rng([int(query.text), i]).integers(-2, 3, self.dimension).astype(np.float32)

    def encode_queries(self, queries):
        vectors = [self.vector(query, i) for query in queries for i in range(self.per_query)]
        return QueryVectors(np.stack(vectors), np.repeat(np.arange(len(queries)), self.per_query))


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path / "faiss", faiss.IndexFlatIP(D))


def write(folder, index):
    folder.mkdir()
    index.add(ROWS)
    faiss.write_index(index, str(folder / "index"))
    (folder / "docid").write_text("".join(f"{i}\n" for i in IDS))
    record_encoder(folder, "fake-encoder")
    return folder


def expected(k, score, per_query=1):
    encoder = FakeEncoder(per_query=per_query)
    rankings = []
    for query in QUERIES:
        scores = np.max([score(encoder.vector(query, i)) for i in range(per_query)], axis=0)
        rankings.append([(IDS[i], scores[i]) for i in sorted(range(300), key=lambda i: (-scores[i], IDS[i]))[:k]])
    return rankings


def pairs(rankings):
    return [[(hit.passage_id, hit.score) for hit in ranking] for ranking in rankings]


@pytest.mark.parametrize("k", [1, 10, 299, 1000])
@pytest.mark.parametrize("per_query", [1, 3])
def test_inner_products_with_ties_by_identifier(folder, k, per_query):
    index = PyseriniDense(str(folder), FakeEncoder(per_query=per_query)).index(CORPUS)
    assert pairs(index.search(QUERIES, k)) == expected(k, lambda q: ROWS.astype(float) @ q, per_query)
    assert index.search([], k) == []


def test_distances_become_similarities(tmp_path):
    index = PyseriniDense(str(write(tmp_path / "l2", faiss.IndexFlatL2(D))), FakeEncoder()).index(CORPUS)
    assert pairs(index.search(QUERIES, 10)) == expected(10, lambda q: -((ROWS.astype(float) - q) ** 2).sum(axis=1))


def test_an_approximate_index_finds_known_passages(tmp_path):
    hnsw = faiss.IndexHNSWFlat(D, 16, faiss.METRIC_INNER_PRODUCT)
    index = PyseriniDense(str(write(tmp_path / "hnsw", hnsw)), FakeEncoder(), threads=2).index(CORPUS)
    for query, ranking in zip(QUERIES, index.search(QUERIES, 10), strict=True):
        products = dict(zip(IDS, (ROWS @ FakeEncoder().vector(query, 0)).tolist(), strict=True))
        assert all(hit.score == products[hit.passage_id] for hit in ranking)
        assert len(ranking) == 10


def refused(folder, message, encoder=None, corpus=CORPUS):
    with pytest.raises(ValueError, match=message):
        PyseriniDense(str(folder), encoder or FakeEncoder()).index(corpus)


def test_another_encoder_is_refused(folder):
    refused(folder, "was made for the query encoder fake-encoder, not facebook/contriever", "facebook/contriever")
    refused(folder, "has 8 dimensions, its encoder 9: not its own", FakeEncoder(9))
    record_encoder(folder, "dpr")
    refused(folder, "was made for the query encoder dpr, not one of fingerprint fake-encoder")
    (folder / "encoder.json").write_text("[]")
    refused(folder, "cannot be read: expected")
    (folder / "encoder.json").unlink()
    refused(folder, "does not say which query encoder belongs to it: record it by")
    with pytest.raises(ValueError, match="made for the query encoder facebook/dpr-question_encoder-multiset-base, not"):
        PyseriniDense("wikipedia-dpr-100w.dpr-multi", "facebook/contriever").index(CORPUS)


def test_broken_folders_and_other_corpora_are_refused(folder, monkeypatch, tmp_path):
    refused(folder, "has 300 vectors, the corpus 299", corpus=MemoryCorpus(list(CORPUS)[:299]))
    others = MemoryCorpus(Passage(f"x{i}", "text") for i in range(300))
    refused(folder, "holds 'p000', which the corpus lacks: not the same corpus", corpus=others)
    refused("wikipedia-dpr", "neither a folder nor a prebuilt index whose query encoder is known")
    (folder / "docid").write_text("p000\n")
    refused(folder, "300 vectors and 1 identifiers: the copy is incomplete")
    (folder / "index").write_bytes(b"IxFI")
    refused(folder, "cannot be opened as a FAISS index of floats")
    (folder / "index").unlink()
    refused(folder, "no FAISS index of Pyserini's form: it lacks index")
    monkeypatch.setenv("RETRIEVAL_DIVERSITY_OFFLINE", "1")
    monkeypatch.setenv("PYSERINI_CACHE", str(tmp_path))
    with pytest.raises(ValueError, match=r"dpr_multi.* is not in the cache and .* forbids downloads"):
        PyseriniDense("wikipedia-dpr-100w.dpr-multi").prefetch()


def test_fingerprints(folder, tmp_path):
    here = PyseriniDense(str(folder), FakeEncoder()).fingerprint
    folder.rename(tmp_path / "moved")
    assert PyseriniDense(str(tmp_path / "moved"), FakeEncoder(), threads=3).fingerprint == here
    (tmp_path / "moved" / "docid").write_text("x\n")
    assert PyseriniDense(str(tmp_path / "moved"), FakeEncoder()).fingerprint != here
    assert PyseriniDense("wikipedia-dpr-100w.dpr-multi").fingerprint != here


@pytest.mark.slow
def test_equals_the_searcher_of_pyserini(folder):
    code = (
        "import json, sys\nfrom corpora.java import start_java\nstart_java()\n"
        "import numpy as np\nfrom pyserini.search.faiss import FaissSearcher\n"
        "vectors = np.array(json.loads(sys.argv[2]), dtype=np.float32)\n"
        "found = FaissSearcher(sys.argv[1], object()).batch_search(vectors, list(range(len(vectors))), 300)\n"
        "print(json.dumps([[[hit.docid, float(hit.score)] for hit in found[i]] for i in range(len(vectors))]))\n"
    )
    vectors = FakeEncoder().encode_queries(QUERIES).vectors.tolist()
    command = [sys.executable, "-c", code, str(folder), json.dumps(vectors)]
    env = os.environ | {"OPENAI_API_KEY": "none"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    theirs = [[tuple(pair) for pair in each] for each in json.loads(done.stdout.splitlines()[-1])]
    ours = pairs(PyseriniDense(str(folder), FakeEncoder()).index(CORPUS).search(QUERIES, 300))
    assert ours == [sorted(each, key=lambda pair: (-pair[1], pair[0])) for each in theirs]


def test_keeps_the_promises_of_retrievers(tmp_path):
    encoder, index = WordEncoder(dimension=D), faiss.IndexFlatIP(D)
    index.add(encoder.encode_passages(PASSAGES))
    faiss.write_index(index, str(tmp_path / "index"))
    (tmp_path / "docid").write_text("".join(f"{passage.passage_id}\n" for passage in PASSAGES))
    record_encoder(tmp_path, encoder.fingerprint)
    check_retriever(lambda: PyseriniDense(str(tmp_path), encoder=encoder), reads_text=False)

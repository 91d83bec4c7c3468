"""Sphere's dense index, small: partitions in distributed-faiss' form, made with FAISS by the test."""

import json
import pickle
import zlib

import numpy as np
import pytest

pytest.importorskip("faiss")
import faiss

from corpora.memory import MemoryCorpus
from corpora.types import Passage, Query
from lm.base import QueryVectors
from retrievers import sphere_dense
from retrievers.base import Retriever
from retrievers.checks import PASSAGES as CHECKED
from retrievers.checks import check_retriever
from retrievers.sphere_dense import SphereDense
from tests.retrievers.fake_encoder import FakeEncoder

D, N = 16, 600
RNG = np.random.default_rng(5)
VECTORS = RNG.standard_normal((N, D)).astype(np.float32) * RNG.uniform(0.5, 3, (N, 1)).astype(np.float32)
PASSAGES = [Passage(f"s{i}", f"text {i}", f"title {i}") for i in range(N)]
CORPUS = MemoryCorpus(PASSAGES)
QUERIES = [Query(f"q{i}", f"q{i}", f"query {i}") for i in range(20)]
ASKED = RNG.standard_normal((20, D)).astype(np.float32)


class Stub:
    """An encoder that knows its queries' vectors."""

    def __init__(self, fingerprint="stub", vectors=ASKED, per_query=1):
        self.fingerprint, self.vectors, self.per_query = fingerprint, vectors, per_query
        self.dimension = vectors.shape[1]

    def encode_queries(self, queries):
        rows = [int(query.query_id[1:]) for query in queries]
        index = np.repeat(np.arange(len(queries)), self.per_query)
        return QueryVectors(np.repeat(self.vectors[rows], self.per_query, axis=0), index)


def write(folder, kind="IVF8,Flat", parts=3, flagged=(), phi=None, auxiliary=True, metric=faiss.METRIC_L2, nprobe=8):
    """Partitions as distributed-faiss writes them; the vectors get sqrt(phi - |x|^2) as one more dimension."""
    norms = np.square(VECTORS).sum(axis=1)
    phi = norms.max() if phi is None else phi
    stored = np.hstack([VECTORS, np.sqrt(phi - norms)[:, None]]) if auxiliary else VECTORS
    for part in range(parts):
        rows = range(part, N, parts)
        index = faiss.index_factory(stored.shape[1], kind, metric)
        index.train(stored)
        index.add(np.ascontiguousarray(stored[list(rows)]))
        place = folder / str(part)
        place.mkdir(parents=True)
        faiss.write_index(index, str(place / "index.faiss"))
        meta = [
            (p.passage_id, zlib.compress(p.text.encode()), zlib.compress(p.title.encode()), i in flagged)
            for i, p in ((i, PASSAGES[i]) for i in rows)
        ]
        meta.append(("in the buffer", b"", b"", False))  # not in the index: distributed-faiss drops such rows
        (place / "meta.pkl").write_bytes(pickle.dumps(meta))
        (place / "cfg.json").write_text(json.dumps({"metric": "l2", "nprobe": nprobe, "dim": D + 1}))
    (folder / "encoder.json").write_text(json.dumps({"encoder": "stub", "fingerprint": "stub"}))
    return folder


def expected(k, without=()):
    """The best products, computed in float64 without FAISS."""
    products = ASKED.astype(np.float64) @ VECTORS.astype(np.float64).T
    rankings = []
    for row in products:
        order = [i for i in sorted(range(N), key=lambda i: -row[i]) if i not in without][:k]
        rankings.append([(f"s{i}", row[i]) for i in order])
    return rankings


def same(found, wanted, tolerance):
    assert [[hit.passage_id for hit in ranking] for ranking in found] == [[i for i, _ in ranking] for ranking in wanted]
    for ranking, right in zip(found, wanted, strict=True):
        np.testing.assert_allclose([hit.score for hit in ranking], [score for _, score in right], atol=tolerance)


@pytest.mark.parametrize("kind", ["IVF8,Flat", "Flat"])
def test_distances_become_products_and_partitions_one_ranking(tmp_path, kind):
    retriever = SphereDense(write(tmp_path, kind), Stub())
    assert isinstance(retriever, Retriever)
    same(retriever.index(CORPUS).search(QUERIES, 10), expected(10), 1e-3)


def test_the_conversion_by_hand(tmp_path):
    """x = (1, 2) and phi = 30: stored (1, 2, 5). q = (3, 4, 0): distance 4 + 4 + 25 = 33 = 25 + 30 - 2 * 11."""
    place = tmp_path / "0"
    place.mkdir()
    index = faiss.IndexFlatL2(3)
    index.add(np.array([[1, 2, 5], [5, -1, 2]], np.float32))  # both of squared norm 30
    faiss.write_index(index, str(place / "index.faiss"))
    (place / "meta.pkl").write_bytes(pickle.dumps([("a", b"", b"", False), ("b", b"", b"", False)]))
    (tmp_path / "encoder.json").write_text('{"encoder": "stub", "fingerprint": "stub"}')
    corpus = MemoryCorpus([Passage("a", ""), Passage("b", "")])
    opened = SphereDense(tmp_path, Stub(vectors=np.array([[3, 4]], np.float32))).index(corpus)
    ((best, second),) = opened.search(QUERIES[:1], 5)
    assert opened.phi == 30
    assert (best.passage_id, best.score) == ("a", 11.0)  # 3 * 1 + 4 * 2; b: 3 * 5 - 4 = 11 as well, later by id
    assert (second.passage_id, second.score) == ("b", 11.0)


def test_a_quantised_index_is_near(tmp_path):
    found = SphereDense(write(tmp_path, "IVF8,SQfp16"), Stub()).index(CORPUS).search(QUERIES, 5)
    for ranking, right in zip(found, expected(5), strict=True):
        np.testing.assert_allclose([hit.score for hit in ranking], [score for _, score in right], atol=0.1)


def test_an_index_of_products_needs_no_conversion(tmp_path):
    write(tmp_path, auxiliary=False, metric=faiss.METRIC_INNER_PRODUCT)
    same(SphereDense(tmp_path, Stub()).index(CORPUS).search(QUERIES, 10), expected(10), 1e-4)


def test_distances_without_the_auxiliary_dimension_are_refused(tmp_path):
    write(tmp_path, auxiliary=False)
    stub = Stub(vectors=ASKED[:, : D - 1])
    with pytest.raises(ValueError, match=r"squared norms go from .*, expected one: L2 distances without an auxiliary"):
        SphereDense(tmp_path, stub).index(CORPUS).search(QUERIES, 5)


def test_flagged_passages_are_left_out_and_the_ranking_is_still_full(tmp_path):
    flagged = {int(i[1:]) for ranking in expected(8) for i, _ in ranking}
    write(tmp_path, flagged=flagged)
    same(SphereDense(tmp_path, Stub()).index(CORPUS).search(QUERIES, 10), expected(10, flagged), 1e-3)
    everything = SphereDense(tmp_path, Stub(), drop_flagged=False).index(CORPUS).search(QUERIES, 10)
    same(everything, expected(10), 1e-3)


def test_fewer_than_k_and_several_vectors_per_query(tmp_path):
    write(tmp_path)
    rankings = SphereDense(tmp_path, Stub(per_query=2)).index(CORPUS).search(QUERIES, 2 * N)
    assert [len(ranking) for ranking in rankings] == [N] * len(QUERIES)
    assert SphereDense(tmp_path, Stub()).index(CORPUS).search([], 5) == []


def test_nprobe_is_the_partition_s_own_unless_given(tmp_path):
    write(tmp_path, nprobe=2)
    opened = SphereDense(tmp_path, Stub()).index(CORPUS)
    assert [partition.faiss.nprobe for partition in opened.partitions] == [2, 2, 2]
    assert [p.faiss.nprobe for p in SphereDense(tmp_path, Stub(), nprobe=5).index(CORPUS).partitions] == [5, 5, 5]


def test_another_encoder_is_refused(tmp_path):
    write(tmp_path)
    for wrong in (Stub("another"), "dpr", "dpr_web"):
        with pytest.raises(ValueError, match=r"its vectors are stub's, and the query encoder .* take encoder=stub"):
            SphereDense(tmp_path, wrong).index(CORPUS)
    (tmp_path / "encoder.json").unlink()  # as published: then it is DPR_web's
    for wrong in (Stub(), "dpr", "contriever"):
        with pytest.raises(
            ValueError, match=r"its vectors are dpr_web's, and the query encoder .* take encoder=dpr_web"
        ):
            SphereDense(tmp_path, wrong).index(CORPUS)
    write(tmp_path / "again")
    narrow = Stub(vectors=ASKED[:, :3])
    with pytest.raises(ValueError, match="vectors of 16 dimensions, the query encoder of 3"):
        SphereDense(tmp_path / "again", narrow).index(CORPUS).search(QUERIES, 3)


def test_another_corpus_and_damaged_partitions_are_one_line(tmp_path):
    write(tmp_path)
    with pytest.raises(ValueError, match=r"its passage 's0' is not among the corpus' 1: the index covers all"):
        SphereDense(tmp_path, Stub()).index(MemoryCorpus([Passage("x", "")]))
    meta = tmp_path / "1" / "meta.pkl"
    rows = pickle.loads(meta.read_bytes())
    meta.write_bytes(pickle.dumps(rows[:5]))
    with pytest.raises(ValueError, match=r"meta.pkl: 5 rows for 200 vectors"):
        SphereDense(tmp_path, Stub()).index(CORPUS)
    meta.write_bytes(pickle.dumps([print]))
    with pytest.raises(ValueError, match=r"meta.pkl: refused as metadata: it asks for"):
        SphereDense(tmp_path, Stub()).index(CORPUS)
    (tmp_path / "0" / "index.faiss").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"index.faiss: ") as error:
        SphereDense(tmp_path, Stub()).index(CORPUS)
    assert "\n" not in str(error.value)


def test_the_metadata_is_read_once(tmp_path, monkeypatch):
    write(tmp_path)
    calls, real = [], sphere_dense.read_metadata
    monkeypatch.setattr(sphere_dense, "read_metadata", lambda file: calls.append(file) or real(file))
    for _ in range(2):
        SphereDense(tmp_path, Stub()).index(CORPUS)
    assert len(calls) == 3


def test_the_fingerprint_depends_on_files_encoder_and_arguments(tmp_path):
    write(tmp_path)
    first = SphereDense(tmp_path, Stub()).fingerprint
    assert SphereDense(tmp_path, Stub()).fingerprint == first
    others = [SphereDense(tmp_path, Stub("b")), SphereDense(tmp_path, Stub(), nprobe=3), SphereDense(tmp_path)]
    assert len({first, *(other.fingerprint for other in others)}) == 4
    (tmp_path / "0" / "meta.pkl").write_bytes(pickle.dumps([]))
    assert SphereDense(tmp_path, Stub()).fingerprint != first


def test_dpr_web_encodes_as_the_authors_client_does(tmp_path):
    """A tiny model in the form of the published checkpoint: the last of 256 tokens is [SEP], padding is masked."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from lm.dpr_web import DprWeb

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "who", "won", "query", "0", "1"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    config = transformers.DPRConfig(
        vocab_size=len(words),
        hidden_size=D,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=256,
    )
    torch.manual_seed(0)
    model = transformers.DPRQuestionEncoder(config).eval()
    config.save_pretrained(tmp_path)
    transformers.BertTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    encoder = DprWeb(tmp_path)
    assert encoder.dimension == D
    vectors = encoder.encode_queries([Query("a", "a", "who won"), Query("b", "b", "query 1")]).vectors
    tokens = [[2, 5, 6, 3, *[0] * 251, 3], [2, 7, 9, 3, *[0] * 251, 3]]
    mask = [[float(token != 0) for token in row] for row in tokens]
    with torch.no_grad():
        right = model(torch.tensor(tokens), attention_mask=torch.tensor(mask)).pooler_output.numpy()
    np.testing.assert_allclose(vectors, right, atol=1e-5)
    with pytest.raises(ValueError, match="encodes queries only"):
        encoder.encode_passages(PASSAGES[:1])


def test_keeps_the_promises_of_retrievers(tmp_path):
    encoder = FakeEncoder(dimension=D)
    vectors = encoder.encode_passages(CHECKED)
    norms = np.square(vectors).sum(axis=1)
    index = faiss.IndexFlatL2(D + 1)
    index.add(np.hstack([vectors, np.sqrt(norms.max() - norms)[:, None]]).astype(np.float32))
    (tmp_path / "0").mkdir()
    faiss.write_index(index, str(tmp_path / "0" / "index.faiss"))
    meta = [(p.passage_id, zlib.compress(p.text.encode()), zlib.compress(p.title.encode()), False) for p in CHECKED]
    (tmp_path / "0" / "meta.pkl").write_bytes(pickle.dumps(meta))
    (tmp_path / "0" / "cfg.json").write_text(json.dumps({"metric": "l2", "nprobe": 1, "dim": D + 1}))
    (tmp_path / "encoder.json").write_text(json.dumps({"encoder": "fake", "fingerprint": encoder.fingerprint}))
    check_retriever(lambda: SphereDense(path=tmp_path, encoder=encoder), reads_text=False)

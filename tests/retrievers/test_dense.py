"""Dense retrieval: promises, fingerprints, what is encoded again, arguments of the command line."""

import numpy as np
import pytest

from corpora.fingerprint import fingerprint
from corpora.memory import MemoryCorpus
from corpora.registry import Registry
from corpora.types import Passage, Query
from retrievers import encoding
from retrievers.checks import PASSAGES, QUERIES, check_retriever
from retrievers.dense import Dense
from retrievers.merge import best_first
from tests.retrievers.fake_encoder import FakeEncoder

REGISTRY = Registry(
    "retrievers",
    {
        "dense": "retrievers.dense:Dense",
        "contriever": "retrievers.contriever:Contriever",
        "dpr": "retrievers.dpr:DPR",
        "sentence-transformer": "retrievers.sentence_transformer:SentenceTransformer",
    },
)
FAKE = "tests.retrievers.fake_encoder:FakeEncoder"


def corpus_of(n=50):
    return MemoryCorpus([Passage(f"p{i * 7 % n}", f"w{i % 11} w{i % 7} w{i % 3}") for i in range(n)], block_rows=4)


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_keeps_all_promises(dtype):
    check_retriever(lambda: Dense(encoder=FakeEncoder(), dtype=dtype))


def test_the_plan_counts_what_is_not_encoded():
    corpus, retriever = corpus_of(50), Dense(encoder=FakeEncoder(dimension=16))
    # 83 x 3600 passages are an hour; 16 numbers of 2 bytes each, 298,800 passages: 9,561,600 bytes = 0.0089 GiB
    assert retriever.pending(None, 83 * 3600).startswith(
        "encode 298,800 passages, 0.01 GiB in fp16 (16 dimensions): about 1.00 GPU hours at 83 passages a second"
    )
    assert retriever.pending(corpus, 50).startswith("encode 50 passages")
    retriever.index(corpus.part(0, 5))
    assert retriever.pending(corpus, 50).startswith("encode 42 passages")  # of 13 blocks of 4, part 1 of 5 has 2
    retriever.index(corpus)
    assert retriever.pending(corpus, 50) is None


def test_only_exact_search_wants_all_queries_at_once():
    assert Dense(encoder=FakeEncoder()).one_pass
    assert not Dense(encoder=FakeEncoder(), index_type="HNSW8").one_pass


def test_ranks_by_dot_product():
    encoder, corpus = FakeEncoder(), MemoryCorpus(PASSAGES)
    (ranking,) = Dense(encoder, dtype="fp32").index(corpus).search(QUERIES[:1], 4)
    scores = {
        p.passage_id: float(encoder._vector(f"{p.title} {p.text}") @ encoder._vector(QUERIES[0].text)) for p in corpus
    }
    expected = sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:4]
    assert [(hit.passage_id, hit.score) for hit in ranking] == expected


def test_parts_merged_are_the_whole(monkeypatch):
    monkeypatch.setattr(encoding, "BLOCK_ROWS", 4)
    encoder, corpus = FakeEncoder(), corpus_of()
    parts = [Dense(encoder).index(corpus.part(i, 5)).search(QUERIES, 9) for i in range(5)]
    before = len(encoder.encoded)
    whole = Dense(encoder).index(corpus).search(QUERIES, 9)
    assert before == len(encoder.encoded) == 50
    merged = [best_first((hit for hits in each for hit in hits), 9) for each in zip(*parts, strict=True)]
    assert merged == whole
    assert Dense(encoder).local_scores
    assert not Dense(encoder, index_type="HNSW16").local_scores


def test_empty_part():
    assert Dense(FakeEncoder()).index(MemoryCorpus()).search(QUERIES, 5) == [()] * len(QUERIES)


def test_what_only_queries_need_encodes_nothing_again():
    encoder, corpus = FakeEncoder(), corpus_of()
    Dense(encoder).index(corpus)
    for other in (Dense(encoder, index_type="IVF4,Flat", nprobe=2), Dense(encoder, batch_size=3, device="cpu")):
        other.index(corpus).search(QUERIES, 3)
    prefixed = FakeEncoder(query_prefix="w1")
    Dense(prefixed).index(corpus)
    assert len(encoder.encoded) == 50
    assert prefixed.encoded == []


def test_fingerprints():
    base = fingerprint(Dense(FakeEncoder()))
    same = Dense(FakeEncoder(), batch_size=7, device="cpu", recall_queries=3)
    others = [
        Dense(FakeEncoder(seed=1)),
        Dense(FakeEncoder(query_prefix="q")),
        Dense(FakeEncoder(), dtype="fp32"),
        Dense(FakeEncoder(), index_type="HNSW16"),
        Dense(FakeEncoder(), index_type="HNSW16", ef_search=9),
        Dense(FakeEncoder(), candidates=900),
    ]
    assert fingerprint(same) == base
    assert len({base, *map(fingerprint, others)}) == 1 + len(others)


def test_arguments_of_the_command_line():
    made = REGISTRY.create("dense", [f"encoder={FAKE}", "encoder_args=dimension=8,query_prefix=a b", "dtype=fp32"])
    with pytest.raises(ValueError, match="no argument 'device'"):
        print(REGISTRY.create("dense", [f"encoder={FAKE}", "device=cpu"]).model)
    assert made.model.dimension == 8
    assert made.model.query_prefix == "a b"
    assert fingerprint(made) == fingerprint(Dense(FakeEncoder(8, query_prefix="a b"), dtype="fp32"))
    with pytest.raises(ValueError, match="encoder_args: 'cls' is not of the form name=value"):
        print(REGISTRY.create("dense", ["encoder_args=cls"]).model)
    minilm = REGISTRY.create("dense", ["encoder=minilm", "batch_size=64", "dtype=fp32", "encoder_args=dtype=bf16"])
    assert (minilm.dtype, minilm.batch_size, minilm.model.batch_size, minilm.model.dtype) == ("fp32", 64, 64, "bf16")


@pytest.mark.parametrize(
    "name, model",
    [
        ("contriever", "facebook/contriever-msmarco"),
        ("dpr", "facebook/dpr-ctx_encoder-single-nq-base"),
        ("sentence-transformer", "sentence-transformers/all-MiniLM-L6-v2"),
    ],
)
def test_short_names(name, model):
    assert REGISTRY.create(name, ["index_type=IVF8,Flat"]).model.model == model


def test_approximate_index_reports_recall():
    corpus = corpus_of(2000)
    with pytest.warns(
        UserWarning, match=r"IVF64,Flat: recall@10 0\.\d+ against exact search on 5 queries: raise nprobe"
    ):
        Dense(FakeEncoder(64), index_type="IVF64,Flat", recall_queries=5, nprobe=1).index(corpus).search(
            [Query(f"q{i}", "q", f"w{i} w{i * 2}") for i in range(8)], 10
        )


def test_prefetch_reaches_the_encoder():
    encoder = FakeEncoder()
    Dense(encoder).prefetch()
    encoder.prefetch = lambda: encoder.encoded.append("fetched")
    Dense(encoder).prefetch()
    assert encoder.encoded == ["fetched"]


def test_vectors_built_elsewhere(tmp_path):
    encoder, corpus = FakeEncoder(), corpus_of()
    expected = Dense(encoder, dtype="fp32").index(corpus).search(QUERIES, 7)
    data = np.stack([encoder._vector(f" {p.text}") for p in corpus])
    np.save(tmp_path / "0.npy", data)
    theirs = Dense(encoder, vectors=tmp_path)
    assert theirs.index(corpus).search(QUERIES, 7) == expected
    parts = [theirs.index(corpus.part(i, 2)).search(QUERIES, 7) for i in range(2)]
    assert [best_first((*a, *b), 7) for a, b in zip(*parts, strict=True)] == expected
    with pytest.raises(ValueError, match="has 50 vectors, and the corpus 49 passages"):
        theirs.index(MemoryCorpus([*corpus][1:]))
    shuffled = np.random.default_rng(0).permutation(50)
    np.save(tmp_path / "0.npy", data[shuffled])
    (tmp_path / "ids.txt").write_text("".join(f"{each}\n" for each in corpus.ids(shuffled.tolist())))
    assert Dense(encoder, vectors=tmp_path).index(corpus).search(QUERIES, 7) == expected
    assert fingerprint(Dense(encoder, vectors=tmp_path)) != fingerprint(Dense(encoder))
    with pytest.raises(ValueError, match="have an order of their own: search them without --shard"):
        theirs.index(corpus.part(0, 2))
    with pytest.raises(ValueError, match="are of another corpus: no passage"):
        theirs.index(MemoryCorpus(PASSAGES))

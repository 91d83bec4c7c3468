"""What a GPU computes against what the CPU computes: ``make gpu``, which ``make test`` leaves out.

Rankings must be the same, probabilities and vectors the same up to rounding; models are tiny and made here.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

# ruff: noqa: E402
torch = pytest.importorskip("torch", reason="needs the extra 'gpu'")

from corpora.types import Passage, Query
from evaluator.judges.mistral import Mistral
from evaluator.judges.small import Small
from evaluator.train import main as train
from evaluator.types import Judgement
from lm.base import QueryVectors
from lm.encoder import TransformersEncoder
from retrievers.exact import search
from retrievers.shards import Shard
from retrievers.vectors import Vectors
from tests.evaluator import tiny

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU here"),
]


def names(rows: list[int]) -> list[str]:
    """Identifiers that sort in another order than the rows."""
    return [f"p{(row * 7919) % 1_000_003:07}" for row in rows]


def judged(judge: Mistral | Small, pairs: list) -> list[Judgement]:
    found: dict[int, Judgement] = dict(judge.judge([each.pair for each in pairs]))
    return [found[i] for i in range(len(pairs))]


def probabilities(found: list[Judgement]) -> np.ndarray:
    return np.array([np.nan if each.probability is None else each.probability for each in found])


# Exact search


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("shards", [1, 3])
def test_search_ranks_as_on_a_cpu(dtype: type, shards: int) -> None:
    rng = np.random.default_rng(0)
    data = rng.standard_normal((50_000, 96)).astype(dtype)
    data[40_000:] = data[:10_000]  # ties, to be broken by identifier
    edges = np.linspace(0, len(data), shards + 1).astype(int).tolist()
    parts = [Shard(a, b, data[a:b], None) for a, b in itertools.pairwise(edges)]
    vectors = Vectors(parts, 0, len(data), "test")
    asked = QueryVectors(rng.standard_normal((70, 96)).astype(np.float32), np.repeat(np.arange(35), 2))
    expected = search(vectors, asked, 100, names, "cpu")
    assert search(vectors, asked, 100, names, "cuda") == expected  # to the last bit of the scores
    assert len({hit.passage_id for hit in expected[0]}) == 100


def test_search_finds_near_ties_beyond_the_margin() -> None:
    """2,000 passages whose scores differ by less than fp32 can tell."""
    rng = np.random.default_rng(2)
    data = np.tile(rng.standard_normal(256), (2000, 1)).astype(np.float32)
    order = rng.permutation(2000)
    data[:, 1] = (1 + order * 2.0**-23).astype(np.float32)
    vectors = Vectors([Shard(0, 2000, data, None)], 0, 2000, "test")
    asked = QueryVectors(np.abs(rng.standard_normal((2, 256))).astype(np.float32), np.arange(2))
    best = names(np.argsort(-order)[:5].tolist())
    found = search(vectors, asked, 5, names, "cuda")
    assert [[hit.passage_id for hit in ranking] for ranking in found] == [best, best]


def test_search_refuses_reduced_precision() -> None:
    vectors = Vectors([Shard(0, 9, np.ones((9, 4), np.float32), None)], 0, 9, "test")
    torch.set_float32_matmul_precision("high")
    try:
        with pytest.raises(ValueError, match="exact search needs full fp32 products"):
            search(vectors, QueryVectors(np.ones((1, 4), np.float32), np.arange(1)), 3, names, "cuda")
    finally:
        torch.set_float32_matmul_precision("highest")


# Encoders


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def passages() -> list[Passage]:
    rng = np.random.default_rng(3)
    words = np.array(tiny.FILLER)
    return [Passage(f"p{i}", " ".join(rng.choice(words, rng.integers(1, 60)))) for i in range(500)]


def encoder(folder: Path, device: str | None, dtype: str = "fp32", **more: object) -> TransformersEncoder:
    return TransformersEncoder(folder, device=device, dtype=dtype, **more)


def test_vectors_are_those_of_the_cpu(bert: Path, passages: list[Passage]) -> None:
    expected = encoder(bert, "cpu").encode_passages(passages)
    np.testing.assert_allclose(encoder(bert, None).encode_passages(passages), expected, atol=2e-5)
    asked = [Query("q", "q", "house river red")]
    np.testing.assert_allclose(
        encoder(bert, "cuda:0").encode_queries(asked).vectors,
        encoder(bert, "cpu").encode_queries(asked).vectors,
        atol=2e-5,
    )


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_half_precision_is_close(bert: Path, passages: list[Passage], dtype: str) -> None:
    expected = encoder(bert, "cpu").encode_passages(passages)
    found = encoder(bert, "cuda", dtype).encode_passages(passages)
    assert found.dtype == np.float32
    cosine = (found * expected).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(expected, axis=1)
    assert cosine.min() > 0.995
    assert np.abs(found - expected).max() > 0


def test_a_full_device_halves_the_batch_and_goes_on(bert: Path, passages: list[Passage]) -> None:
    expected = encoder(bert, "cpu").encode_passages(passages)
    found = encoder(bert, "cuda:0", batch_size=512, batch_tokens=1 << 16)
    found.encode_passages(passages[:1])  # loads the model
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved(0) + (8 << 20)) / total, 0)
    try:
        np.testing.assert_allclose(found.encode_passages(passages), expected, atol=2e-5)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, 0)
    assert found._batcher.batch_tokens < 1 << 16  # so memory did run out


# Judges


@pytest.fixture(scope="module")
def mistral(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make_mistral(tmp_path_factory.mktemp("mistral"))


@pytest.fixture(scope="module")
def prompt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompt") / "prompt.txt"
    path.write_text("Passage: {passage} Statement: {perspective} Answer:")
    return path


def test_judgements_are_those_of_the_cpu(mistral: Path, prompt: Path) -> None:
    pairs = tiny.make_pairs(200, seed=5)
    made = {"prompt": prompt, "rendering": "mistral"}
    expected = judged(Mistral(mistral, dtype="fp32", device="cpu", **made), pairs)
    for share in (True, False):
        found = judged(Mistral(mistral, dtype="fp32", share=share, **made), pairs)
        assert [each.status for each in found] == [each.status for each in expected]
        np.testing.assert_allclose(probabilities(found), probabilities(expected), atol=1e-4)
    half, whole = probabilities(judged(Mistral(mistral, dtype="bf16", **made), pairs)), probabilities(expected)
    assert (np.isnan(half) == np.isnan(whole)).mean() > 0.9  # the likeliest token may change where two are near
    both = ~np.isnan(half) & ~np.isnan(whole)
    assert both.sum() > 20
    np.testing.assert_allclose(half[both], whole[both], atol=0.15)


# Training


@pytest.mark.parametrize("recipe", [tiny.CAUSAL_RECIPE, tiny.CROSS_RECIPE], ids=["causal", "cross_encoder"])
def test_training_learns_in_bf16_and_the_judge_agrees_with_its_card(
    tmp_path: Path, recipe: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    causal = recipe["kind"] == "causal"
    base = (tiny.make_mistral if causal else tiny.make_bert)(tmp_path / "base")
    path = tiny.write_recipe(tmp_path, recipe, base, dtype="bf16")
    pairs, dev = tiny.make_pairs(256, seed=1), tiny.make_pairs(64, seed=2)
    tiny.write(tmp_path, "pairs.tsv", pairs)
    tiny.write(tmp_path, "dev.tsv", dev)
    data = ["--pairs", str(tmp_path / "pairs.tsv"), "--dev", str(tmp_path / "dev.tsv")]
    assert train(["--recipe", str(path), *data, "--output", str(tmp_path / "out")]) == 0
    assert "cuda" in (tmp_path / "out" / "README.md").read_text()
    if causal:
        judge = Mistral(base, adapter=tmp_path / "out", prompt=tmp_path / "prompt.yaml", rendering="mistral")
    else:
        judge = Small(base, adapter=tmp_path / "out", max_length=64)
    found = probabilities(judged(judge, dev)) >= 0.5
    truth = np.array([bool(each.label) for each in dev])
    assert (found == truth).mean() > 0.95

"""What the rerankers cost beside peers, in one run on one core: ``python tests/speed/reranking.py``.

Timed is what a reranker does once vectors, probabilities or labels are there, for 100 and 1,000 passages a question; of
``mmr`` also with the cosines from the vectors, and whole with the vectors from the cache. Peers get the same input:

* mmr: pyterrier-dr's MmrScorer where it is installed (``pip install pyterrier-dr``); the formula of Carbonell and
  Goldstein (1998) as a plain loop, O(n^3); and in plain NumPy, O(n^2);
* cross_encoder: a tiny random BERT, read by sentence-transformers' CrossEncoder.predict;
* all others: ``plain_...``, greedy choices in NumPy that compute their formula anew for every pick; only at sizes where
  they end in reasonable time. ``dpp`` ends after as many picks as the vectors have dimensions.

Vectors share a direction, as real ones do, so that no cosine is negative: pyterrier-dr counts negative ones as 0.
Processor time, medians of several rounds in turns. Every line says whether both give the same order.
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before NumPy is imported

import contextlib
import logging
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log10
from pathlib import Path

import numpy as np

from corpora.types import Hit, Passage, Pool, Query
from lm.base import QueryVectors
from rerankers.aspects import shares
from rerankers.dpp import dpp
from rerankers.facility_location import facility_location
from rerankers.ia_select import ia_select
from rerankers.mmr import MMR, mmr
from rerankers.oracle import greedy_coverage
from rerankers.pm2 import pm2
from rerankers.round_robin import round_robin
from rerankers.similarity import cosines
from rerankers.vrsd import vrsd
from rerankers.xquad import xquad

SIZES, QUESTIONS = (100, 1000), {100: 8, 1000: 2}
ROUNDS, LONGEST_S = 7, 4.0  # rounds end early where all sides together have taken so long
D, ASPECTS, PERSPECTIVES, WEIGHT = 384, 6, 8, 0.75
LIMITS = {"mmr, similarities given": 0.4, "mmr, from vectors": 0.8}  # ms a question of 100 passages


@dataclass
class Question:
    """What the choices get; drawn."""

    seed: int
    n: int

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        vectors = rng.normal(size=(self.n, D)) / np.sqrt(D) + 1.5 * np.eye(D)[0]
        self.units = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
        asked = rng.normal(size=D) / np.sqrt(D) + 1.5 * np.eye(D)[0]
        self.to_question = self.units @ (asked / np.linalg.norm(asked)).astype(np.float32)
        self.relevance = np.sort(rng.random(self.n))[::-1].copy()
        self.share = self.relevance / self.relevance.sum()
        self.by_aspect = shares(rng.random((self.n, ASPECTS)))
        self.weights = rng.dirichlet(np.ones(ASPECTS))
        self.supports = rng.random((self.n, PERSPECTIVES)) < 0.1

    @cached_property
    def similarity(self) -> np.ndarray:
        """float32 (n, n)."""
        return cosines(self.units)


def loop_mmr(question: Question) -> list[int]:
    """The formula in plain loops over lists."""
    relevance, similarity = question.relevance.tolist(), question.similarity.tolist()
    left, picked = list(range(question.n)), []
    while left:
        values = [
            WEIGHT * relevance[d] - (1 - WEIGHT) * max((similarity[d][p] for p in picked), default=0.0) for d in left
        ]
        picked.append(left.pop(values.index(max(values))))
    return picked


def running_mmr(question: Question) -> list[int]:
    """The formula in NumPy as one would write it down: the highest cosine to the picks is kept and updated."""
    picked, worst = [], np.zeros(question.n)
    for _ in range(question.n):
        values = WEIGHT * question.relevance - (1 - WEIGHT) * worst
        values[picked] = -np.inf
        picked.append(int(values.argmax()))
        row = question.similarity[picked[-1]]
        worst = row if len(picked) == 1 else np.maximum(worst, row)
    return picked


def greedy(n: int, value: Callable[[np.ndarray, list[int]], np.ndarray]) -> list[int]:
    """Picks the first of the highest values of what is left, until nothing is."""
    left, picked = np.arange(n), []
    while len(left):
        at = int(value(left, picked).argmax())
        picked.append(int(left[at]))
        left = np.delete(left, at)
    return picked


def plain_dpp(question: Question) -> list[int]:
    """A determinant for every candidate."""
    similarity = question.similarity.astype(np.float64)
    quality = WEIGHT / (1 - WEIGHT) * question.relevance  # log q^2

    def value(left: np.ndarray, picked: list[int]) -> np.ndarray:
        sets = np.hstack([np.tile(picked, (len(left), 1)).astype(int).reshape(len(left), -1), left[:, None]])
        return quality[left] + np.linalg.slogdet(similarity[sets[:, :, None], sets[:, None, :]])[1]

    return greedy(question.n, value)


def plain_facility_location(question: Question) -> list[int]:
    """The gain of every candidate over all passages."""
    near = (1 - WEIGHT) * np.maximum(question.similarity.astype(np.float64), 0) / question.n
    own = WEIGHT * question.relevance / question.n
    covered = np.zeros(question.n)

    def value(left: np.ndarray, picked: list[int]) -> np.ndarray:
        if picked:
            np.maximum(covered, near[picked[-1]], out=covered)
        return own[left] + np.maximum(near[left] - covered, 0).sum(axis=1)

    return greedy(question.n, value)


def plain_vrsd(question: Question) -> list[int]:
    """The sum of the vectors with every candidate, and its length."""
    units, aim = question.units.astype(np.float64), question.to_question.astype(np.float64)

    def value(left: np.ndarray, picked: list[int]) -> np.ndarray:
        sums = units[picked].sum(axis=0) + units[left]
        return (aim[picked].sum() + aim[left]) / np.linalg.norm(sums, axis=1)

    return greedy(question.n, value)


def plain_xquad(question: Question) -> list[int]:
    """The product over all picks, for every pick."""
    base, by_aspect, weights = question.share, question.by_aspect, question.weights

    def value(left: np.ndarray, picked: list[int]) -> np.ndarray:
        open_ = np.prod(1 - by_aspect[picked], axis=0)
        return (1 - WEIGHT) * base[left] + WEIGHT * (by_aspect[left] * weights * open_).sum(axis=1)

    return greedy(question.n, value)


def plain_ia_select(question: Question) -> list[int]:
    """The same without relevance."""
    by_aspect, weights = question.by_aspect, question.weights
    return greedy(
        question.n,
        lambda left, picked: (by_aspect[left] * weights * np.prod(1 - by_aspect[picked], axis=0)).sum(axis=1),
    )


def plain_pm2(question: Question) -> list[int]:
    """The seats of all picks counted anew, for every pick."""
    by_aspect = question.by_aspect
    seats_of = by_aspect / by_aspect.sum(axis=1, keepdims=True)

    def value(left: np.ndarray, picked: list[int]) -> np.ndarray:
        quotients = question.weights / (2 * seats_of[picked].sum(axis=0) + 1)
        factors = np.where(np.arange(ASPECTS) == quotients.argmax(), WEIGHT, 1 - WEIGHT) * quotients
        return (by_aspect[left] * factors).sum(axis=1)

    return greedy(question.n, value)


def plain_round_robin(question: Question) -> list[int]:
    """The best of what is left for the aspect whose turn it is."""
    return greedy(question.n, lambda left, picked: question.by_aspect[left, len(picked) % ASPECTS])


def plain_oracle(question: Question) -> list[int]:
    """New perspectives counted anew, for every pick."""
    supports = question.supports

    def value(left: np.ndarray, picked: list[int]) -> np.ndarray:
        open_ = ~supports[picked].any(axis=0)
        return 2 * (supports[left] & open_).sum(axis=1) + supports[left].any(axis=1)

    return greedy(question.n, value)


Choice = Callable[[Question], list[int]]


OURS: dict[str, Choice] = {
    "mmr, similarities given": lambda q: mmr(q.relevance, q.similarity, WEIGHT),
    "mmr, from vectors": lambda q: mmr(q.relevance, cosines(q.units), WEIGHT),
    "dpp": lambda q: dpp(q.relevance, q.similarity, WEIGHT),
    "facility_location": lambda q: facility_location(q.relevance, q.similarity, WEIGHT),
    "vrsd": lambda q: vrsd(q.to_question, q.similarity),
    "xquad": lambda q: xquad(q.share, q.by_aspect, q.weights, WEIGHT),
    "ia_select": lambda q: ia_select(q.by_aspect, q.weights),
    "pm2": lambda q: pm2(q.by_aspect, q.weights, WEIGHT),
    "round_robin": lambda q: round_robin(q.by_aspect),
    "oracle": lambda q: greedy_coverage(q.supports),
}


def pyterrier_dr() -> Choice | None:
    """MMR of pyterrier-dr; None where it is not installed."""
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings(), open(os.devnull, "w") as silent, contextlib.redirect_stderr(silent):
        warnings.simplefilter("ignore")
        try:
            import pandas as pd
            from pyterrier_dr import MmrScorer
        except ImportError as error:
            print(f"pyterrier-dr is not installed ({error}): its MMR is left out; pip install pyterrier-dr")
            return None
    scorer = MmrScorer(Lambda=WEIGHT)

    def choose(question: Question) -> list[int]:
        return scorer(frames[question.seed, question.n])["docno"].astype(int).tolist()

    frames = {
        (question.seed, n): pd.DataFrame(
            {"qid": "q", "query": "q", "docno": [str(i) for i in range(n)], "doc_vec": list(question.units),
             "score": question.relevance, "rank": range(n)}
        )
        for n in SIZES for question in drawn(n)
    }  # fmt: skip
    return choose


def drawn(n: int) -> list[Question]:
    """The questions of a size, with their similarities."""
    questions = [Question(seed, n) for seed in range(QUESTIONS[n])]
    for question in questions:
        _ = question.similarity
    return questions


def measured(sides: dict[str, Callable[[], object]], each: int) -> dict[str, float]:
    """Name -> ms a question; all sides in turns."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    begun = time.perf_counter()
    for i in range(ROUNDS):
        if i and time.perf_counter() - begun > LONGEST_S:
            break
        for name, run in sides.items():
            start = time.process_time()
            run()
            seconds[name].append(time.process_time() - start)
    return {name: 1000 * statistics.median(found) / each for name, found in seconds.items()}


def agreement(mine: Sequence[list[int]], theirs: Sequence[list[int]]) -> str:
    """Whether the orders are equal; ours may be shorter (dpp stops where nothing adds volume)."""
    for number, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        wrong = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
        if wrong is not None:
            return f"question {number} differs from pick {wrong + 1} on: {a[wrong]} here, {b[wrong]} there"
    cut = min(len(b) - len(a) for a, b in zip(mine, theirs, strict=True))
    return "same order" if not cut else f"same order, of which ours gives {len(mine[0])} picks"


def compare(name: str, own: Choice, peers: dict[str, Choice], questions: list[Question]) -> float:
    """Prints a line for us and one for each peer; returns our ms."""
    sides = {name: own, **peers}
    orders = {side: [choose(question) for question in questions] for side, choose in sides.items()}
    runs = {side: lambda choose=choose: [choose(q) for q in questions] for side, choose in sides.items()}
    found = measured(runs, len(questions))
    limit = LIMITS.get(name) if questions[0].n == 100 else None
    aim = "" if limit is None else f"   limit {limit} ms: {'met' if found[name] <= limit else 'MISSED'}"
    print(f"{questions[0].n:>6,}  {name:26} {found[name]:9.3f} ms{aim}")
    for peer in peers:
        print(f"{'':8}  {peer:24} {found[peer]:9.3f} ms   {found[peer] / found[name]:7.2f} x   "
              f"{agreement(orders[name], orders[peer])}")  # fmt: skip
    return found[name]


class Drawn:
    """An encoder whose vectors are the questions' own: a text is the number of its question and its row."""

    fingerprint, dimension = "drawn for tests/speed/reranking.py", D

    def __init__(self, questions: Sequence[Question]) -> None:
        self.units = {f"{question.n} {question.seed}": question.units for question in questions}

    def encode_passages(self, passages: Sequence[Passage]) -> np.ndarray:
        """float32 (n, 384)."""
        places = [passage.text.rsplit(" ", 1) for passage in passages]
        return np.stack([self.units[name][int(row)] for name, row in places])

    def encode_queries(self, queries: Sequence[Query]) -> QueryVectors:
        """None is asked for."""
        raise NotImplementedError


def pool(question: Question, text: Callable[[int], str], query: str = "q") -> Pool:
    """The pool of a question."""
    passages = tuple(Passage(f"{question.seed}-{i}", text(i)) for i in range(question.n))
    ranking = tuple(Hit(p.passage_id, float(score)) for p, score in zip(passages, question.relevance, strict=True))
    name = str(question.seed)
    return Pool(Query(name, name, query), ranking, passages, (), (), None)


def whole_mmr(questions: list[Question]) -> float:
    """The reranker itself, vectors from the cache; returns ms."""
    reranker = MMR(lambda_=WEIGHT, encoder=Drawn(questions))
    pools = [pool(q, lambda i, q=q: f"{q.n} {q.seed} {i}") for q in questions]
    reranker.rerank(pools)
    name = "mmr, whole, vectors cached"
    found = measured({name: lambda: reranker.rerank(pools)}, len(pools))[name]
    print(f"{questions[0].n:>6,}  {name:26} {found:9.3f} ms")
    return found


WORDS = ["tax", "school", "people", "work", "health", "money", "good", "bad", "less", "harm", "law", "car", "city"]


def tiny_bert(folder: Path) -> Path:
    """Writes a BERT of 2 layers with random weights and one logit."""
    import torch
    import transformers

    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    transformers.BertTokenizer(str(folder / "vocab.txt"), model_max_length=256).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256,
        max_position_embeddings=256, num_labels=1, initializer_range=0.3,
    )  # fmt: skip
    transformers.BertForSequenceClassification(config).eval().save_pretrained(folder)
    return folder


def drawn_text(seed: int, row: int) -> str:
    """20 to 120 words."""
    rng = np.random.default_rng([seed, row])
    return " ".join(rng.choice(WORDS, rng.integers(20, 121)))


def cross_encoders(folder: Path) -> Callable[[list[Question]], float] | None:
    """Compares the cross-encoders on a question of each size; None where torch is not installed."""
    try:
        import torch
        from sentence_transformers import CrossEncoder as Peer

        from rerankers.cross_encoder import CrossEncoder
    except ImportError as error:
        print(f"cross_encoder is left out: {error}")
        return None
    torch.set_num_threads(1)
    model = str(tiny_bert(folder))
    reranker, peer = CrossEncoder(model=model, device="cpu"), Peer(model, device="cpu")

    def choose(question: Question) -> list[int]:
        ranking = reranker.rerank([made(question)])[0]
        return [int(hit.passage_id.partition("-")[2]) for hit in ranking]

    def predict(question: Question) -> list[int]:
        given = made(question)
        scores = peer.predict([(given.query.text, p.text) for p in given.passages], activation_fn=torch.nn.Identity())
        return np.argsort(-np.asarray(scores), kind="stable").tolist()

    pools: dict[int, Pool] = {}

    def made(question: Question) -> Pool:
        if question.n not in pools:
            pools[question.n] = pool(question, lambda i: drawn_text(question.seed, i), "good law")
        return pools[question.n]

    return lambda questions: compare(
        "cross_encoder, tiny BERT", choose, {"sentence-transformers": predict}, questions[:1]
    )


def main() -> None:
    """Prints every line of every size, then how cost grows."""
    terrier = pyterrier_dr()
    vectors = {"plain loop": loop_mmr, "plain NumPy": running_mmr}
    peers: dict[str, dict[str, Choice]] = {
        "mmr, similarities given": vectors,
        "mmr, from vectors": {} if terrier is None else {"pyterrier-dr": terrier},
        "dpp": {"plain_dpp": plain_dpp},
        "facility_location": {"plain_facility_location": plain_facility_location},
        "vrsd": {"plain_vrsd": plain_vrsd},
        "xquad": {"plain_xquad": plain_xquad},
        "ia_select": {"plain_ia_select": plain_ia_select},
        "pm2": {"plain_pm2": plain_pm2},
        "round_robin": {"plain_round_robin": plain_round_robin},
        "oracle": {"plain_oracle": plain_oracle},
    }
    too_slow = {"plain loop", "plain_dpp"}  # at 1,000 passages: O(n^3) in Python, O(n^5)
    cost: dict[str, list[float]] = {}
    print("passages, ms of processor time a question; peers: how many times as long, and their order")
    with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as folder:
        os.environ["RETRIEVAL_DIVERSITY_CACHE"] = cache
        encoders = cross_encoders(Path(folder))
        for n in SIZES:
            questions = drawn(n)
            for name, choose in OURS.items():
                chosen = {peer: f for peer, f in peers[name].items() if n == SIZES[0] or peer not in too_slow}
                cost.setdefault(name, []).append(compare(name, choose, chosen, questions))
            cost.setdefault("mmr, whole, vectors cached", []).append(whole_mmr(questions))
            if encoders is not None:
                cost.setdefault("cross_encoder, tiny BERT", []).append(encoders(questions))
    print(f"from {SIZES[0]} to {SIZES[1]:,} passages (10 x: linear, 100 x: quadratic)")
    for name, (small, large) in cost.items():
        print(f"        {name:26} {large / small:7.1f} x, about n^{log10(large / small):.1f}")


if __name__ == "__main__":
    main()

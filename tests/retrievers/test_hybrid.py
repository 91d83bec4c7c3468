"""Fusion of two retrievers: by hand, and nothing indexed twice."""

from pathlib import Path

import pytest

from corpora.artefacts import list_artefacts
from corpora.fingerprint import fingerprint
from corpora.memory import MemoryCorpus
from corpora.types import Hit, Passage, Query
from retrievers import RETRIEVERS
from retrievers.bm25 import BM25
from retrievers.checks import FORM_CHECKS, PASSAGES, TEXT_CHECKS, check_retriever, check_ties
from retrievers.hybrid import FUSIONS, Hybrid
from retrievers.merge import MERGES
from retrievers.rank_bm25 import RankBM25
from retrievers.runfile import RunFile

HYBRID = "retrievers.hybrid:Hybrid"
CORPUS = MemoryCorpus(PASSAGES)
QUERY = Query("q", "q", "anything")


class Fixed:
    """Gives the same hits to every query, and counts how it is used."""

    def __init__(self, **scores):
        self.scores = scores
        self.prefetched, self.asked = 0, []

    @property
    def fingerprint(self):
        return str(self.scores)

    def prefetch(self):
        self.prefetched += 1

    def index(self, corpus):
        return self

    def search(self, queries, k):
        self.asked.append(k)
        return [tuple(Hit(name, float(score)) for name, score in self.scores.items())[:k] for _ in queries]


FIRST, SECOND = Fixed(a=30, b=20, c=10), Fixed(c=0.9, d=0.8)


def found(k=9, queries=(QUERY,), **arguments):
    (ranking, *_) = Hybrid(**{"first": FIRST, "second": SECOND, **arguments}).index(CORPUS).search(list(queries), k)
    return [(hit.passage_id, pytest.approx(hit.score)) for hit in ranking]


def test_fusions_by_hand():
    # ranks: a 1, b 2, c 3 and c 1, d 2
    assert found() == [("c", 1 / 63 + 1 / 61), ("a", 1 / 61), ("b", 1 / 62), ("d", 1 / 62)]
    assert found(constant=1) == [("c", 1 / 4 + 1 / 2), ("a", 1 / 2), ("b", 1 / 3), ("d", 1 / 3)]
    # scaled: a 1, b 1/2, c 0 and c 1, d 0
    assert found(fusion="weighted") == [("a", 0.5), ("c", 0.5), ("b", 0.25), ("d", 0)]
    assert found(fusion="weighted", weight=0.2) == [("c", 0.8), ("a", 0.2), ("b", 0.1), ("d", 0)]
    assert found(fusion="round_robin") == [("a", 4), ("c", 3), ("b", 2), ("d", 1)]
    assert found(fusion="max") == [("a", 30), ("b", 20), ("c", 10), ("d", 0.8)]


def test_depth_counts_and_not_k():
    first = Fixed(a=30, b=20, c=10)
    # with one hit of each: a 1/61, c 1/61
    assert found(first=first, depth=1) == [("a", 1 / 61), ("c", 1 / 61)]
    assert found(1, first=first) == [("c", 1 / 63 + 1 / 61)]
    assert found(0, first=first) == []
    assert first.asked == [1, 1000, 1000]


def test_rankings_are_aligned_with_the_queries():
    (one, other) = (
        RETRIEVERS.create(HYBRID, ["second=rank_bm25"])
        .index(CORPUS)
        .search([Query("1", "1", "school uniforms"), Query("2", "2", "vote")], 1)
    )
    assert [hit.passage_id for hit in (*one, *other)] == ["uniform", "vote"]
    assert Hybrid(FIRST, SECOND).index(CORPUS).search([], 5) == []


@pytest.mark.parametrize("fusion", [each for each in FUSIONS if each != "round_robin"])
def test_keeps_the_promises_of_retrievers(fusion):
    check_retriever(Hybrid("bm25", "rank_bm25", fusion=fusion, second_args=("variant=plus",)))


def test_round_robin_keeps_all_promises_but_equal_scores_of_equal_texts():
    for check in [each for each in (*FORM_CHECKS, *TEXT_CHECKS) if each is not check_ties]:  # its scores are places
        check(lambda: Hybrid("bm25", "rank_bm25", fusion="round_robin"))


def test_members_get_arguments_from_the_command_line():
    hybrid = RETRIEVERS.create(
        HYBRID, ["first_args=k1=0.9,b=0.4", "second=retrievers.rank_bm25:RankBM25", "second_args=variant=l", "depth=50"]
    )
    first, second = hybrid.members
    assert (type(first), first.k1, first.b, type(second), second.variant) == (BM25, 0.9, 0.4, RankBM25, "l")
    assert hybrid.depth == 50
    assert Hybrid(second="rank_bm25", second_args={"k1": 2.0}).members[1].k1 == 2.0


def test_a_value_may_hold_commas():
    inner = "first_args=second=rank_bm25,second_args=variant=l"
    nested = RETRIEVERS.create(HYBRID, [f"first={HYBRID}", inner, "second=bm25"])
    assert nested.members[0].members[1].variant == "l"
    file = RETRIEVERS.create(HYBRID, ["first=runfile", "first_args=path=a,b.trec", "second=bm25"]).members[0]
    assert file.path == Path("a,b.trec")


def test_indexes_are_those_of_the_members_alone():
    BM25().index(CORPUS)
    before = list_artefacts("index")
    Hybrid("bm25", "rank_bm25").index(CORPUS)
    Hybrid("bm25", BM25(), fusion="weighted", weight=0.1, first_args=("threads=2",)).index(CORPUS)
    assert list_artefacts("index") == before
    assert len(before) == 1


def test_the_fingerprint_tells_results_apart_and_nothing_else(tmp_path, monkeypatch):
    def of(**arguments):
        return fingerprint(Hybrid(**{"first": "bm25", "second": "rank_bm25", **arguments}))

    plain = of()
    assert plain == of(first="retrievers.bm25:BM25", second=RankBM25(), first_args=("threads=2", "k1=1.5"))
    files = [tmp_path / name for name in ("a.trec", "b.trec")]
    for i, file in enumerate(files):
        file.write_text(f"q Q0 p{i} 1 1 tag\n")
    different = [plain, of(first_args=("k1=0.9",)), of(depth=9), of(constant=9), of(first="rank_bm25", second="bm25")]
    different += [of(fusion="max"), of(fusion="weighted"), of(fusion="weighted", weight=0.9)]
    different += [of(second="runfile", second_args=(f"path={file}",)) for file in files]
    assert len(set(different)) == len(different)
    assert of(first=RunFile(files[0])) == of(first="runfile", first_args={"path": files[0]})
    monkeypatch.setattr(BM25, "version", 99)  # a member's new version is a new hybrid
    assert of() != plain


def test_is_not_local_and_lets_members_fetch():
    first = Fixed(a=1)
    hybrid = Hybrid(first, RankBM25())
    hybrid.prefetch()
    assert first.prefetched == 1
    assert not getattr(hybrid, "local_scores", False)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["fusion=sum"], f"fusion 'sum' is unknown: expected one of {', '.join([*MERGES, 'weighted'])}"),
        (["fusion=weighted", "weight=2"], "weight=2.0, constant=60, depth=1000: expected a weight from 0 to 1"),
        (["weight=0.3"], "weight=0.3 does nothing with fusion=rrf: choose fusion=weighted"),
        (["fusion=max", "constant=1"], "constant=1.0 does nothing with fusion=max: choose fusion=rrf"),
        (["constant=nan"], "constant=nan"),
        (["depth=0"], "depth=0: expected"),
    ],
)
def test_wrong_arguments_are_refused_at_once(arguments, message):
    with pytest.raises(ValueError, match=r"retriever 'retrievers\.hybrid:Hybrid'") as caught:
        RETRIEVERS.create(HYBRID, arguments)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"first": "bm52"}, "unknown retriever 'bm52': did you mean 'bm25'"),
        ({"first": "bm25", "first_args": ("k3=1", "b=x")}, "'bm25': no argument 'k3'.*; b=x: expected a number"),
        ({"first": "bm25", "first_args": ("k1",)}, "'k1' is not of the form key=value"),
        ({"first": BM25(), "first_args": ("k1=1",)}, "first_args: first is a BM25 already"),
        ({"first": "corpora.memory:MemoryCorpus"}, "has no method index: it is no retriever"),
    ],
)
def test_wrong_members_are_named_when_used(arguments, message):
    hybrid = Hybrid(second="rank_bm25", **arguments)
    for use in (lambda: hybrid.index(CORPUS), lambda: fingerprint(hybrid)):
        with pytest.raises(ValueError, match=message):
            use()


def test_a_passage_of_one_member_only_is_found():
    corpus = MemoryCorpus([Passage("1", "apple"), Passage("2", "pear")])
    (ranking,) = Hybrid(RankBM25(), Fixed(**{"2": 1})).index(corpus).search([Query("q", "q", "apple")], 9)
    assert [hit.passage_id for hit in ranking] == ["1", "2"]


class Reads:
    """A member that reads the whole corpus, and says what it costs."""

    one_pass = True

    def index(self, corpus):
        raise NotImplementedError

    def pending(self, corpus, passages):
        return f"read {passages} passages"


def test_speaks_for_its_members():
    assert Hybrid("bm25", Reads()).one_pass
    assert not Hybrid("bm25", "rank_bm25").one_pass
    assert Hybrid(Reads(), Reads()).pending(None, 7) == "read 7 passages; read 7 passages"
    assert Hybrid("bm25", "rank_bm25").pending(None, 7) is None

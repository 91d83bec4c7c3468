"""Metrics: by hand, against NIST's ndeval and pyndeval, against brute force, and their properties."""

from __future__ import annotations

import csv
import gzip
import itertools
import math
import re
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from evaluator.metrics import METRICS, drop_unsupported, parse, parse_all
from tests.conftest import DATA

TREC = DATA / "trec-web-2013"
BINARY = ("supporting", "opposing")
NDEVAL = {
    **{f"{ours}@{k}": f"{theirs}@{k}" for ours, theirs in (
        ("ERR_IA", "ERR-IA"), ("nERR_IA", "nERR-IA"), ("alpha_DCG", "alpha-DCG"), ("alpha_nDCG", "alpha-nDCG"),
        ("P_IA", "P-IA"), ("StRecall", "strec"),
    ) for k in (5, 10, 20)},
    "NRBP": "NRBP", "nNRBP": "nNRBP", "AP_IA": "MAP-IA",
}  # fmt: skip


def array(*rows):
    """int8 (k, m) from strings: 1 supports, 0 does not, ? unknown."""
    return np.array([[{"1": 1, "0": 0, "?": -1}[c] for c in row] for row in rows], dtype=np.int8)


def empty(m):
    return np.zeros((0, m), np.int8)


def value(name, labels, pool=None, stances=None):
    return parse(name).score(labels, pool, stances)


# --- names ---


@pytest.mark.parametrize(
    "name",
    [
        "MRecall@5",
        "Precision@1",
        "Covered",
        "Covered@100",
        "CoverageDepth",
        "OracleMRecall@5",
        "OracleMRecall(depth=50)@5",
        "alpha_nDCG@10",
        "alpha_nDCG(alpha=0.5)@10",
        "alpha_nDCG(alpha=0)@10",
        "NRBP",
        "NRBP(alpha=0.5,beta=0.8)",
        "nNRBP(beta=0.25)",
        "AP_IA",
        "OnlySupporting@5",
    ],
)
def test_a_name_is_printed_as_it_was_written(name):
    assert str(parse(name)) == name


def test_every_metric_has_a_name_that_leads_back_to_it():
    for title, metric in METRICS.items():
        made = metric(None if metric.cutoff == "none" else 7)
        assert made.name.startswith(title)
        assert parse(made.name) == made


def test_case_hyphens_and_blanks_do_not_matter():
    assert str(parse(" Alpha-NDCG( Alpha = .50 ) @ 10")) == "alpha_nDCG(alpha=0.5)@10"
    assert str(parse("mrecall@5")) == "MRecall@5"
    assert str(parse("NRBP(beta=0.8,alpha=0.5)")) == "NRBP(alpha=0.5,beta=0.8)"
    assert str(parse("both")) == "Both@5"


@pytest.mark.parametrize(
    "name, parts",
    [
        ("MRecal@5", ["unknown metric 'MRecal'", "Did you mean MRecall", "Metrics: MRecall, Precision"]),
        ("zzz@5", ["unknown metric 'zzz'. Metrics: MRecall"]),
        ("MRecall", ["needs a cut-off", "MRecall@5"]),
        ("MRecall@0", ["at least 1"]),
        ("NRBP@5", ["takes no cut-off"]),
        ("MRecall(alpha=0.5)@5", ["unknown parameter 'alpha'", "none"]),
        ("alpha_nDCG(beta=0.5)@5", ["unknown parameter 'beta'", "alpha"]),
        ("alpha_nDCG(alpha=much)@5", ["must be a number"]),
        ("alpha_nDCG(alpha=nan)@5", ["must be a number"]),
        ("alpha_nDCG(alpha=1.5)@5", ["between 0 and 1"]),
        ("alpha_nDCG(alpha=0.5,alpha=0.5)@5", ["twice"]),
        ("NRBP(beta=1)", ["below 1"]),
        ("OracleMRecall(depth=3)@5", ["depth 3", "cut-off 5"]),
        ("MRecall@5@5", ["is no metric"]),
        ("", ["is no metric"]),
    ],
)
def test_a_wrong_name_is_refused_in_one_line(name, parts):
    with pytest.raises(ValueError, match=re.escape(parts[0])) as error:
        parse(name)
    assert "\n" not in str(error.value)
    for part in parts:
        assert part in str(error.value)


def test_parse_all_sorts_and_drops_repeats():
    names = ["MRecall@10", "alpha_nDCG(alpha=0.5)@10", "MRecall@5", "mrecall@5", "alpha_nDCG@10"]
    assert [str(metric) for metric in parse_all(names)] == ["MRecall@5", "MRecall@10", "alpha_nDCG@10"]


def test_parse_all_names_all_that_is_wrong():
    with pytest.raises(ValueError, match=r"'foo'.*NRBP takes no cut-off"):
        parse_all(["foo@1", "MRecall@5", "NRBP@2"])


# --- by hand ---


@pytest.mark.parametrize(
    "name, labels, expected",
    [
        # m = 3 > k = 2: top 2 supports perspectives {0, 1}: n = 2 >= k.
        ("MRecall@2", array("100", "010", "001"), 1),
        # m = 3 > k = 2: top 2 supports {0}: n = 1 < 2.
        ("MRecall@2", array("100", "100", "011"), 0),
        # m = 3 > k = 2: one passage supports two: n = 2 >= 2.
        ("MRecall@2", array("110", "000"), 1),
        # m = 3 > k = 1: n = 1 >= 1.
        ("MRecall@1", array("010"), 1),
        # m = k = 2: n = 1 != 2, then n = 2 = m.
        ("MRecall@2", array("10", "10", "01"), 0),
        ("MRecall@2", array("10", "01"), 1),
        # m = 2 < k = 5: n = 2 = m, with fewer than k passages; then n = 1.
        ("MRecall@5", array("00", "11"), 1),
        ("MRecall@5", array("00", "01", "0?"), 0),
        # m = 4, k = 3: n = 3 >= 3 although one perspective is missing.
        ("MRecall@3", array("1100", "0010"), 1),
        ("MRecall@5", empty(2), 0),
        ("MRecall@5", array("??"), 0),
        # 3 of the top 4 support something; k = 4; then 1 of 2 retrieved, divided by k = 5; unknown does not count.
        ("Precision@4", array("10", "00", "11", "01", "11"), 3 / 4),
        ("Precision@5", array("10", "0?"), 1 / 5),
        ("Precision@5", empty(2), 0),
        # 2 of 4 perspectives.
        ("StRecall@2", array("1000", "1010", "0101"), 2 / 4),
        ("StRecall@2", empty(4), 0),
        ("Covered@2", array("10", "10", "01"), 0),
        ("Covered@3", array("10", "10", "01"), 1),
        ("Covered", array("10", "10", "01"), 1),
        ("Covered", empty(1), 0),
        # First supports at ranks 1 and 3.
        ("CoverageDepth", array("10", "10", "01", "11"), 3),
        ("CoverageDepth@2", array("10", "10", "01", "11"), math.nan),
        ("CoverageDepth@3", array("10", "10", "01", "11"), 3),
        ("CoverageDepth", array("10", "1?"), math.nan),
        ("CoverageDepth", empty(2), math.nan),
        # Both perspectives are somewhere in the pool of 4, so some order has both in the top 2 (not in the top 1).
        ("OracleMRecall@2", array("10", "10", "00", "01"), 1),
        ("OracleMRecall(depth=3)@2", array("10", "10", "00", "01"), 0),
        ("OracleMRecall@1", array("10", "10", "00", "01"), 1),
        ("OracleMRecall@5", empty(2), 0),
        # Supports in the top 3: 1 + 2 + 1 = 4; perspectives: 2; 1 - 2/4.
        ("Redundancy@3", array("10", "11", "01", "11"), 1 / 2),
        ("Redundancy@1", array("10", "11"), 0),
        ("Redundancy@2", array("00", "0?"), math.nan),
        ("Redundancy@5", empty(2), math.nan),
        # Rows with a known label: 1 and 3 of the first 3; retrieved 4; at 5 it is 2 of 4.
        ("Judged@3", array("10", "??", "?0", "??"), 2 / 3),
        ("Judged@5", array("10", "??", "?0", "??"), 2 / 4),
        ("Judged@5", empty(2), math.nan),
        # Supports in the top 2: 1 + 2 = 3 of k * m = 2 * 2; then divided by k = 4.
        ("P_IA@2", array("10", "11", "11"), 3 / 4),
        ("P_IA@4", array("10", "11"), 3 / 8),
        # Gains at alpha 1/2: rank 1: 1; rank 2: 1/2 + 1 = 3/2. ERR: 1 + 3/4 = 7/4, divided by 2 * (1 + 1/4) = 5/2.
        ("ERR_IA@2", array("10", "11"), 7 / 10),
        ("ERR_IA@1", array("10"), 1 / 2),
        ("ERR_IA@2", empty(2), 0),
        # The same gains: (1 + 1.5/log2(3)) / (2 * (1 + 0.5/log2(3))).
        ("alpha_DCG@2", array("10", "11"), (1 + 1.5 / math.log2(3)) / (2 + 1 / math.log2(3))),
        # At alpha 0 nothing is discounted: (1 + 2/log2(3)) / (2 * (1 + 1/log2(3))).
        ("alpha_DCG(alpha=0)@2", array("10", "11"), (1 + 2 / math.log2(3)) / (2 + 2 / math.log2(3))),
        # At alpha 1 a second support is worth nothing: (1 + 1/log2(3)) / 2.
        ("alpha_DCG(alpha=1)@2", array("10", "11"), (1 + 1 / math.log2(3)) / 2),
        # (1 - 1/4) / 2 * (1 + 3/2 * 1/2) = 3/8 * 7/4.
        ("NRBP", array("10", "11"), 21 / 32),
        # alpha 1/5, beta 4/5: gains 1 and 4/5 + 1; (1 - 16/25) / 2 * (1 + 9/5 * 4/5) = 0.18 * 2.44.
        ("NRBP(alpha=0.2,beta=0.8)", array("10", "11"), 0.4392),
        ("NRBP", empty(2), 0),
    ],
)
def test_metrics_of_the_ranking_by_hand(name, labels, expected):
    assert value(name, labels) == pytest.approx(expected, abs=1e-12, nan_ok=True)


# The pool of two perspectives: the ideal takes 11 (gain 2), then a tie between 10 and 01 (gain 1/2 each).
POOL = array("10", "11", "00", "01")


@pytest.mark.parametrize(
    "name, expected",
    [
        # Ranking 10, 11: gains 1, 3/2; ideal gains 2, 1/2 (, 1/2).
        ("alpha_nDCG@2", (1 + 1.5 / math.log2(3)) / (2 + 0.5 / math.log2(3))),
        ("alpha_nDCG@1", 1 / 2),
        # Nothing at rank 3; the ideal goes on with 1/2 at rank 3 (1 / log2(4) = 1/2).
        ("alpha_nDCG@3", (1 + 1.5 / math.log2(3)) / (2 + 0.5 / math.log2(3) + 0.25)),
        # (1 + 3/4) / (2 + 1/4).
        ("nERR_IA@2", 7 / 9),
        # (1 + 3/4) / (2 + 1/4 + 1/2 * 1/3) = (7/4) / (29/12).
        ("nERR_IA@3", 21 / 29),
        # (1 + 3/4) / (2 + 1/4 + 1/8): the factor before the sum cancels.
        ("nNRBP", 14 / 19),
        # Perspective 0: ranks 1 and 2 of 2 in the pool: (1/1 + 2/2) / 2 = 1; perspective 1: rank 2 of 2: (1/2) / 2.
        ("AP_IA", (1 + 1 / 4) / 2),
    ],
)
def test_metrics_of_the_pool_by_hand(name, expected):
    assert value(name, array("10", "11"), POOL) == pytest.approx(expected, abs=1e-12)
    assert value(name, empty(2), POOL) == 0
    assert math.isnan(value(name, array("00"), array("00", "0?")))
    with pytest.raises(ValueError, match="nothing to normalise by: it needs qrels"):
        value(name, array("10", "11"))


def test_the_ideal_breaks_ties_by_the_order_of_the_pool():
    # All three tie at first. 1100 first: then 0011 gains 2, then 0110 gains 1. 0110 first: then 3/2, then 3/2.
    first, second, third = "1100", "0110", "0011"
    labels = array(first, third, second)
    assert value("nERR_IA@3", labels, array(first, second, third)) == pytest.approx(1, abs=1e-12)
    # The ranking has 2 + 2/2 + 1/3; the other ideal has 2 + 1.5/2 + 1.5/3, which is less: greedy is not always best.
    assert value("nERR_IA@3", labels, array(second, first, third)) == pytest.approx((10 / 3) / 3.25, abs=1e-12)


def test_perspectives_that_nothing_supports_count_until_they_are_dropped():
    labels, pool = array("10", "00"), array("10", "00", "0?")
    assert value("StRecall@2", labels) == 1 / 2
    assert value("AP_IA", labels, pool) == 1 / 2  # perspective 0: 1/1, perspective 1: 0
    dropped, rest = drop_unsupported(labels, pool)
    assert dropped.tolist() == [[1], [0]]
    assert rest.tolist() == [[1], [0], [0]]
    assert value("StRecall@2", dropped) == 1
    assert value("AP_IA", dropped, rest) == 1
    none, _ = drop_unsupported(array("0"), array("0"))
    assert none.shape == (1, 0)


@pytest.mark.parametrize(
    "rows, expected",
    [
        (("10", "00"), "OnlySupporting"),
        (("01", "0?"), "OnlyOpposing"),
        (("01", "10"), "Both"),
        (("00", "??"), "Neither"),
        ((), "Neither"),
    ],
)
def test_the_four_shares_of_binary_questions(rows, expected):
    labels = array(*rows) if rows else empty(2)
    names = ("OnlySupporting", "OnlyOpposing", "Both", "Neither")
    assert {name: value(f"{name}@5", labels, stances=BINARY) for name in names} == {
        name: float(name == expected) for name in names
    }
    assert value(f"{expected}@5", labels[:, ::-1], stances=BINARY[::-1]) == 1
    for stances in (None, (None, None), ("supporting", "supporting"), ("supporting", None)):
        assert all(math.isnan(value(f"{name}@5", labels, stances=stances)) for name in names)


def test_without_perspectives_everything_is_undefined():
    for metric in METRICS.values():
        made = metric(None if metric.cutoff == "none" else 3)
        for k in (0, 2):
            assert math.isnan(made.score(np.zeros((k, 0), np.int8), np.zeros((4, 0), np.int8), ()))


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="shape"):
        value("MRecall@5", np.zeros(3, np.int8))
    with pytest.raises(ValueError, match="same perspectives"):
        value("AP_IA", empty(2), empty(3))
    with pytest.raises(ValueError, match="1 stances for 2 perspectives"):
        value("Both@5", empty(2), stances=("supporting",))


# --- against other programs ---


def read_qrels():
    """topic -> (docnos in descending order, int8 (p, m))."""
    judged = defaultdict(lambda: defaultdict(dict))
    for line in (TREC / "qrels.web.201-250.ndeval.txt").read_text().splitlines():
        topic, subtopic, docno, relevance = line.split()
        judged[topic][docno][subtopic] = int(int(relevance) > 0)
    pools = {}
    for topic, documents in judged.items():
        subtopics = sorted({each for labels in documents.values() for each in labels})
        docnos = sorted(documents, reverse=True)
        pools[topic] = docnos, np.array([[documents[d].get(s, 0) for s in subtopics] for d in docnos], np.int8)
    return pools


def read_run(name):
    run = defaultdict(list)
    with gzip.open(TREC / f"run.{name}.txt.gz", "rt") as lines:
        for line in lines:
            topic, _, docno, rank, _, _ = line.split()
            run[topic].append((int(rank), docno))
    return {topic: [docno for _, docno in sorted(ranked)] for topic, ranked in run.items()}


@pytest.mark.data
@pytest.mark.skipif(not TREC.is_dir(), reason=f"the shared data is absent: {TREC}")
@pytest.mark.parametrize("name", ["biased", "oracle", "random"])
def test_all_measures_of_ndeval_topic_by_topic(name):
    pools, run = read_qrels(), read_run(name)
    with (TREC / f"ndeval.{name}.csv").open() as lines:
        expected = {row["topic"]: row for row in csv.DictReader(lines)}
    del expected["amean"]
    assert len(expected) == 50
    compared = 0
    for topic, row in expected.items():
        docnos, pool = pools[topic]
        known = dict(zip(docnos, pool, strict=True))
        unknown = np.full(pool.shape[1], -1, np.int8)
        labels = np.array([known.get(docno, unknown) for docno in run[topic]], np.int8)
        labels, pool = drop_unsupported(labels, pool)
        for ours, theirs in NDEVAL.items():
            assert value(ours, labels, pool) == pytest.approx(float(row[theirs]), abs=1e-6), (topic, ours)
            compared += 1
    assert compared == 50 * 21


@pytest.mark.parametrize("alpha, beta", [(0.5, 0.5), (0.25, 0.75), (0.9, 0.3)])
def test_random_questions_against_pyndeval(alpha, beta):
    pyndeval = pytest.importorskip("pyndeval")
    random = np.random.default_rng(int(alpha * 100))
    cutoffs = (2, 3, 7, 20)
    theirs = [f"{name}@{k}" for name in ("alpha-DCG", "alpha-nDCG", "P-IA", "strec") for k in cutoffs]
    theirs += ["NRBP", "nNRBP", "MAP-IA"]
    own = {"alpha-DCG": f"alpha_DCG(alpha={alpha})", "alpha-nDCG": f"alpha_nDCG(alpha={alpha})", "P-IA": "P_IA"}
    own |= {"strec": "StRecall", "NRBP": f"NRBP(alpha={alpha},beta={beta})", "MAP-IA": "AP_IA"}
    own |= {"nNRBP": f"nNRBP(alpha={alpha},beta={beta})", "ERR-IA": "ERR_IA", "nERR-IA": "nERR_IA"}
    if alpha == 0.5:  # ndeval lets alpha change ERR-IA as well; ours has the reader of Chapelle et al. only
        theirs += [f"{name}@{k}" for name in ("ERR-IA", "nERR-IA") for k in cutoffs]
    for case in range(60):
        p, m = int(random.integers(1, 60)), int(random.integers(1, 9))
        pool = (random.random((p, m)) < random.choice([0.03, 0.2, 0.6])).astype(np.int8)
        if not pool.any():
            pool[0, 0] = 1
        docnos = [f"d{i:03}" for i in range(p, 0, -1)]  # descending, as in the pool
        retrieved = random.permutation(p)[: int(random.integers(1, p + 1))]
        qrels = [("q", str(j), docnos[i], int(pool[i, j])) for i in range(p) for j in range(m)]
        run = [("q", docnos[i], float(-rank)) for rank, i in enumerate(retrieved)]
        expected = pyndeval.ndeval(qrels, run, theirs, alpha=alpha, beta=beta)["q"]
        labels, kept = drop_unsupported(pool[retrieved], pool)
        for name in theirs:
            title, at, k = name.partition("@")
            assert value(own[title] + at + k, labels, kept) == pytest.approx(expected[name], abs=1e-9), (case, name)


def test_ir_measures_gives_the_same_names_and_values():
    ir_measures = pytest.importorskip("ir_measures")
    random = np.random.default_rng(7)
    pool = (random.random((40, 4)) < 0.2).astype(np.int8)
    pool[0] = 1
    retrieved = random.permutation(40)[:25]
    docnos = [f"d{i:03}" for i in range(40, 0, -1)]
    qrels = [ir_measures.Qrel("q", docnos[i], int(pool[i, j]), str(j)) for i in range(40) for j in range(4)]
    run = [ir_measures.ScoredDoc("q", docnos[i], float(-rank)) for rank, i in enumerate(retrieved)]
    for name in ("alpha_nDCG(alpha=0.9)@10", "NRBP(alpha=0.2,beta=0.8)", "StRecall@10", "ERR_IA@20", "AP_IA"):
        # One call for each group of parameters: in a joint call all groups but the first come back as 0.
        expected = ir_measures.calc_aggregate([ir_measures.parse_measure(name)], qrels, run)
        assert value(name, pool[retrieved], pool) == pytest.approx(next(iter(expected.values())), abs=1e-9)


def test_the_oracle_against_every_choice_of_passages():
    random = np.random.default_rng(3)
    for _ in range(400):
        depth, m = int(random.integers(1, 8)), int(random.integers(1, 7))
        k = int(random.integers(1, depth + 1))
        labels = (random.random((depth + 2, m)) < random.choice([0.1, 0.3, 0.6])).astype(np.int8)
        reached = []
        for chosen in itertools.combinations(range(depth), k):
            n = sum(any(labels[i, j] for i in chosen) for j in range(m))
            reached.append(n >= k if m > k else n == m)
        assert value(f"OracleMRecall(depth={depth})@{k}", labels) == float(any(reached))


# --- properties ---

shapes = st.tuples(st.integers(0, 7), st.integers(1, 5))
labels_of = shapes.flatmap(lambda shape: hnp.arrays(np.int8, shape, elements=st.sampled_from([-1, 0, 1])))
ALL = [
    *("MRecall@1", "MRecall@3", "Precision@3", "StRecall@3", "Covered", "Covered@3", "CoverageDepth"),
    *("OracleMRecall(depth=4)@2", "Redundancy@3", "Judged@3", "OnlySupporting@3", "OnlyOpposing@3", "Both@3"),
    *("Neither@3", "alpha_DCG@3", "alpha_DCG(alpha=0.9)@3", "alpha_nDCG@3", "ERR_IA@3", "nERR_IA@3", "NRBP"),
    *("NRBP(alpha=0.1,beta=0.9)", "nNRBP", "AP_IA", "P_IA@3"),
]


def with_pool(labels, extra):
    """A pool that holds the retrieved passages and some more."""
    more = np.arange(extra * labels.shape[1]).reshape(extra, labels.shape[1]) % 3 == 0
    return np.vstack([labels, more.astype(np.int8)])


def sides(m):
    return (BINARY + (None,) * m)[:m]


def same(a, b):
    return a == b or (math.isnan(a) and math.isnan(b)) or a == pytest.approx(b, abs=1e-12)


@settings(max_examples=150, deadline=None)
@given(labels=labels_of, extra=st.integers(0, 3), data=st.data())
def test_ranges_permutations_and_ranks_below_the_depth(labels, extra, data):
    pool, stances = with_pool(labels, extra), sides(labels.shape[1])
    columns = data.draw(st.permutations(range(labels.shape[1])))
    for metric in map(parse, ALL):
        got = metric.score(labels, pool, stances)
        # The greedy ideal may be beaten; on these sizes by far less than a half.
        top = len(labels) if metric.title == "CoverageDepth" else 1.5 if metric.needs == "pool" else 1
        assert math.isnan(got) or 0 <= got <= top + 1e-12
        permuted = metric.score(labels[:, columns], pool[:, columns], [stances[j] for j in columns])
        assert same(got, permuted)
        if metric.depth is not None and len(labels) > metric.depth:
            changed = labels.copy()  # with a pool no supports are added, for the pool would lack them
            changed[metric.depth :] = data.draw(st.sampled_from([-1, 0] if metric.needs == "pool" else [-1, 0, 1]))
            assert same(got, metric.score(changed, pool, stances))
        assert same(got, metric.score(np.where(labels == -1, np.int8(0), labels), pool, stances)) or (
            metric.title == "Judged"
        )


@settings(max_examples=150, deadline=None)
@given(labels=labels_of, data=st.data())
def test_more_supports_never_lower_a_monotone_metric(labels, data):
    added = labels | data.draw(hnp.arrays(np.int8, labels.shape, elements=st.sampled_from([0, 1])))
    more = np.where(added != labels, np.int8(1), labels)
    monotone = [metric for metric in map(parse, ALL) if metric.monotone]
    assert len(monotone) == 14
    for metric in monotone:
        before = metric.score(labels, None, sides(labels.shape[1]))
        after = metric.score(more, None, sides(labels.shape[1]))
        assert math.isnan(before) == math.isnan(after)
        assert math.isnan(before) or after >= before - 1e-12


@settings(max_examples=150, deadline=None)
@given(labels=labels_of, data=st.data())
def test_labels_below_the_covering_passage_do_not_matter_where_declared(labels, data):
    below = (labels == 1).cumsum(axis=0) - (labels == 1) > 0
    changed = np.where(
        below, data.draw(hnp.arrays(np.int8, labels.shape, elements=st.sampled_from([-1, 0, 1]))), labels
    )
    for metric in map(parse, ALL):
        if metric.until_covered:
            stances = sides(labels.shape[1])
            assert same(metric.score(labels, None, stances), metric.score(changed, None, stances))


def test_scoring_leaves_its_input_and_later_calls_alone():
    labels, pool = array("10", "01"), array("11", "10", "01")
    before = [value(name, labels, pool, BINARY) for name in ALL]
    again = [value(name, labels, pool, BINARY) for name in reversed(ALL)][::-1]
    assert all(same(a, b) for a, b in zip(before, again, strict=True))
    assert labels.tolist() == [[1, 0], [0, 1]]

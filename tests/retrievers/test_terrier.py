"""PyTerrier pipelines as retrievers and retrievers in PyTerrier, for real: with PISA, which needs no Java."""
# ruff: noqa: E402

import json
import math
import os
import random
import subprocess
import sys
from types import SimpleNamespace

import pytest

pd = pytest.importorskip("pandas", reason="needs the extra 'terrier'")
pt = pytest.importorskip("pyterrier", reason="needs the extra 'terrier'")
pytest.importorskip("pyterrier_pisa", reason="needs pyterrier-pisa")

import ir_measures
from ir_measures import AP, P, nDCG
from pyterrier_pisa import PisaIndex, tokenize

from benchmarks.run import main
from benchmarks.tasks import TASKS
from corpora import CORPORA
from corpora.artefacts import artefact, list_artefacts
from corpora.files import write_run
from corpora.fingerprint import digest, fingerprint
from corpora.memory import MemoryCorpus
from corpora.types import Hit, Passage, Query
from retrievers import RETRIEVERS
from retrievers.bm25 import BM25
from retrievers.checks import check_retriever
from retrievers.hybrid import Hybrid
from retrievers.terrier import Terrier, as_transformer, documents

HERE = __name__
TERRIER = "retrievers.terrier:Terrier"


def pisa(corpus, k1: float = 0.9, b: float = 0.4, num_results: int = 1000):
    """The factory of the module's docstring, but for corpora without words, for which PISA ends the process."""
    if not any(tokenize(f"{passage.title} {passage.text}") for passage in corpus):
        return pt.apply.generic(lambda queries: queries[:0].assign(docno="", score=0.0, rank=0))

    def build(folder):
        index = PisaIndex(str(folder), text_field=["title", "text"])
        index.index(documents(corpus))
        index.bm25(k1=k1, b=b)

    folder = artefact("index", digest({"pisa": 1, "k1": k1, "b": b, "corpus": corpus.fingerprint}), build)
    return PisaIndex(str(folder)).bm25(k1=k1, b=b, num_results=num_results)


fixed = pt.Transformer.from_df(
    pd.DataFrame(
        [["q1", "a", 1.0, 0], ["q1", "b", 2.0, 1], ["q2", "c", 3.0, 0]], columns=["qid", "docno", "score", "rank"]
    )
)
number = 5


def queries(*texts):
    return [Query(f"q{i}", f"q{i}", text) for i, text in enumerate(texts)]


def frame(*texts):
    return pd.DataFrame({"qid": [f"q{i}" for i in range(len(texts))], "query": list(texts)})


@pytest.fixture(scope="module")
def corpus():
    """Short texts of few words, so that equal scores are common; identifiers are not in row order."""
    rng = random.Random(0)
    texts = [" ".join(f"w{rng.randrange(40)}x" for _ in range(rng.randrange(1, 6))) for _ in range(200)]
    return MemoryCorpus(
        Passage(f"d{name}", text) for name, text in zip(rng.sample(range(999), 200), texts, strict=True)
    )


TEXTS = ("w1x w2x", "w3x W30x, w12x?", "unseen", "", '(w4x/w5x) +w6x -w7x "w8x" title:w9x w10x^2 ~ what\'s')


def by_score(results, qid):
    """The rows of a query as a ranking, sorted in plain Python."""
    rows = results[results["qid"] == qid]
    hits = [Hit(docno, float(score)) for docno, score in zip(rows["docno"], rows["score"], strict=True)]
    return tuple(sorted(hits, key=lambda hit: (-hit.score, hit.passage_id)))


def table(rows, columns=("qid", "docno", "score")):
    return pt.apply.generic(lambda _: pd.DataFrame(rows, columns=list(columns)))


def search(pipeline, corpus, texts=TEXTS, k=1000, **arguments):
    return Terrier(pipeline, **arguments).index(corpus).search(queries(*texts), k)


def test_same_passages_and_scores_as_pisa_itself(corpus):
    direct = pisa(corpus)(frame(*TEXTS))
    assert len(direct) > 100
    found = search(f"{HERE}:pisa", corpus)
    assert found == [by_score(direct, f"q{i}") for i in range(len(TEXTS))]
    assert [bool(ranking) for ranking in found] == [True, True, False, False, True]
    assert search(f"{HERE}:pisa", corpus, k=7) == [ranking[:7] for ranking in found]


def test_keeps_the_promises_of_retrievers():
    check_retriever(Terrier(f"{HERE}:pisa"))


def test_composed_pipelines(corpus):
    bm25 = pisa(corpus)
    whole = search(bm25, corpus)
    cut = search(bm25 % 3, corpus)
    assert [len(ranking) for ranking in cut] == [3, 3, 0, 0, 3]
    assert [[hit.score for hit in ranking] for ranking in cut] == [[h.score for h in r[:3]] for r in whole]
    backwards = search(bm25 >> pt.apply.doc_score(lambda row: -row["score"]), corpus)
    assert [{h.passage_id: -h.score for h in r} for r in backwards] == [
        {h.passage_id: h.score for h in r} for r in whole
    ]
    assert backwards[0][0].score == -whole[0][-1].score
    rewritten = pt.apply.query(lambda row: row["query"].replace("unseen", "w1x w2x")) >> bm25
    assert search(rewritten, corpus)[2] == whole[0]
    twice = search(bm25 + 2 * bm25, corpus)[0]
    assert [hit.score for hit in twice] == pytest.approx([3 * hit.score for hit in whole[0]])


def test_hybrid_with_a_pipeline(corpus):
    found = RETRIEVERS.create(
        "retrievers.hybrid:Hybrid", [f"second={TERRIER}", f"second_args=pipeline={HERE}:pisa,args=k1=1.2"]
    )
    assert found.members[1].args == ("k1=1.2",)
    (ranking,) = Hybrid("bm25", Terrier(f"{HERE}:pisa")).index(corpus).search(queries("w1x w2x"), 5)
    assert len(ranking) == 5


def test_results_are_aligned_sorted_and_without_repeats(corpus):
    rows = [
        ["q1", "z", 1],
        ["q0", "b", "2.5"],
        ["q1", "y", 3],
        ["q0", "a", 2.5],
        ["q1", "z", 2],
        ["q1", "x", 1],
        ["q0", "b", 1],
    ]
    found = search(table(rows), corpus, texts="abc")
    assert found == [(Hit("a", 2.5), Hit("b", 2.5)), (Hit("y", 3.0), Hit("z", 2.0), Hit("x", 1.0)), ()]
    assert search(table(rows), corpus, texts="abc", k=1) == [(Hit("a", 2.5),), (Hit("y", 3.0),), ()]
    assert search(table(rows), corpus, texts="abc", k=0) == [(), (), ()]
    assert search(table([]), corpus, texts="ab") == [(), ()]
    assert search(pt.apply.generic(lambda _: pd.DataFrame()), corpus, texts="ab") == [(), ()]
    same = [Query("q", "1", "text"), Query("q", "2", "text")]
    assert Terrier(table([["q", 7, 1]])).index(corpus).search(same, 5) == [(Hit("7", 1.0),)] * 2
    assert Terrier(table([["q", 7, 1]])).index(corpus).search([], 5) == []


def test_an_object_answers_by_query_id(corpus):
    found = Terrier(f"{HERE}:fixed").index(corpus).search([Query("q2", "", "x"), Query("q1", "", "y")], 9)
    assert found == [(Hit("c", 3.0),), (Hit("b", 2.0), Hit("a", 1.0))]


@pytest.mark.parametrize(
    "pipeline, message",
    [
        (table([["q0", "a", math.nan]]), "qid 'q0' has docno 'a' with score nan: expected a passage id and a finite"),
        (table([["q0", "a", 1], ["q0", "b", -math.inf]]), "docno 'b' with score -inf"),
        (table([["q0", "a", None]]), "score nan"),
        (table([["q0", None, 1.0], ["q0", "a", 2.0]]), "qid 'q0' has docno"),
        (table([["q9", "a", 1]]), "results for the qid 'q9', which was not asked"),
        (pt.Transformer.identity(), "gives no column docno and no score, only qid, query: its last step has to"),
        (f"{HERE}:nothing", "has no 'nothing'"),
        (f"{HERE}:number", "is no class"),
        (f"{HERE}:frame", "no argument 'corpus'"),
        ("no.such.module:x", "there is no module 'no"),
        ("pisa", "expected module:object, or module:function of the corpus"),
        (f"{HERE}:documents_only", "is a list, expected a PyTerrier transformer"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(corpus, pipeline, message):
    with pytest.raises(ValueError, match=r"^pipeline ") as caught:
        search(pipeline, corpus, texts=["text"])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def documents_only(corpus):
    return list(documents(corpus))


def test_two_queries_of_one_id_are_refused(corpus):
    with pytest.raises(ValueError, match="two queries have the id 'q'"):
        Terrier(f"{HERE}:fixed").index(corpus).search([Query("q", "q", "one"), Query("q", "q", "two")], 5)


def test_arguments_reach_the_function(corpus):
    made = RETRIEVERS.create(TERRIER, [f"pipeline={HERE}:pisa", "args=k1=1.2,b=0.7,num_results=2"])
    (ranking,) = made.index(corpus).search(queries("w1x w2x"), 100)
    direct = by_score(pisa(corpus, k1=1.2, b=0.7)(frame("w1x w2x")), "q0")
    assert [hit.score for hit in ranking] == [hit.score for hit in direct[:2]]
    for args, message in (
        (("k1=x",), "k1=x: expected a number"),
        (("k3=1",), "no argument 'k3'"),
        (("k1",), "key=value"),
    ):
        with pytest.raises(ValueError, match=message):
            Terrier(f"{HERE}:pisa", args=args).index(corpus)
    with pytest.raises(ValueError, match="is a transformer already: args=k1=1 fits none"):
        Terrier(f"{HERE}:fixed", args=("k1=1",)).index(corpus)


def test_an_index_is_built_once(corpus):
    for _ in range(2):
        Terrier(f"{HERE}:pisa").index(corpus)
    assert len(list_artefacts("index")) == 1


def test_queries_are_left_alone_or_stripped_of_punctuation(corpus):
    seen = []
    echo = pt.apply.generic(lambda frame: seen.extend(frame["query"]) or pd.DataFrame())
    search(echo, corpus, texts=["what's (a/b) émigré? 速度。"])
    search(echo, corpus, texts=["what's (a/b) émigré? 速度。"], words_only=True)
    assert seen == ["what's (a/b) émigré? 速度。", "what s  a b  émigré  速度。"]


def test_the_fingerprint_tells_pipelines_apart(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "my_pipelines_for_a_test.py"
    module.write_text("bm25 = None\n")
    file = tmp_path / "model.bin"
    file.write_bytes(b"1")

    def of(pipeline="my_pipelines_for_a_test:bm25", **arguments):
        return fingerprint(Terrier(pipeline, **arguments))

    plain = of()
    different = {plain, of(f"{HERE}:pisa"), of(f"{HERE}:fixed"), of(args=("k1=1",)), of(revision="2")}
    different |= {of(words_only=True), of(files=(file,))}
    file.write_bytes(b"2")
    different.add(of(files=(file,)))
    assert len(different) == 8
    assert of() == plain
    module.write_text("bm25 = None  # changed\n")
    assert of() not in different
    assert of("no.such.module:x")
    with pytest.raises(ValueError, match="has no fingerprint: name it, as module:object"):
        of(fixed)


def test_what_a_pipeline_prints_does_not_reach_stdout(corpus, capfd):
    def loud(queries):
        print("from Python")
        os.write(1, b"from the process\n")
        return pd.DataFrame()

    search(f"{HERE}:pisa", MemoryCorpus([*corpus, Passage("new", "text")]))  # PISA prints while it indexes
    search(pt.apply.generic(loud), corpus)
    print("afterwards")
    captured = capfd.readouterr()
    assert captured.out == "afterwards\n"
    assert "from Python" in captured.err
    assert "from the process" in captured.err
    assert "Index compressed" in captured.err


def test_a_retriever_as_transformer(corpus):
    expected = BM25().index(corpus).search(queries(*TEXTS), 10)
    transformer = as_transformer(BM25(), corpus, k=10)
    topics = frame(*TEXTS).assign(extra=range(len(TEXTS)))
    results = transformer(topics)
    assert list(results.columns) == ["qid", "query", "extra", "docno", "score", "rank"]
    pt.validate.result_frame(results, extra_columns=["query", "score", "rank"])
    for i, ranking in enumerate(expected):
        rows = results[results["qid"] == f"q{i}"]
        assert list(rows["docno"]) == [hit.passage_id for hit in ranking]
        assert list(rows["score"]) == pytest.approx([hit.score for hit in ranking], rel=1e-5)
        assert rows["score"].is_monotonic_decreasing
        assert rows["score"].is_unique
        assert list(rows["rank"]) == list(range(len(ranking)))
        assert set(rows["extra"]) <= {i}
    assert list(transformer(topics[:0]).columns) == list(results.columns)
    assert transformer.search("w1x w2x")["docno"].tolist() == [hit.passage_id for hit in expected[0]]
    with pytest.raises(KeyError, match="query"):
        transformer(topics[["qid"]])


def test_a_transformer_in_pipelines(corpus):
    transformer = as_transformer(BM25(), corpus)
    cut = transformer % 4
    assert len(cut(frame("w1x w2x"))) == 4
    assert repr(cut.compile()) == "as_transformer(BM25, k=4)"
    pd.testing.assert_frame_equal(cut.compile()(frame(*TEXTS)), cut(frame(*TEXTS)))
    indexed = []
    counting = SimpleNamespace(index=lambda corpus: indexed.append(corpus) or BM25().index(corpus))
    whole = as_transformer(counting, corpus)
    for _ in range(2):
        (whole % 4)(frame("w1x"))
    whole.fuse_rank_cutoff(4)(frame("w1x"))
    assert indexed == [corpus]
    fused = search(0.5 * transformer + pisa(corpus), corpus)[0]
    ours = {hit.passage_id: hit.score for hit in BM25().index(corpus).search(queries("w1x w2x"), 100)[0]}
    theirs = {hit.passage_id: hit.score for hit in search(pisa(corpus), corpus)[0]}
    assert fused[0].score == pytest.approx(0.5 * ours[fused[0].passage_id] + theirs[fused[0].passage_id], rel=1e-5)
    back = Terrier(transformer).index(corpus).search(queries(*TEXTS), 100)
    ids = [[hit.passage_id for hit in ranking] for ranking in BM25().index(corpus).search(queries(*TEXTS), 100)]
    assert [[hit.passage_id for hit in ranking] for ranking in back] == ids


def test_experiment_by_hand():
    corpus = MemoryCorpus(
        Passage(name, text) for name, text in (("z", "cat"), ("a", "cat"), ("m", "cat"), ("d", "dog"))
    )
    topics = pd.DataFrame([["1", "cat"], ["2", "dog"], ["3", "bird"]], columns=["qid", "query"])
    labels = [["1", "a", 1], ["1", "d", 1], ["1", "z", 0], ["2", "d", 1], ["3", "d", 1]]
    qrels = pd.DataFrame(labels, columns=["qid", "docno", "label"])
    # ours: a m z, by passage id; with the raw scores, which tie, trec_eval would read z m a
    table = pt.Experiment([as_transformer(BM25(), corpus)], topics, qrels, [P @ 1, P @ 2, nDCG @ 2, AP], perquery=True)
    values = {(row.qid, row.measure): row.value for row in table.itertuples()}
    assert [values["1", measure] for measure in ("P@1", "P@2", "AP")] == [1, 0.5, 0.5]
    assert values["1", "nDCG@2"] == pytest.approx(1 / (1 + 1 / math.log2(3)))
    assert [values["2", measure] for measure in ("P@1", "P@2", "nDCG@2", "AP")] == [1, 0.5, 1, 1]
    # the third finds nothing
    assert [values["3", measure] for measure in ("P@1", "P@2", "nDCG@2", "AP")] == [0, 0, 0, 0]


@pytest.fixture
def demo():
    """The built-in collection as corpus, topics, and qrels of questions (any perspective)."""
    task = TASKS.create("demo")
    topics = pd.DataFrame([[q.question_id, q.text] for q in task.questions], columns=["qid", "query"])
    relevant = {
        (question, passage)
        for question, perspectives in task.qrels.items()
        for passages in perspectives.values()
        for passage, relevance in passages.items()
        if relevance > 0
    }
    qrels = pd.DataFrame([[q, p, 1] for q, p in sorted(relevant)], columns=["qid", "docno", "label"])
    return CORPORA.create("demo"), topics, qrels


def precision(capsys, tmp_path, *arguments):
    """Precision@5 and Precision@10 from our own command line."""
    own = [
        "--split",
        "all",
        "--metrics",
        "Precision@5",
        "Precision@10",
        "--json",
        "--output",
        str(tmp_path / "results"),
    ]
    capsys.readouterr()
    assert main(["--corpus", "demo", *arguments, *own]) == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    return [scores["Precision@5"]["mean"], scores["Precision@10"]["mean"]]


def test_experiment_mixes_both_and_our_benchmark_agrees(demo, capsys, tmp_path):
    corpus, topics, qrels = demo
    systems = {"ours": as_transformer(BM25(), corpus), "pisa": pisa(corpus)}
    table = pt.Experiment(list(systems.values()), topics, qrels, [P @ 5, P @ 10, nDCG @ 10], names=list(systems))
    values = table.set_index("name").T.to_dict("list")
    for name, system in systems.items():
        expected = ir_measures.calc_aggregate(
            [P @ 5, P @ 10, nDCG @ 10], pt.model.to_ir_measures(qrels), pt.model.to_ir_measures(system(topics))
        )
        assert values[name] == pytest.approx([expected[measure] for measure in (P @ 5, P @ 10, nDCG @ 10)])
    assert precision(capsys, tmp_path, "--retriever", "bm25") == pytest.approx(values["ours"][:2])
    # PISA's own results as a run file, and through our retriever
    pipeline = [f"pipeline={HERE}:pisa", "revision=1"]
    ours = precision(capsys, tmp_path, "--retriever", TERRIER, "--retriever-args", *pipeline)
    results = as_transformer(RETRIEVERS.create(TERRIER, pipeline), corpus)(topics)
    run = {qid: by_score(results, qid) for qid in topics["qid"]}
    write_run(tmp_path / "pisa.trec", run, "pisa")
    assert precision(capsys, tmp_path, "--run", str(tmp_path / "pisa.trec")) == pytest.approx(ours)
    (again,) = pt.Experiment([results], topics, qrels, [P @ 5, P @ 10], dataframe=False).values()
    assert list(again.values()) == pytest.approx(ours)
    assert 0 < ours[0] < 1


LOUD = """
import ctypes, sys
import pandas as pd, pyterrier as pt
from corpora.memory import MemoryCorpus
from corpora.types import Query
from retrievers.terrier import Terrier

pipeline = pt.apply.generic(lambda _: (ctypes.CDLL(None).puts(b"compiled"), pd.DataFrame())[1])
print(Terrier(pipeline).index(MemoryCorpus()).search([Query("q", "q", "text")], 5))
print(pt.java.started(), "jnius" in sys.modules)
"""


def test_no_java_and_no_words_of_compiled_code_that_were_kept_in_a_buffer():
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run([sys.executable, "-c", LOUD], capture_output=True, text=True, check=True, env=buffered)
    assert done.stdout.splitlines() == ["[()]", "False False"]
    assert "compiled" in done.stderr

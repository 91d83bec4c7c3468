"""The command line end to end, on a task that is small enough to work out by hand."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.choice import Choice
from benchmarks.config import RunConfig, identity_fields
from benchmarks.plan import result_folder
from benchmarks.resolve import resolve
from tests.benchmarks.conftest import PASSAGES, write_task

ALL = ("--metrics", "MRecall@2", "Precision@2", "Precision@1", "StRecall@2", "Judged@2", "CoverageDepth")


def folder_of(outcome, tmp_path: Path) -> Path:
    (found,) = (tmp_path / "results").glob("*/*/*/scores.json")
    assert json.loads(found.read_text()) == outcome.scores
    return found.parent


def test_a_trec_run_gets_the_numbers_of_a_hand_calculation(cli, task, run_file):
    outcome = cli("--task", task, "--run", run_file, *ALL, "--json")
    assert outcome.code == 0, outcome.err
    # q1: a1 supports .1, a2 supports .2: both of m = 2 within the top 2: MRecall 1, Precision 2/2, StRecall 2/2.
    # q2: b2 is unjudged, b1 supports .1 at rank 2; .2 is supported by c1 only, which was not retrieved:
    #     MRecall 0, Precision 1/2, Precision@1 0, StRecall 1/2, Judged 1/2, never covered.
    assert outcome.mean("MRecall@2") == 0.5
    assert outcome.mean("Precision@2") == pytest.approx(0.75)
    assert outcome.mean("Precision@1") == 0.5
    assert outcome.mean("StRecall@2") == 0.75
    assert outcome.mean("Judged@2") == 0.75
    depth = outcome.scores["scores"]["CoverageDepth"]
    assert (depth["mean"], depth["n"], depth["n_undefined"]) == (2, 1, 1)
    assert outcome.scores["scores"]["Precision@2"]["n_unjudged"] == 1
    assert outcome.scores["scores"]["Precision@1"]["upper"] == 1  # were b2 a support: (1 + 1) / 2


def test_groups_and_the_macro_mean(cli, task, run_file):
    everything = cli("--task", task, "--run", run_file, "--split", "all", *ALL, "--json")
    # q3 has no ranking: 0. Groups: animals = q1 = 1; travel = (q2 0.5 + q3 0) / 2. Micro (1 + .5 + 0) / 3, macro .625.
    assert everything.mean("Precision@2") == pytest.approx(0.5)
    assert everything.mean("Precision@2", "macro") == pytest.approx(0.625)
    groups = everything.scores["groups"]
    assert {name: entry["Precision@2"]["mean"] for name, entry in groups.items()} == {"animals": 1.0, "travel": 0.25}
    assert everything.scores["questions"]["without_passages"] == ["q3"]
    assert everything.scores["by_perspectives"]["Precision@2"] == {
        "1": {"mean": 0.0, "n": 1},
        "2": {"mean": 0.75, "n": 2},
    }


def test_the_retrievers_run_scores_the_same_when_it_comes_back_as_a_file(cli, task, tmp_path):
    exports = [tmp_path / f"out.{end}" for end in ("trec", "trec.gz", "jsonl", "jsonl.gz", "json")]
    first = cli("--task", task, *ALL, "--json", "--export", *exports)
    assert first.code == 0, first.err
    assert first.mean("Precision@1") == 1.0  # BM25: a1 has cats twice, b1 trains three times
    for path in exports:
        again = cli("--task", task, "--run", path, *ALL, "--json")
        assert again.code == 0, again.err
        assert again.scores["scores"] == first.scores["scores"], path


def test_files_of_a_result(cli, task, tmp_path):
    outcome = cli("--task", task, *ALL, "--json")
    folder = folder_of(outcome, tmp_path)
    assert folder.parent == tmp_path / "results" / "mini" / "mini"
    assert folder.name.startswith("bm25-")
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "run.trec.gz", "run.trec.gz.ir_metadata.yml", "labels.parquet", "scores.json", "per_question.csv",
        "provenance.json",
    }  # fmt: skip
    lines = gzip.decompress((folder / "run.trec.gz").read_bytes()).decode().splitlines()
    assert all(len(line.split()) == 6 for line in lines)
    rows = list(csv.DictReader((folder / "per_question.csv").open()))
    assert [(row["question_id"], row["MRecall@2"]) for row in rows] == [("q1", "1.0"), ("q2", "0.0")]
    assert [row["CoverageDepth"] for row in rows] == ["2.0", ""]
    labels = pq.read_table(folder / "labels.parquet")
    assert set(labels["status"].to_pylist()) == {"ok", "unjudged"}
    provenance = json.loads((folder / "provenance.json").read_text())["history"]
    assert provenance[0]["packages"]["bm25s"]
    text = (folder / "scores.json").read_text()
    assert str(tmp_path) not in text, "scores.json must not hold a path"


def test_more_metrics_are_added_and_the_order_of_asking_leaves_no_trace(cli, task, tmp_path):
    cli("--task", task, "--metrics", "Precision@2", "--json")
    cli("--task", task, "--metrics", "MRecall@2", "--json")
    (path,) = (tmp_path / "results").glob("*/*/*/scores.json")
    one = path.read_bytes()
    assert set(json.loads(one)["scores"]) == {"MRecall@2", "Precision@2"}
    path.unlink()
    cli("--task", task, "--metrics", "MRecall@2", "Precision@2", "--json")
    assert path.read_bytes() == one


def test_a_finished_result_is_not_touched_again_but_with_overwrite(cli, task, tmp_path):
    first = cli("--task", task, *ALL, "--json")
    folder = folder_of(first, tmp_path)
    before = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}
    assert cli("--task", task, *ALL, "--json").scores == first.scores
    assert {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()} == before
    assert cli("--task", task, *ALL, "--json", "--overwrite").scores == first.scores
    assert (folder / "scores.json").read_bytes() == before["scores.json"][1]
    assert (folder / "scores.json").stat().st_mtime_ns != before["scores.json"][0]


def test_the_result_depends_on_contents_and_not_on_places(cli, task, tmp_path):
    first = cli("--task", task, *ALL, "--json")
    moved = write_task(tmp_path / "elsewhere" / "mini", {"name": "mini", "group": "set", "macro": True})
    assert cli("--task", moved, *ALL, "--json").scores == first.scores
    assert len(list((tmp_path / "results").glob("*/*/*"))) == 1
    with (moved / "qrels.txt").open("a") as qrels:
        qrels.write("q2 q2.2 b2 1\n")
    assert cli("--task", moved, *ALL, "--json").scores != first.scores
    assert len(list((tmp_path / "results").glob("*/*/*"))) == 2


def folder_for(folder, out, **fields):
    return result_folder(resolve(RunConfig(**{"task": str(folder), "output": str(out), **fields}))).name


def test_every_identity_field_moves_the_result(task, run_file, tmp_path, counting):
    """A field that is marked as identity and forgotten in the stamp would let two configurations share a result."""
    other = write_task(tmp_path / "other")
    (other / "corpus.jsonl").write_text('{"_id": "a1", "text": "cats"}\n')
    (tmp_path / "other.txt").write_text("q1 q1.1 a1 1\n")
    (tmp_path / "arguments.py").write_text(ARGUMENTS)
    judged = {"judge": "arguments:Named", "run": str(run_file)}
    choice = tmp_path / "choice.json"
    Choice(("whole_words:Turned",), (), "other", "dev", "MRecall@5", ()).write(choice, [], {})
    changes = {
        "task": ({}, str(other)),
        "task_args": ({"task": "arguments:task"}, ("name=b",)),
        "split": ({}, "all"),
        "corpus": ({}, str(other)),
        "corpus_args": ({"corpus": "arguments:corpus"}, ("name=b",)),
        "query": ({}, "supporting"),
        "merge": ({"query": "supporting"}, "rrf"),
        "retriever": ({}, "rank_bm25"),
        "retriever_args": ({}, ("k1=0.9",)),
        "run": ({}, str(run_file)),
        "expander": ({}, "whole_words:Twice"),
        "expander_args": ({"expander": "whole_words:Twice"}, ("n=1",)),
        "expand_for": ({"expander": "whole_words:Twice"}, "both"),
        "depth": ({}, 50),
        "reranker": ({}, ("whole_words:Turned",)),
        "reranker_args": ({"reranker": ("whole_words:Turned",)}, ("n=1",)),
        "tuned": ({"reranker": ("whole_words:Turned",)}, str(choice)),
        "judge": ({}, "whole_words:Even"),
        "judge_args": (judged, ("name=b",)),
        "qrels": ({}, str(tmp_path / "other.txt")),
        "threshold": (judged, 0.7),
        "perspectives": ({}, "relevant"),
        "stored_only": (judged, True),
        "limit": ({}, 1),
        "seed": ({}, 1),
    }
    assert set(changes) == set(identity_fields())
    for field, (given, value) in changes.items():
        before = folder_for(task, tmp_path, **given).rpartition("-")[2]
        after = folder_for(task, tmp_path, **{**given, field: value}).rpartition("-")[2]
        assert before != after, field


ARGUMENTS = """
class Named:
    def __init__(self, name: str | None = None, n: int | None = None, on: bool | None = None):
        self.name, self.n, self.on = name, n, on
    def index(self, corpus): ...
    def search(self, queries, k): ...
    def render(self, pair): ...
    def judge(self, pairs): ...
def task(name: str = "a"):
    from corpora.types import Perspective, Question
    class Task:
        questions = (Question("q1", name, (Perspective("p", "text"),)),)
        qrels = {"q1": {"p": {"a1": 1}}}
        macro = False
    Task.name = "same"
    Task.corpus = "demo"
    return Task()
def corpus(name: str = "a"):
    from corpora.memory import MemoryCorpus
    from corpora.types import Passage
    return MemoryCorpus([Passage("a1", name)])
"""


def test_arguments_that_look_alike_have_results_of_their_own(task, tmp_path, counting):
    (tmp_path / "arguments.py").write_text(ARGUMENTS)
    given = [(), ("name=a",), ("name=b",), ("n=0",), ("n=1",), ("on=false",), ("on=true",), ("name=gold",)]
    found = {folder_for(task, tmp_path, retriever="arguments:Named", retriever_args=each) for each in given}
    assert len(found) == len(given)


def test_query_by_stance_runs_on_the_questions_that_have_both(cli, task):
    outcome = cli("--task", task, "--query", "opposing", "--metrics", "Precision@1", "--json")
    assert outcome.scores["questions"] == {"n": 1, "not_applicable": ["q2"], "without_passages": []}
    table = cli("--task", task, "--query", "opposing", "--metrics", "Precision@1").out
    assert "1 questions lack a stance and are not applicable: q2" in table


def test_the_rankings_of_several_queries_are_merged_as_asked(cli, task, counting):
    questions = [json.loads(line) for line in (task / "questions.jsonl").read_text().splitlines()]
    questions[0]["perspectives"].append({"perspective_id": "q1.3", "text": "trains late", "stance": "supporting"})
    (task / "questions.jsonl").write_text("".join(json.dumps(question) + "\n" for question in questions))
    own = (
        "--task",
        task,
        "--query",
        "supporting",
        "--retriever",
        "whole_words:Words",
        "--metrics",
        "Precision@2",
        "--json",
    )
    # "cats are good": a1 2 (cats, are), a2 1, a3 1, b2 1; "trains late": b2 2, b1 1.
    # Round robin: a1 b2 a2 b1 a3; best score: a1 2, b2 2, then ids; rank fusion: b2 1/62 + 1/61 before a1 1/61.
    found = {}
    for merge in ("round_robin", "max", "rrf"):
        run = task / f"{merge}.trec"
        assert cli(*own, "--merge", merge, "--export", run).code == 0
        found[merge] = [line.split()[2] for line in run.read_text().splitlines()]
    assert found["round_robin"] == ["a1", "b2", "a2", "b1", "a3"]
    assert found["max"] == ["a1", "b2", "a2", "a3", "b1"]
    assert found["rrf"][:2] == ["b2", "a1"]


def test_perspectives_relevant_leaves_out_what_no_passage_supports(cli, task, run_file):
    (task / "qrels.txt").write_text("q1 q1.1 a1 1\nq2 q2.1 b1 1\n")
    counted = cli("--task", task, "--run", run_file, "--metrics", "StRecall@2", "--json")
    dropped = cli("--task", task, "--run", run_file, "--metrics", "StRecall@2", "--perspectives", "relevant", "--json")
    assert (counted.mean("StRecall@2"), dropped.mean("StRecall@2")) == (0.5, 1.0)


def test_qrels_and_run_are_enough(cli, task, run_file):
    outcome = cli("--qrels", task / "qrels.txt", "--run", run_file, *ALL, "--json")
    # As above, with q3 among the questions, which the run has not: (1 + 0 + 0) / 3.
    assert outcome.mean("MRecall@2") == pytest.approx(1 / 3)
    assert outcome.scores["config"]["corpus"] is None


def test_qrels_of_ones_own_replace_the_tasks(cli, task, run_file, tmp_path):
    own = tmp_path / "own.txt"
    own.write_text("q1 q1.1 a3 1\nq9 x y 1\n")
    outcome = cli(
        "--task", task, "--run", run_file, "--qrels", own, "--metrics", "Precision@2", "Precision@3", "--json"
    )
    assert outcome.mean("Precision@2") == 0
    assert outcome.mean("Precision@3") == pytest.approx(1 / 6)  # a3 at rank 3 of q1; q2 has nothing
    assert outcome.err == f"warning: qrels {own}: 1 questions (such as 'q9') are not in the task\n"
    own.write_text("q1 q1.9 a3 1\n")
    assert "'q1.9'" in cli("--task", task, "--run", run_file, "--qrels", own).err
    own.write_text("other q1.1 a3 1\n")
    assert cli("--task", task, "--run", run_file, "--qrels", own).code == 2


def test_limit_split_and_seed(cli, task, run_file):
    assert cli("--task", task, "--run", run_file, "--limit", 1, *ALL, "--json").scores["questions"]["n"] == 1
    assert cli("--task", task, "--run", run_file, "--split", "dev", *ALL, "--json").scores["questions"]["n"] == 1
    one = cli("--task", task, "--run", run_file, "--split", "all", *ALL, "--json").scores
    two = cli("--task", task, "--run", run_file, "--split", "all", *ALL, "--json", "--seed", 7).scores
    assert one["scores"]["Precision@2"]["mean"] == two["scores"]["Precision@2"]["mean"]
    assert one["config"]["seed"] != two["config"]["seed"]


def test_shards_of_a_search_are_merged_to_what_one_process_finds(cli, task, tmp_path):
    whole = cli("--task", task, "--split", "all", *ALL, "--json").scores
    for path in (tmp_path / "cache" / "search").iterdir():
        assert path.is_dir()
        path.rename(tmp_path / path.name)
    for i in (2, 1):
        done = cli("--task", task, "--split", "all", "--until", "search", "--shard", f"{i}/2")
        assert done.code == 0, done.err
    (tmp_path / "results").rename(tmp_path / "old")
    assert cli("--task", task, "--split", "all", *ALL, "--json").scores == whole
    assert len(list((tmp_path / "cache" / "search").iterdir())) == 3


COUNTING = """
import os
from corpora.types import Hit
class Words:
    version = 1
    def __init__(self, local: bool = False):
        self.local = local
    local_scores = LOCAL
    def index(self, corpus):
        open(os.environ["ASKED"], "a").write(f"index {len(corpus)}\\n")
        return Index(list(corpus))
class Index:
    def __init__(self, passages):
        self.passages = passages
    def search(self, queries, k):
        open(os.environ["ASKED"], "a").write(f"search {len(queries)}\\n")
        found = []
        for query in queries:
            words = query.text.split()
            hits = [Hit(p.passage_id, float(sum(w in p.text.split() for w in words))) for p in self.passages]
            found.append(tuple(sorted((h for h in hits if h.score), key=lambda h: (-h.score, h.passage_id))[:k]))
        return found
def small():
    from corpora.memory import MemoryCorpus
    from corpora.types import Passage
    return MemoryCorpus([Passage(*item) for item in PASSAGES], block_rows=2)
class Twice:
    def __init__(self, n: int = 0):
        self.n = n
    def expand(self, queries):
        from dataclasses import replace
        return [(q, replace(q, query_id=q.query_id + "::0", origin="expansion:0")) for q in queries]
class Turned:
    def __init__(self, n: int = 0):
        self.n = n
    def rerank(self, pools):
        open(os.environ["ASKED"], "a").write(f"rerank {len(pools)}\\n")
        return [tuple(Hit(h.passage_id, float(i)) for i, h in enumerate(pool.ranking))[::-1] for pool in pools]
class Even:
    fingerprint = "even"
    def render(self, pair):
        return pair.passage.text + pair.perspective.text
    def judge(self, pairs):
        from evaluator.types import Judgement
        for i, pair in enumerate(pairs):
            open(os.environ["ASKED"], "a").write(f"judge {self.render(pair)}\\n")
            yield i, Judgement("ok", float(len(self.render(pair)) % 2))
"""


@pytest.fixture
def counting(tmp_path, monkeypatch):
    """Plug-ins that write down what they are asked; the function gives the lines since the last call."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    for name in ("whole_words", "local_words"):
        (tmp_path / f"{name}.py").write_text(
            COUNTING.replace("LOCAL", str(name == "local_words")).replace("PASSAGES", repr([*PASSAGES.items()]))
        )

    def lines():
        path = tmp_path / "asked"
        found = path.read_text().splitlines() if path.exists() else []
        path.write_text("")
        return found

    return lines


def test_a_missing_part_is_made_and_a_published_one_is_not_made_again(cli, task, tmp_path, counting):
    options = ("--task", task, "--split", "all", "--retriever", "whole_words:Words", *ALL, "--json")
    assert cli(*options, "--until", "search", "--shard", "2/3").code == 0
    assert counting() == ["index 6", "search 1"]
    joined = cli(*options).scores
    assert counting() == ["index 6", "search 1", "index 6", "search 1"], "two parts were missing"
    whole = cli(*options, "--cache", tmp_path / "other-cache", "--output", tmp_path / "other-results").scores
    assert joined == whole


def test_parts_of_a_corpus_are_searched_apart_where_scores_are_local(cli, task, tmp_path, counting):
    own = ("--corpus", "local_words:small", "--retriever", "local_words:Words")
    options = ("--task", task, "--split", "all", *own, *ALL, "--json")
    for i in (1, 2, 3):
        assert cli(*options, "--until", "search", "--shard", f"{i}/3").code == 0
    assert counting() == ["index 2", "search 3"] * 3, "six passages in blocks of two"
    joined = cli(*options).scores
    assert counting() == []
    elsewhere = ("--cache", tmp_path / "other", "--output", tmp_path / "other-results")
    assert cli(*options, *elsewhere).scores == joined
    assert counting() == ["index 6", "search 3"]


def test_reranking_and_judging_are_sharded_too(cli, task, tmp_path, counting):
    own = ("--retriever", "whole_words:Words", "--reranker", "whole_words:Turned", "--judge", "whole_words:Even")
    options = ("--task", task, "--split", "all", *own, "--metrics", "Precision@2", "CoverageDepth", "--json")
    early = cli(*options, "--until", "rerank", "--shard", "1/2")
    assert early.code == 2
    assert "--until search" in early.err
    assert cli(*options, "--until", "search").code == 0
    counting()
    for i in (1, 2):
        assert cli(*options, "--until", "rerank", "--shard", f"{i}/2").code == 0
    assert counting() == ["rerank 1", "rerank 2"], "one group each: animals with q1, travel with q2 and q3"
    for i in (1, 2):
        assert cli(*options, "--until", "judge", "--shard", f"{i}/2").code == 0
    judged = counting()
    assert len(judged) == len(set(judged)) > 5
    joined = cli(*options).scores
    assert counting() == [], "everything was published"
    assert cli(*options, "--cache", tmp_path / "other", "--output", tmp_path / "other-results").scores == joined


def test_a_run_file_reranked_at_another_depth_is_reranked_anew(cli, task, run_file, tmp_path, counting):
    options = (
        "--task",
        task,
        "--run",
        run_file,
        "--reranker",
        "whole_words:Turned",
        "--metrics",
        "Precision@1",
        "--json",
    )
    # Turned puts the last passage first: at depth 2 that is a2 and b1, both supporting; at depth 1 a1 and b2.
    assert cli(*options, "--depth", 2).mean("Precision@1") == 1
    assert cli(*options, "--depth", 1).mean("Precision@1") == 0.5


def test_a_judge_is_asked_only_as_deep_as_the_metrics_look(cli, task, run_file, counting):
    options = ("--task", task, "--run", run_file, "--judge", "whole_words:Even", "--json")
    one = cli(*options, "--metrics", "Precision@1")
    assert len(counting()) == 4  # 2 questions, 1 passage, 2 perspectives
    assert one.scores["labels"] == {"depth": 1, "pairs": 4, "ok": 4, "unparsed": 0, "unjudged": 0}
    assert "0 stored" not in cli(*options[:-1], "--metrics", "Precision@1", "--dry-run").out
    both = cli(*options, "--metrics", "Precision@2")
    assert len(counting()) == 4
    assert both.scores["scores"]["Precision@1"] == one.scores["scores"]["Precision@1"]


LAZY = ("--judge", "whole_words:Even", "--json", "--metrics")


def test_coverage_metrics_judge_a_perspective_until_it_is_covered(cli, task, run_file, counting):
    options = ("--task", task, "--run", run_file, *LAZY)
    cli("--task", task, "--until", "index")
    plan = cli(*options, "CoverageDepth", "--dry-run").out
    assert "at most 10 pairs, 0 stored, at most 10 to judge" in plan
    outcome = cli(*options, "CoverageDepth", "Covered@3")
    # Even says yes where passage and perspective have an odd number of letters in all. "cats are good" has 13 and "cats
    # are bad" 12, a1 37, a2 18, a3 37: q1.1 at rank 2, q1.2 at rank 1. "trains punctual" has 15, "trains comfortable"
    # 18, b2 15, b1 32: q2.1 at rank 2, q2.2 at rank 1. So 2 + 1 + 2 + 1 of 3 * 2 + 2 * 2 pairs are needed.
    assert outcome.scores["labels"] == {
        "depth": 100, "full_depth": 0, "pairs": 6, "ok": 6, "unparsed": 0, "unjudged": 0, "skipped": 4,
    }  # fmt: skip
    assert outcome.mean("CoverageDepth") == 2
    assert outcome.mean("Covered@3") == 1
    assert outcome.scores["scores"]["Covered@3"]["n_unjudged"] == 0
    counting()
    assert "6 pairs, 6 stored, 0 to judge" in cli(*options, "CoverageDepth", "--dry-run").out
    assert counting() == []


def test_labels_that_were_left_out_are_added_when_a_metric_wants_them(cli, task, run_file, tmp_path, counting):
    options = ("--task", task, "--run", run_file, *LAZY)
    names = ("labels.parquet", "scores.json", "per_question.csv")
    cli(*options, "CoverageDepth")
    counting()
    one = cli(*options, "Precision@2")
    assert one.code == 0
    assert one.scores["labels"]["full_depth"] == 2
    # 2 questions, 2 passages, 2 perspectives; and a3 is not needed by CoverageDepth.
    assert one.scores["labels"]["pairs"] == 8
    (folder,) = (path.parent for path in (tmp_path / "results").glob("*/*/*/scores.json"))
    found = [(folder / name).read_bytes() for name in names]
    elsewhere = ("--output", tmp_path / "other")
    cli(*options, "Precision@2", *elsewhere)
    cli(*options, "CoverageDepth", *elsewhere)
    (other,) = (path.parent for path in (tmp_path / "other").glob("*/*/*/scores.json"))
    assert [(other / name).read_bytes() for name in names] == found
    both = ("--output", tmp_path / "both")
    cli(*options, "CoverageDepth", "Precision@2", *both)
    (third,) = (path.parent for path in (tmp_path / "both").glob("*/*/*/scores.json"))
    assert [(third / name).read_bytes() for name in names] == found


def test_stored_judgements_of_a_lazy_run_serve_no_metric_that_wants_more(cli, task, run_file, monkeypatch, counting):
    from evaluator import judging

    monkeypatch.setattr(judging, "ROUND_LEAST", 1)
    options = ("--task", task, "--run", run_file, *LAZY)
    cli(*options, "CoverageDepth")
    counting()
    own = (*options, "CoverageDepth", "--stored-only")
    assert cli(*own).mean("CoverageDepth") == 2
    refused = cli(*options, "Precision@2", "--stored-only")
    assert refused.code == 2
    assert refused.err.startswith("error: 2 labels that these metrics need were left out")
    assert len(refused.err.splitlines()) == 1
    assert counting() == []
    assert cli(*options, "Precision@2").code == 0
    assert len(counting()) == 2
    assert cli(*options, "Precision@2", "--stored-only").code == 0


@pytest.mark.parametrize("told", [{b"depth": b"x"}, {b"full_depth": b"101"}, {b"threshold": b"high"}])
def test_labels_that_tell_a_strange_depth_are_damaged(cli, task, run_file, tmp_path, counting, told):
    options = ("--task", task, "--run", run_file, *LAZY)
    cli(*options, "CoverageDepth")
    (path,) = (tmp_path / "results").glob("*/*/*/labels.parquet")
    table = pq.read_table(path)
    assert table.schema.metadata == {b"depth": b"100", b"full_depth": b"0", b"threshold": b"0.5"}
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, **told}), path)
    outcome = cli(*options, "Precision@1")
    assert outcome.code == 2
    assert outcome.err == f"error: {path} is damaged: make the result anew with --overwrite\n"


def test_a_judge_is_not_asked_for_coverage_depth_unless_it_is_named(cli, task, run_file, counting):
    judged = cli("--task", task, "--run", run_file, "--judge", "whole_words:Even", "--json").scores
    gold = cli("--task", task, "--run", run_file, "--json").scores
    assert gold["scores"].keys() - judged["scores"].keys() == {"CoverageDepth", "Covered@100", "alpha_nDCG@10"}
    assert judged["labels"]["depth"] == 10
    assert "full_depth" not in judged["labels"]


def test_a_result_grows_without_the_cache(cli, task, tmp_path, counting):
    options = ("--task", task, "--retriever", "whole_words:Words", "--json")
    cli(*options, "--metrics", "Precision@2")
    shutil.rmtree(tmp_path / "cache" / "search")
    counting()
    assert cli(*options, "--metrics", "MRecall@2").code == 0
    assert counting() == []


def test_both_spellings_of_a_metric_are_printed_with_the_same_numbers(cli, task):
    for names in (["alpha_nDCG@10"], ["alpha_nDCG(alpha=0.5)@10"], ["alpha_nDCG@10", "alpha_nDCG(alpha=0.5)@10"]):
        outcome = cli("--task", task, "--metrics", *names)
        assert outcome.code == 0
        assert [line.split()[0] for line in outcome.out.splitlines()[3 : 3 + len(names)]] == names
    scores = cli("--task", task, "--metrics", *names, "--json").scores["scores"]
    assert scores[names[0]] == scores[names[1]]


def test_a_run_with_the_ids_of_another_collection_is_refused(cli, task, tmp_path):
    first = cli("--task", task, "--export", tmp_path / "out.jsonl", *ALL, "--json")
    assert first.code == 0
    other = tmp_path / "other.jsonl"
    text = (tmp_path / "out.jsonl").read_text()
    for passage in PASSAGES.values():
        text = text.replace(passage, "quite different words about " + str(len(passage)))
    other.write_text(text)
    outcome = cli("--task", task, "--run", other)
    assert outcome.code == 2
    assert "have another text in the corpus" in outcome.err


def test_a_berds_run_brings_its_own_questions_for_a_judge(cli, task, tmp_path, counting):
    cli("--task", task, "--export", tmp_path / "out.jsonl", *ALL)
    outcome = cli("--run", tmp_path / "out.jsonl", "--judge", "whole_words:Even", "--metrics", "Precision@1", "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.scores["config"]["task"]["name"] == "out"
    assert outcome.scores["questions"]["n"] == 2


def test_gold_labels_of_another_corpus_are_refused(cli, task, tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_text('{"_id": "x1", "text": "cats and trains"}\n')
    outcome = cli("--task", task, "--corpus", other)
    assert outcome.code == 2
    assert "4 of 4 relevant passages of the qrels" in outcome.err
    assert "about another one" in outcome.err
    with (task / "qrels.txt").open("a") as qrels:
        qrels.write("q1 q1.1 a77 1\n")
    assert "1 of 5 relevant passages of the qrels (such as 'a77')" in cli("--task", task, *ALL).err


def test_a_run_of_the_corpus_with_gold_labels_of_another_one_is_refused(cli, task, run_file, tmp_path):
    qrels = tmp_path / "other.txt"
    qrels.write_text("q1 q1.1 z1 1\nq2 q2.1 z2 1\n")
    outcome = cli("--task", task, "--run", run_file, "--qrels", qrels)
    assert outcome.code == 2
    assert "2 of 2 relevant passages of the qrels (such as 'z1') are not in the corpus" in outcome.err


@pytest.mark.parametrize("target", ["corpus.jsonl", "qrels.txt", "new/run.trec", "link.trec"])
def test_an_export_goes_over_nothing_that_matters(cli, task, target):
    (task / "link.trec").symlink_to(task / "corpus.jsonl")
    before = {path.name: path.read_bytes() for path in task.iterdir()}
    outcome = cli("--task", task, *ALL, "--export", task / target)
    assert outcome.code == 2
    assert outcome.err.startswith(f"error: --export {task / target}: ")
    assert {path.name: path.read_bytes() for path in task.iterdir()} == before


def test_parts_of_the_judging_need_no_more_judgements_than_the_whole(cli, task, run_file, counting):
    options = ("--task", task, "--run", run_file, "--judge", "whole_words:Even", "--metrics", "Precision@2")
    for i in (1, 2, 3):
        assert cli(*options, "--until", "judge", "--shard", f"{i}/3").code == 0
    assert len(counting()) == 8  # 2 questions, 2 passages, 2 perspectives
    assert cli(*options).code == 0
    assert counting() == []


def test_labels_of_a_process_that_looked_less_deep_are_extended(cli, task, run_file, counting, monkeypatch):
    options = ("--task", task, "--run", run_file, "--judge", "whole_words:Even", "--json")
    from benchmarks import results

    write, other = results.write_labels, []

    def slower(folder, table, *, replace):
        if not other:  # while this process judged two ranks, another one has labelled the first and finished
            other.append(None)
            other.append(cli(*options, "--metrics", "Precision@1").scores["labels"]["depth"])
        return write(folder, table, replace=replace)

    monkeypatch.setattr(results, "write_labels", slower)
    outcome = cli(*options, "--metrics", "Precision@1", "Precision@2")
    assert other == [None, 1]
    assert outcome.scores["labels"]["depth"] == 2
    assert outcome.scores["labels"]["unjudged"] == 0


def test_list_shows_arguments_and_metrics(cli):
    text = cli("--list").out
    assert "k1=1.5 b=0.75 stemmer=None" in text
    assert "MRecall@k" in text
    assert "alpha_nDCG(alpha=0.5)@k" in text


def test_a_retriever_that_finds_nothing_is_refused_and_not_scored_0(cli, task, tmp_path):
    strange = tmp_path / "strange.trec"
    strange.write_text("other Q0 a1 1 3.0 x\n")
    outcome = cli("--task", task, "--retriever", "runfile", "--retriever-args", f"path={strange}")
    assert outcome.code == 2
    assert "found no passage for any of 2 queries" in outcome.err


@pytest.mark.parametrize("name", ["scores.json", "labels.parquet"])
@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b'{"schema_version": 1, "scores": []}'])
def test_a_damaged_result_is_named_and_made_anew_with_overwrite(cli, task, tmp_path, name, content):
    first = cli("--task", task, *ALL, "--json")
    path = folder_of(first, tmp_path) / name
    path.write_bytes(content)
    outcome = cli("--task", task, *ALL, "--json")
    assert outcome.code == 2
    assert str(path) in outcome.err
    assert "--overwrite" in outcome.err
    assert cli("--task", task, *ALL, "--json", "--overwrite").scores == first.scores


def test_a_damaged_artefact_is_named(cli, task, tmp_path):
    cli("--task", task, *ALL)
    (path,) = (tmp_path / "cache" / "search").glob("*/rankings.parquet")
    path.write_bytes(path.read_bytes()[:-9])
    shutil.rmtree(tmp_path / "results")
    outcome = cli("--task", task, *ALL)
    assert outcome.code == 2
    assert f"remove the folder {path.parent}" in outcome.err


def test_dry_run_says_what_is_done_and_does_nothing(cli, task, tmp_path):
    before = cli("--task", task, "--dry-run").out
    assert "corpus  to do" in before
    assert not (tmp_path / "results").exists()
    cli("--task", task)
    after = cli("--task", task, "--dry-run").out
    assert "to do" not in after
    assert "6 passages" in after


def test_until_stages_and_prefetch(cli, task, tmp_path):
    for stage in ("index", "search", "judge"):
        assert cli("--task", task, "--until", stage).code == 0
    assert not (tmp_path / "results").exists()
    assert "nothing that this run needs has to be downloaded" in cli("--task", task, "--prefetch").err


def test_corpus_alone_brings_its_questions(cli, task):
    by_task, by_corpus = cli("--task", task, *ALL, "--json"), cli("--corpus", task, *ALL, "--json")
    assert by_task.scores == by_corpus.scores
    assert cli("--corpus", "demo", "--metrics", "MRecall@5", "--json").scores["config"]["task"]["name"] == "demo"


def test_rank_column_that_disagrees_is_a_warning(cli, task, run_file):
    lines = run_file.read_text().splitlines()
    run_file.write_text("\n".join([lines[0].replace(" 1 3.0", " 9 3.0"), *lines[1:]]) + "\n")
    outcome = cli("--task", task, "--run", run_file, *ALL, "--json")
    assert outcome.code == 0
    assert outcome.err.startswith("warning: ")
    assert "rank" in outcome.err
    assert len(outcome.err.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--k", "500"], ["--k 500 exceeds --depth 100: raise --depth or lower --k"]),
        (["--k", "0"], ["--k 0"]),
        (["--k", "five"], ["five"]),
        (["--depth", "0"], ["--depth 0"]),
        (["--limit", "-1"], ["--limit -1"]),
        (["--threshold", "0"], ["--threshold 0"]),
        (["--shard", "3/2", "--until", "search"], ["--shard 3/2"]),
        (["--shard", "1/2"], ["--until"]),
        (["--no-such-flag"], ["--no-such-flag"]),
        (["--metrics", "MRecal@5"], ["MRecal", "MRecall"]),
        (["--metrics", "MRecall@101"], ["MRecall@101", "--depth 100"]),
        (["--retriever", "bm52"], ["bm52", "'bm25'"]),
        (["--retriever-args", "k9=1", "b=x"], ["k9", "b=x", "valid arguments", "k1"]),
        (["--retriever", "no.such.module:Class"], ["no.such"]),
        (["--split", "train"], ["--split train", "dev, test, all"]),
        (["--judge", "mistrall"], ["mistrall"]),
        (["--judge", "gold", "--judge-args", "a=1"], ["--judge-args"]),
        (["--reranker", "mmmr"], ["mmmr", "mmr"]),
        (["--run", "no-such-file"], ["no-such-file"]),
        (["--qrels", "no-such-file"], ["no-such-file"]),
        (["--corpus", "no-such-corpus"], ["no-such-corpus"]),
        (["--until", "index", "--shard", "1/2"], ["bm25", "whole corpus"]),
        (["--until", "rerank", "--shard", "1/2"], ["--reranker"]),
    ],
)
def test_a_mistake_ends_in_one_line_and_exit_code_2(cli, task, arguments, words):
    outcome = cli("--task", task, *arguments)
    assert outcome.code == 2, outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert outcome.err.startswith("error: ")
    for word in words:
        assert word in outcome.err
    assert outcome.out == ""


def test_a_class_without_the_methods_of_its_kind_is_refused(cli, task):
    for flag, kind in (("--retriever", "index"), ("--reranker", "rerank"), ("--judge", "render and no judge")):
        outcome = cli("--task", task, flag, "collections:OrderedDict")
        assert outcome.code == 2
        assert "cannot be read" in outcome.err
        outcome = cli("--task", task, flag, "fractions:Fraction")
        assert outcome.code == 2
        assert f"has no method {kind}" in outcome.err


def test_a_task_without_questions_is_refused(cli, task):
    for name in ("questions.jsonl", "qrels.txt"):
        (task / name).write_text("")
    assert cli("--task", task).code == 2


def test_a_task_without_qrels_asks_for_a_judge(cli, task):
    (task / "qrels.txt").unlink()
    outcome = cli("--task", task)
    assert outcome.code == 2
    warning, error = outcome.err.splitlines()
    assert "so the judge is mistral: --judge names another one, --qrels FILE gives labels" in warning
    assert "Mistral_BERDS_evaluator_full" in error


def test_a_run_of_another_collection_is_refused_and_not_scored_0(cli, task, tmp_path):
    strange = tmp_path / "strange.trec"
    strange.write_text("q1 Q0 clueweb-1 1 3.0 x\nq2 Q0 clueweb-2 1 2.0 x\n")
    outcome = cli("--task", task, "--run", strange, "--json")
    assert outcome.code == 2
    assert "none of its 2 passages" in outcome.err
    assert len(outcome.err.splitlines()) == 1
    alone = cli("--qrels", task / "qrels.txt", "--run", strange, "--json")
    assert alone.code == 2
    assert "the qrels" in alone.err


def test_known_but_unjudged_passages_are_scored_and_reported_as_holes(cli, task, tmp_path):
    holes = tmp_path / "holes.trec"
    holes.write_text("q1 Q0 b2 1 3.0 x\n")
    outcome = cli("--task", task, "--run", holes, *ALL, "--json")
    assert outcome.mean("Precision@2") == 0
    assert outcome.mean("Judged@2") == 0
    assert outcome.scores["labels"]["unjudged"] == 2


def test_json_prints_nothing_else_and_help_needs_no_heavy_module(task, tmp_path):
    code = "import sys; from benchmarks.run import main\n"
    code += "try: main(['--help'])\nexcept SystemExit: pass\n"
    code += "print([m for m in ('numpy', 'pyarrow', 'bm25s', 'tqdm', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    command = [sys.executable, "-m", "benchmarks.run", "--task", str(task), "--json", "--metrics", "MRecall@2"]
    own = ["--cache", str(tmp_path / "c"), "--output", str(tmp_path / "r")]
    done = subprocess.run([*command, *own], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["scores"]["MRecall@2"]["mean"] == 0.5
    assert done.stderr == ""


def test_a_bug_keeps_its_traceback(cli, task, tmp_path, monkeypatch):
    (tmp_path / "buggy.py").write_text(
        "class Buggy:\n    def index(self, corpus):\n        return self\n"
        "    def search(self, queries, k):\n        return {}['missing']\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyError, match="missing"):
        cli("--task", task, "--retriever", "buggy:Buggy")


BAD = """
from corpora.types import Hit
class Bad:
    def __init__(self, how: str = ""):
        self.how = how
    def index(self, corpus):
        return self
    def search(self, queries, k):
        hits = {"many": tuple(Hit(f"a{i}", -i) for i in range(1, 4)) * 50, "twice": (Hit("a1", 1.0), Hit("a1", 0.5)),
                "nan": (Hit("a1", float("nan")),), "unknown": (Hit("zz", 1.0),), "fewer": (),
                "last": (Hit("a1", 2.0), Hit("zz", 1.0)), "rising": (Hit("a1", 1.0), Hit("a2", 2.0)),
                "pair": (("a1", 1.0),)}[self.how]
        return [hits for _ in queries][self.how == "fewer":]
"""


@pytest.mark.parametrize(
    "how, word",
    [
        ("many", "at most"),
        ("twice", "twice"),
        ("nan", "finite"),
        ("unknown", "zz"),
        ("fewer", "1 rankings for 2"),
        ("last", "zz"),
        ("rising", "best first"),
        ("pair", "tuple"),
    ],
)
def test_what_a_retriever_returns_is_checked(cli, task, tmp_path, monkeypatch, how, word):
    (tmp_path / f"bad_{how}.py").write_text(BAD)
    monkeypatch.syspath_prepend(tmp_path)
    outcome = cli("--task", task, "--retriever", f"bad_{how}:Bad", "--retriever-args", f"how={how}", "--depth", 100)
    assert outcome.code == 2
    assert word in outcome.err
    assert len(outcome.err.splitlines()) == 1

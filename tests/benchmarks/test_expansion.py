"""Expanders, aspects and chains of rerankers through the command line, with rankings worked out by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.config import RunConfig
from benchmarks.resolve import chain, resolve
from benchmarks.run import main, run
from corpora.files import read_run
from tests.benchmarks.conftest import write_task

PLUGINS = '''
from pathlib import Path

from corpora.types import Hit, Query
from rerankers.base import reordered

CALLS = []


class Overlap:
    """Counts words of the query in the passage, repeated ones too; passages without any are not found."""

    def index(self, corpus):
        self.corpus = corpus
        return self

    def search(self, queries, k):
        CALLS.append([query.text for query in queries])
        return [self.one(query, k) for query in queries]

    def one(self, query, k):
        words = query.text.split()
        scores = {p.passage_id: float(sum(p.text.split().count(word) for word in words)) for p in self.corpus}
        hits = [Hit(name, score) for name, score in scores.items() if score]
        return tuple(sorted(hits, key=lambda hit: (-hit.score, hit.passage_id)))[:k]


class Views:
    """Two views on cats, none on trains."""

    def __init__(self, n: int = 2, mistake: str = ""):
        self.n, self.mistake = n, mistake

    def expand(self, queries):
        CALLS.append("expand")
        if self.mistake == "fewer":
            return [queries[:1]]
        if self.mistake == "other":
            return [(Query("x", "other", "text"),) for _ in queries]
        if self.mistake == "same":
            return [(Query("x", query.question_id, "text"),) for query in queries]
        return [self.views(query) for query in queries]

    def views(self, query):
        if query.text != "cats":
            return (query,)
        texts = ("scratch", "clean animals")[: self.n]
        ids = (query.query_id, query.question_id)
        return tuple(Query(f"{ids[0]}::{i}", ids[1], text, f"expansion:{i}") for i, text in enumerate(texts))


class Backwards:
    def __init__(self, step: int = 1, other: int = 0):
        self.step, self.other = step, other

    def rerank(self, pools):
        CALLS.append("backwards")
        return [reordered(pool, range(len(pool.ranking) - 1, -1, -1)) for pool in pools]


class FirstLast:
    """Puts the first passage last."""

    def __init__(self, turn: int = 1):
        self.turn = turn

    def rerank(self, pools):
        CALLS.append("first last")
        return [reordered(pool, [*range(1, len(pool.ranking)), 0][: len(pool.ranking)]) for pool in pools]
'''


@pytest.fixture
def plugins(tmp_path, monkeypatch):
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "views_plugins.py").write_text(PLUGINS)
    monkeypatch.syspath_prepend(str(folder))
    sys.modules.pop("views_plugins", None)
    import views_plugins

    return views_plugins


def ranked(tmp_path, *flags):
    """question_id -> passage ids of one run of the small task."""
    task = tmp_path / "task"
    if not task.exists():
        write_task(task)
    out = tmp_path / "out.trec"
    given = ("--task", str(task), "--split", "all", "--retriever", "views_plugins:Overlap", "--depth", "10")
    assert main([*given, *flags, "--output", str(tmp_path / "results"), "--export", str(out)]) == 0
    return {name: [hit.passage_id for hit in ranking] for name, ranking in read_run(out).run.items()}


def result(tmp_path):
    found = max((tmp_path / "results").rglob("scores.json"), key=lambda path: path.stat().st_mtime_ns)
    return found.parent.name, json.loads(found.read_text())["config"]


VIEWS = ("--expander", "views_plugins:Views")


def test_expansions_are_searched_and_merged(tmp_path, plugins, capsys):
    # "scratch" finds a2; "clean animals" finds a1; the question itself is not asked. q2 keeps its own query.
    assert ranked(tmp_path, *VIEWS)["q1"] == ["a2", "a1"]
    assert "expander views_plugins:Views (for search)" in capsys.readouterr().out
    name, config = result(tmp_path)
    assert name.startswith("views_plugins-Views+views_plugins-Overlap-")
    assert (config["expander"]["for"], config["merge"]) == ("search", "round_robin")
    assert ranked(tmp_path)["q1"] == ["a1", "a2", "a3"]
    assert plugins.CALLS[0] == "expand"
    assert plugins.CALLS[1] == ["scratch", "clean animals", "trains", "cats trains"]


def test_expansions_are_written_once(tmp_path, plugins):
    ranked(tmp_path, *VIEWS)
    ranked(tmp_path, *VIEWS, "--merge", "rrf")
    ranked(tmp_path, *VIEWS, "--expand-for", "both")
    assert plugins.CALLS.count("expand") == 1
    assert len([call for call in plugins.CALLS if isinstance(call, list)]) == 1  # one search serves all merges
    ranked(tmp_path, *VIEWS, "--expander-args", "n=1")
    assert plugins.CALLS.count("expand") == 2


def test_duplicates_are_compared_and_never_written(tmp_path, plugins, capsys):
    # "cats scratch" finds a1 a2 a3, "cats clean" the same: a1 a1 a2 a2 a3 a3 with duplicates. q2 stays: b1 b2.
    # a1 and a2 support one perspective of q1 each, b1 one of two of q2. Means over q1 and q2:
    # MRecall@2: (1 + 0) / 2 and (0 + 0) / 2; Precision@3: (2/3 + 1/3) / 2 and (3/3 + 1/3) / 2
    expansions = tmp_path / "expansions.jsonl"
    texts = ("cats scratch", "cats clean")
    expansions.write_text("".join(json.dumps({"question_id": "q1", "text": text}) + "\n" for text in texts))
    arguments = ("--expander-args", f"path={expansions}", "form=perspective")
    metrics = ("--metrics", "MRecall@2", "Precision@3", "alpha_nDCG@2")
    given = ("--expander", "file", *arguments, "--split", "test", *metrics)
    assert ranked(tmp_path, *given)["q1"] == ["a1", "a2", "a3"]
    plain = {path.name: path.read_bytes() for path in (tmp_path / "results").rglob("*") if path.is_file()}
    capsys.readouterr()
    assert ranked(tmp_path, *given, "--with-duplicates")["q1"] == ["a1", "a2", "a3"]
    out = capsys.readouterr().out
    title, header, _, *rows, note, left_out = out[out.index("with duplicates,") :].splitlines()
    assert title.endswith("a comparison, not the headline, and in no run file")
    assert header.split()[:3] == ["metric", "each", "once"]
    assert [row.split()[:3] for row in rows] == [["MRecall@2", "50.00", "0.00"], ["Precision@3", "50.00", "66.67"]]
    assert note == "3 of 8 passages in these lists are repetitions."
    assert left_out == "Left out, as they count the relevant passages of the whole corpus: alpha_nDCG@2."
    left = {path.name: path.read_bytes() for path in (tmp_path / "results").rglob("*") if path.is_file()}
    compared = json.loads(left.pop("with_duplicates.json"))
    changed = {name for name in plain if left[name] != plain[name]}
    assert (left.keys(), changed) == (plain.keys(), {"provenance.json"})  # --export adds an entry
    assert compared["scores"].keys() == {"MRecall@2", "Precision@3"}
    assert (compared["passages"], compared["repeated"], "macro" in compared) == (8, 3, False)
    ranked(tmp_path, *given, "--with-duplicates", "--depth", "3")
    assert "1 of 5 passages in these lists are repetitions." in capsys.readouterr().out


def test_until_expand_and_the_plan(tmp_path, plugins, capsys):
    task = tmp_path / "task"
    write_task(task)
    given = ["--task", str(task), "--retriever", "views_plugins:Overlap", *VIEWS]
    assert main([*given, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "expand  to do  2 queries, views_plugins:Views for search" in out
    assert "search  to do  2 questions, expanded, views_plugins:Overlap" in out
    assert plugins.CALLS == []
    assert main([*given, "--until", "expand"]) == 0
    assert "expand: 3 queries" in capsys.readouterr().err
    assert main([*given, "--dry-run"]) == 0
    assert "expand  done   2 queries" in capsys.readouterr().out
    assert plugins.CALLS == ["expand"]


def test_aspects_leave_the_run_alone(tmp_path, plugins, capsys):
    plain = ranked(tmp_path)
    # round robin over the aspects' own rankings: "scratch" finds a2, "clean animals" a1
    flags = ("--reranker", "round_robin", "--reranker-args", "source=retriever", "--expand-for", "aspects")
    found = ranked(tmp_path, *VIEWS, *flags)
    assert "warning: RoundRobin: 2 of 3 questions have no aspects and keep their order" in capsys.readouterr().err
    assert found["q1"] == ["a2", "a1", "a3"]
    assert found["q2"] == plain["q2"]
    assert plugins.CALLS[-1] == ["cats", "trains", "cats trains", "scratch", "clean animals"]
    assert result(tmp_path)[1]["merge"] is None


def test_a_chain_reranks_in_order(tmp_path, plugins):
    back, last = "views_plugins:Backwards", "views_plugins:FirstLast"
    assert ranked(tmp_path, "--reranker", back)["q1"] == ["a3", "a2", "a1"]
    assert ranked(tmp_path, "--reranker", back, last)["q1"] == ["a2", "a1", "a3"]
    assert ranked(tmp_path, "--reranker", last, back)["q1"] == ["a1", "a3", "a2"]
    name, config = result(tmp_path)
    assert name.startswith("views_plugins-Overlap+views_plugins-FirstLast+views_plugins-Backwards-")
    assert [each["name"] for each in config["reranker"]] == [last, back]
    # backwards alone and as the first of two is one artefact, as the second it is another
    assert plugins.CALLS.count("backwards") == 2


def test_shards_of_a_chain_take_one_reranker_after_the_other(tmp_path, plugins, capsys):
    whole = ranked(tmp_path, "--reranker", "views_plugins:Backwards", "views_plugins:FirstLast")
    cache = ("--cache", str(tmp_path / "other cache"))
    given = [
        "--task",
        str(tmp_path / "task"),
        "--split",
        "all",
        "--retriever",
        "views_plugins:Overlap",
        "--depth",
        "10",
    ]
    given += ["--reranker", "views_plugins:Backwards", "views_plugins:FirstLast", *cache]
    main([*given, "--until", "search"])
    for number in (1, 2):
        for shard in ("1/2", "2/2"):
            assert main([*given, "--until", "rerank", "--shard", shard]) == 0
            assert f"number {number} of 2" in capsys.readouterr().err
    before = len(plugins.CALLS)
    assert ranked(tmp_path, *given[6:], "--output", str(tmp_path / "again")) == whole
    assert len(plugins.CALLS) == before


def test_a_single_name_is_a_chain_of_one():
    assert RunConfig(reranker="mmr").reranker == ("mmr",)


def test_arguments_go_to_the_reranker_that_has_them(plugins):
    back, last = "views_plugins:Backwards", "views_plugins:FirstLast"
    first, second = chain((back, last), ("step=2", "turn=3", f"{back}.other=4"))
    assert (first.step, first.other, second.turn) == (2, 4, 3)
    mmr, dpp = chain(("mmr", "dpp"), ("lambda=0.25", "dpp.theta=0.5", "mmr.norm=minmax"))
    assert (mmr.lambda_, mmr.norm, dpp.theta, dpp.norm) == (0.25, "minmax", 0.5, "minmax")
    for names, given, message in (
        (("mmr", "dpp"), "norm=minmax", "2 of the rerankers mmr, dpp have the argument 'norm': write NAME.KEY=VALUE"),
        (("mmr", "dpp"), "k=5", "none of mmr, dpp has the argument 'k'"),
        (("mmr", "mmr"), "mmr.lambda=0.5", "2 of the rerankers mmr, mmr have"),
        (("mmr",), "k=5", "no argument 'k'"),
    ):
        with pytest.raises(ValueError, match=message):
            chain(names, (given,))


@pytest.mark.parametrize(
    "flags, message",
    [
        (("--expand-for", "both"), "--expander-args and --expand-for need --expander"),
        ((*VIEWS, "--query", "supporting"), "leave out --query"),
        ((*VIEWS, "--run", "x.trec"), "an --expander is then for --expand-for aspects only"),
        (("--until", "expand"), "--until expand: no --expander is given"),
        (("--with-duplicates",), "it needs --expander for search, --merge round_robin, no --reranker"),
        ((*VIEWS, "--with-duplicates", "--merge", "rrf"), "it needs --expander for search, --merge round_robin"),
        ((*VIEWS, "--with-duplicates", "--reranker", "views_plugins:Backwards"), "no --reranker"),
        ((*VIEWS, "--until", "expand", "--shard", "1/2"), "an expander gets all queries at once"),
        (("--reranker", "xquad"), "reranker 'xquad' needs aspects: give --expander, and --expand-for aspects"),
        ((*VIEWS, "--reranker", "xquad"), "reranker 'xquad' needs aspects"),
        (("--expander", "views"), "unknown expander 'views'"),
        ((*VIEWS, "--expander-args", "mistake=fewer"), "returned 1 tuples of queries for 2 queries"),
        ((*VIEWS, "--expander-args", "mistake=other"), "returned queries of another question for query 'q1'"),
        ((*VIEWS, "--expander-args", "mistake=same"), "the query_id 'x', which another query has for query 'q2'"),
    ],
)
def test_mistakes_end_in_one_line(tmp_path, plugins, capsys, flags, message):
    task = tmp_path / "task"
    write_task(task)
    retriever = () if "--run" in flags else ("--retriever", "views_plugins:Overlap")
    assert main(["--task", str(task), *retriever, *flags, "--output", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("error:") == 1


def test_old_results_keep_their_folders(tmp_path, plugins):
    task = tmp_path / "task"
    write_task(task)
    config = RunConfig(task=str(task), output=str(tmp_path), cache=str(tmp_path / "c"))
    scores, folder = run(config)
    assert scores["config"]["expander"] is None
    identity = resolve(config).identity
    from benchmarks.plan import essence

    assert not {"expander", "reranker", "merge"} & essence(identity).keys()
    assert Path(folder).is_dir()

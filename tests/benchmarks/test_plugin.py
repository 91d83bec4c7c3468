"""Plug-ins as strangers bring them: an installed package, packages that clash or are broken, and import paths."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PASSAGES = {
    "p1": "solar power is cheap",
    "p2": "solar panels use land",
    "p3": "wind power is loud",
    "p4": "wind farms kill birds",
    "p5": "wind power is cheap",
}
QUESTIONS = {"q1": ("is solar power cheap", "cheap", "land"), "q2": ("Wind birds", "cheap", "birds")}
QRELS = ["q1 q1.1 p1 1", "q1 q1.2 p2 1", "q2 q2.1 p5 1", "q2 q2.2 p4 1"]
RUN = {"q1": "p5 p1 p2", "q2": "p3 p4 p5"}
METRICS = ("--metrics", "MRecall@2", "MRecall@3", "Precision@1", "Precision@2", "CoverageDepth", "--k", "2")


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    def means(self, *names: str) -> list[float | None]:
        assert self.code == 0, self.err
        scores = json.loads(self.out)["scores"]
        return [scores[name]["mean"] for name in names]


@pytest.fixture
def bench(tmp_path):
    """Calls the command line in a process of its own, with folders of plug-ins on the Python path."""

    def call(*arguments: object, path: tuple[Path, ...] = ()) -> Outcome:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT))),
            "PYTHONDONTWRITEBYTECODE": "1",
            "RETRIEVAL_DIVERSITY_CACHE": str(tmp_path / "cache"),
        }
        command = [sys.executable, "-m", "benchmarks.run", *map(str, arguments), "--output", str(tmp_path / "results")]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=300)
        return Outcome(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def task(tmp_path):
    folder = tmp_path / "energy"
    folder.mkdir()
    questions = [
        {
            "question_id": name,
            "question": text,
            "perspectives": [{"perspective_id": f"{name}.{i}", "text": each} for i, each in enumerate(views, 1)],
        }
        for name, (text, *views) in QUESTIONS.items()
    ]
    passages = [{"_id": name, "title": "", "text": text} for name, text in PASSAGES.items()]
    for name, lines in (("questions", questions), ("corpus", passages)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "qrels.txt").write_text("\n".join(QRELS) + "\n")
    return folder


@pytest.fixture
def run_file(tmp_path):
    path = tmp_path / "given.trec"
    lines = [f"{q} Q0 {p} {i} {9 - i} given" for q, ids in RUN.items() for i, p in enumerate(ids.split(), 1)]
    path.write_text("\n".join(lines) + "\n")
    return path


def package(folder: Path, name: str, points: dict[str, dict[str, str]], modules: dict[str, str]) -> Path:
    """What an installer leaves behind: modules, and the metadata with the entry points."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = []
    for kind, named in points.items():
        lines += [f"[retrieval_diversity.{kind}]", *(f"{key} = {value}" for key, value in named.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)
    return folder


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """tests/plugin, installed by pip into a folder of its own."""
    assert tuple(map(int, version("setuptools").split(".")[:2])) >= (70, 1), (
        "building a package needs setuptools 70.1 or later: pip install -e '.[test]'"
    )
    source, target = tmp_path_factory.mktemp("source") / "plugin", tmp_path_factory.mktemp("target")
    shutil.copytree(ROOT / "tests" / "plugin", source, ignore=shutil.ignore_patterns("__pycache__", "build", "*-info"))
    flags = ["--no-deps", "--no-build-isolation", "--no-index", "--no-compile", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *flags, "--target", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def test_an_installed_package_is_listed_with_its_source(bench, installed):
    listed = bench("--list", path=(installed,))
    assert listed.code == 0, listed.err
    line = r"^  word_overlap +word_overlap:WordOverlap of package word-overlap-retriever  lower=True$"
    assert re.search(line, listed.out, re.M)
    assert "BROKEN" not in listed.out
    assert "word_overlap" not in bench("--list").out


def test_an_installed_retriever_gets_the_numbers_of_a_hand_calculation(bench, installed, task):
    outcome = bench("--task", task, "--retriever", "word_overlap", *METRICS, "--json", path=(installed,))
    # q1: p1 shares 4 words, p5 3 (unjudged), p3 2 (unjudged), p2 1: .1 at rank 1, .2 at rank 4
    # q2: p4 shares wind and birds, then p3 and p5 share wind, a tie by id: .2 at rank 1, .1 at rank 3
    # MRecall@2: 0, 0; MRecall@3: 0, 1; Precision@1: 1, 1; Precision@2: 1/2, 1/2; CoverageDepth: 4, 3
    assert outcome.means("MRecall@2", "MRecall@3", "Precision@1", "Precision@2") == [0, 0.5, 1, 0.5]
    assert outcome.means("CoverageDepth") == [3.5]
    retriever = json.loads(outcome.out)["config"]["retriever"]
    assert len(retriever.pop("source")) == 32  # a stranger's code counts
    assert retriever == {
        "name": "word_overlap",
        "class": "word_overlap:WordOverlap",
        "version": 1,
        "arguments": {"lower": True},
    }


def test_arguments_reach_an_installed_retriever(bench, installed, task, tmp_path):
    own = ("--retriever", "word_overlap", "--retriever-args", "lower=false")
    outcome = bench("--task", task, *own, *METRICS, "--json", path=(installed,))
    # q2 asks for "Wind" and "birds": of these only birds is found, and only in p4
    # MRecall@3: 0, 0; Precision@2: 1/2, 1/2 (one of two places is filled); CoverageDepth: 4, undefined
    assert outcome.means("MRecall@3", "Precision@1", "Precision@2", "CoverageDepth") == [0, 1, 0.5, 4]
    (folder,) = (tmp_path / "results").glob("*/*/*/scores.json")
    assert folder.parent.parent == tmp_path / "results" / "energy" / "energy"
    assert folder.parent.name.startswith("word_overlap-")
    wrong = bench("--task", task, "--retriever", "word_overlap", "--retriever-args", "lowr=1", path=(installed,))
    assert (wrong.code, wrong.out) == (2, "")
    assert wrong.err == (
        "error: retriever 'word_overlap': no argument 'lowr' (did you mean 'lower'?); valid arguments: lower=True\n"
    )


def test_the_tests_of_the_package_pass_where_it_is_installed(installed, tmp_path):
    shutil.copy(ROOT / "tests" / "plugin" / "test_word_overlap.py", tmp_path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(installed), str(ROOT)])}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_word_overlap.py"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_two_packages_with_one_name_are_refused_when_the_name_is_chosen(bench, task, tmp_path):
    module = "class Twin:\n    def index(self, corpus):\n        raise RuntimeError\n"
    one = package(tmp_path / "one", "one-package", {"retrievers": {"twin": "first:Twin"}}, {"first": module})
    two = package(tmp_path / "two", "two-package", {"retrievers": {"twin": "second:Twin"}}, {"second": module})
    chosen = bench("--task", task, "--retriever", "twin", path=(one, two))
    assert (chosen.code, chosen.out) == (2, "")
    assert chosen.err == (
        "error: two retrievers are called 'twin': first:Twin of package one-package and second:Twin of package "
        "two-package; uninstall one, or choose by import path (module:Class)\n"
    )
    listed = bench("--list", path=(one, two))
    assert re.search(r"^  twin .*one-package and .*two-package  BROKEN: two retrievers are called", listed.out, re.M)
    other = bench("--task", task, "--retriever", "bm25", "--metrics", "Covered", "--json", path=(one, two))
    # bm25 finds p1, p2, p3, p5 for q1, and p3, p4, p5 for q2: everything with a word of the question
    assert other.means("Covered") == [1]


def test_a_package_cannot_take_the_place_of_a_built_in_retriever(bench, task, tmp_path):
    taken = package(tmp_path / "taken", "taker", {"retrievers": {"bm25": "taker:BM25"}}, {"taker": "class BM25: ..."})
    chosen = bench("--task", task, "--retriever", "bm25", path=(taken,))
    assert chosen.code == 2
    assert "two retrievers are called 'bm25': built in and taker:BM25 of package taker" in chosen.err
    direct = bench("--task", task, "--retriever", "retrievers.bm25:BM25", *METRICS, "--json", path=(taken,))
    assert direct.means("Precision@1") == [1]  # p1 has all words of q1, p4 all of q2


BROKEN = {
    "imports": ("raise RuntimeError('no\\nluck')\n", "is broken: importing 'broken_imports' raised RuntimeError: no"),
    "syntax": ("class Plugin\n", "is broken: importing 'broken_syntax' raised SyntaxError: expected ':'"),
    "missing": ("import no_such_package.deep\n", "needs 'no_such_package': pip install no_such_package"),
    "name": ("from pathlib import NoSuchThing\n", "raised ImportError: cannot import name 'NoSuchThing'"),
    "attribute": ("import math\nmath.no_such_thing\n", "raised AttributeError: module 'math' has no attribute"),
    "empty": ("", "module 'broken_empty' has no 'Plugin'"),
    "number": ("Plugin = 1\n", "'broken_number:Plugin' is no class"),
    "exits": ("import sys\nsys.exit(3)\n", "is broken: importing 'broken_exits' raised SystemExit: 3"),
}


@pytest.fixture
def broken(tmp_path):
    points = {name: f"broken_{name}:Plugin" for name in BROKEN} | {"gone": "broken_gone:Plugin"}
    modules = {f"broken_{name}": text for name, (text, _) in BROKEN.items()}
    return package(tmp_path / "broken", "broken-package", {"retrievers": points}, modules)


def test_broken_plugins_are_listed_with_their_reasons_and_harm_nobody(bench, broken, task):
    listed = bench("--list", path=(broken,))
    assert (listed.code, listed.err) == (0, "")
    lines = {line.split()[0]: line for line in listed.out.splitlines()}
    reasons = {name: reason for name, (_, reason) in BROKEN.items()}
    reasons["gone"] = "there is no module 'broken_gone' on the Python path"
    for name, reason in reasons.items():
        assert f"broken_{name}:Plugin of package broken-package  BROKEN: retriever '{name}'" in lines[name]
        assert reason in lines[name]
    assert bench("--task", task, *METRICS, "--json", path=(broken,)).means("Precision@1") == [1]  # as above


@pytest.mark.parametrize("name", ["imports", "syntax", "missing", "attribute"])
def test_a_broken_plugin_ends_in_one_line_when_it_is_chosen(bench, broken, task, name):
    chosen = bench("--task", task, "--retriever", name, path=(broken,))
    assert (chosen.code, chosen.out) == (2, "")
    assert chosen.err.startswith(f"error: retriever '{name}' ")
    assert BROKEN[name][1] in chosen.err
    assert chosen.err.count("\n") == 1


MINE = '''
"""One plug-in of each kind."""

from corpora.memory import MemoryCorpus
from corpora.types import Hit, Passage, Perspective, Question
from evaluator.types import Judgement


class Descending:
    """Finds the last passages of the alphabet, whatever was asked."""

    def index(self, corpus):
        self.ids = sorted((p.passage_id for p in corpus), reverse=True)
        return self

    def search(self, queries, k):
        return [tuple(Hit(each, -float(i)) for i, each in enumerate(self.ids[:k])) for _ in queries]


class Pair(MemoryCorpus):
    """The passages p1 and p4, and others that nobody looked at."""

    def __init__(self, others: int = 1) -> None:
        self.others = others
        names = ["p1", "p4", *(f"other{i}" for i in range(others))]
        super().__init__(Passage(name, f"text of {name}") for name in names)


class LastFirst:
    """Puts the last n of the ranking first, and leaves the rest to the pipeline."""

    def __init__(self, n: int = 1) -> None:
        self.n = n

    def rerank(self, pools):
        return [tuple(reversed(pool.ranking[-self.n :])) for pool in pools]


class Mentions:
    """Supported is what is mentioned; of loud passages it cannot tell."""

    def __init__(self, yes: float = 0.9) -> None:
        self.yes = yes

    def render(self, pair):
        return f"{pair.perspective.text} | {pair.passage.text}"

    def judge(self, pairs):
        for i, pair in reversed(list(enumerate(pairs))):
            if "loud" in pair.passage.text:
                yield i, Judgement("unparsed", None, "what?")
            else:
                yield i, Judgement("ok", self.yes if pair.perspective.text in pair.passage.text else 0.1)


class Single:
    """One question, about which p2 and p1 disagree."""

    name = "single"
    macro = False

    def __init__(self, question: str = "q1") -> None:
        self.question = question

    @property
    def questions(self):
        return (Question(self.question, "solar?", (Perspective("yes", "cheap"), Perspective("no", "land"))),)

    @property
    def qrels(self):
        return {self.question: {"yes": {"p1": 1}, "no": {"p2": 1, "p1": 0}}}
'''


@pytest.fixture
def mine(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "mine.py").write_text(MINE)
    return folder


def test_a_retriever_by_import_path(bench, mine, task, tmp_path):
    outcome = bench("--task", task, "--retriever", "mine:Descending", *METRICS, "--json", path=(mine,))
    # both questions: p5 p4 p3 p2 p1. q1: .2 by p2 at rank 4, .1 by p1 at rank 5; q2: .1 by p5 at 1, .2 by p4 at 2
    # MRecall@2: 0, 1; Precision@1: 0, 1; Precision@2: 0, 1; CoverageDepth: 5, 2
    assert outcome.means("MRecall@2", "Precision@1", "Precision@2", "CoverageDepth") == [0.5, 0.5, 0.5, 3.5]
    (found,) = (tmp_path / "results" / "energy" / "energy").iterdir()
    assert re.fullmatch(r"mine-Descending-[0-9a-f]{10}", found.name)


def test_a_corpus_by_import_path(bench, mine, task, tmp_path):
    corpus = ("--corpus", "mine:Pair", "--corpus-args", "others=2")
    own = ("--retriever", "mine:Descending", "--metrics", "Precision@2", "Precision@4", "Judged@4", "StRecall@4")
    outcome = bench("--task", task, *corpus, *own, "--json", path=(mine,))
    # both questions: p4 p1 other1 other0; q1 knows p1 and not p4, q2 knows p4 and not p1
    # Precision@2: 1/2, 1/2; Precision@4: 1/4, 1/4; Judged@4: 1/4, 1/4; StRecall@4: 1/2, 1/2
    assert outcome.means("Precision@2", "Precision@4", "Judged@4", "StRecall@4") == [0.5, 0.25, 0.25, 0.5]
    assert (tmp_path / "results" / "energy" / "mine-Pair").is_dir()


def test_a_reranker_by_import_path(bench, mine, task, run_file):
    given = ("--task", task, "--run", run_file, *METRICS, "--json")
    # q1: p5 (a hole), p1 (.1), p2 (.2); q2: p3 (a hole), p4 (.2), p5 (.1)
    # MRecall@2: 0, 0; Precision@1: 0, 0; Precision@2: 1/2, 1/2; CoverageDepth: 3, 3
    names = ("MRecall@2", "Precision@1", "Precision@2", "CoverageDepth")
    assert bench(*given).means(*names) == [0, 0, 0.5, 3]
    one = bench(*given, "--reranker", "mine:LastFirst", path=(mine,))
    # q1: p2 p5 p1; q2: p5 p3 p4: the first is right, the second a hole, the third completes
    assert one.means(*names) == [0, 1, 0.5, 3]
    two = bench(*given, "--reranker", "mine:LastFirst", "--reranker-args", "n=2", path=(mine,))
    # q1: p2 p1 p5; q2: p5 p4 p3
    assert two.means(*names) == [1, 1, 1, 2]
    assert json.loads(two.out)["config"]["reranker"]["arguments"] == {"n": 2}


def test_a_judge_by_import_path(bench, mine, task, run_file, tmp_path):
    given = ("--task", task, "--run", run_file, "--judge", "mine:Mentions", *METRICS)
    judged = bench(*given, "--until", "judge", path=(mine,))
    assert judged.code == 0, judged.err
    # 2 questions x 2 passages x 2 perspectives for Precision@2; CoverageDepth needs land of p2, and cheap of p5, which
    # is a pair of both questions: the other perspectives are covered by then
    assert "judge: 10 pairs needed, 1 reused, 9 judged\n" in judged.err
    outcome = bench(*given, "--json", path=(mine,))
    # q1: p5 cheap, p1 cheap, p2 land: covered at rank 3, all three right
    # q2: p3 is loud (unparsed, twice), p4 birds, p5 cheap: covered at rank 3, the first unknown
    # MRecall@2: 0, 0; Precision@1: 1, 0; Precision@2: 1, 1/2; CoverageDepth: 3, 3
    assert outcome.means("MRecall@2", "Precision@1", "Precision@2", "CoverageDepth") == [0, 0.5, 0.75, 3]
    assert json.loads(outcome.out)["labels"] == {
        "depth": 100,
        "full_depth": 2,
        "pairs": 10,
        "ok": 8,
        "unparsed": 2,
        "unjudged": 0,
        "skipped": 2,
    }
    (provenance,) = (tmp_path / "results").glob("*/*/*/provenance.json")
    assert json.loads(provenance.read_text())["history"][0]["judging"] == {
        "needed": 10,
        "reused": 10,
        "judged": 0,
        "ahead": 0,
        "cost_usd": 0.0,
    }
    doubtful = bench(*given, "--judge-args", "yes=0.4", "--json", path=(mine,))
    assert doubtful.means("MRecall@3", "Precision@1") == [0, 0]  # 0.4 is below the threshold of 0.5
    assert bench(*given, "--judge-args", "yes=0.4", "--threshold", "0.4", "--json", path=(mine,)).means(
        "Precision@2"
    ) == [0.75]


def test_a_task_by_import_path(bench, mine, run_file, tmp_path):
    outcome = bench("--task", "mine:Single", "--run", run_file, *METRICS, "--json", path=(mine,))
    # q1 alone: p5 (a hole), p1 (yes), p2 (no)
    assert outcome.means("MRecall@2", "MRecall@3", "Precision@2", "CoverageDepth") == [0, 1, 0.5, 3]
    assert (tmp_path / "results" / "single").is_dir()
    other = bench("--task", "mine:Single", "--task-args", "question=q9", "--run", run_file, *METRICS, path=(mine,))
    assert other.code == 2
    assert "expected ids such as 'q9'" in other.err
    assert other.err.count("\n") == 1


def test_all_kinds_by_the_names_of_entry_points(bench, tmp_path):
    points = {
        "tasks": {"my-task": "mine:Single"},
        "corpora": {"my-corpus": "mine:Pair"},
        "retrievers": {"my-retriever": "mine:Descending"},
        "rerankers": {"my-reranker": "mine:LastFirst"},
        "judges": {"my-judge": "mine:Mentions"},
    }
    path = (package(tmp_path / "all", "all-kinds", points, {"mine": MINE}),)
    chosen = [
        word for kind in ("task", "corpus", "retriever", "reranker", "judge") for word in (f"--{kind}", f"my-{kind}")
    ]
    outcome = bench(*chosen, "--metrics", "Precision@1", "StRecall@3", "--json", path=path)
    # the corpus is p1, p4, other0; retrieved p4 p1 other0, reranked other0 p4 p1; the judge looks for "cheap" and
    # "land" in "text of ...", where neither stands
    assert outcome.means("Precision@1", "StRecall@3") == [0, 0]
    assert (tmp_path / "results" / "single" / "my-corpus").is_dir()
    (found,) = (tmp_path / "results" / "single" / "my-corpus").iterdir()
    assert re.fullmatch(r"my-retriever\+my-reranker-[0-9a-f]{10}", found.name)
    listed = bench("--list", path=path).out
    assert all(f"  {name} " in listed for named in points.values() for name in named)


@pytest.mark.parametrize(
    "flags, reason",
    [
        (("--retriever", "mine:Descnding"), "module 'mine' has no 'Descnding'"),
        (("--retriever", "nowhere:Thing"), "there is no module 'nowhere' on the Python path"),
        (("--retriever", "mine:"), "module 'mine' has no ''"),
        (("--retriever", "descending"), "unknown retriever 'descending'"),
        (("--judge", "mine:Mentions", "--judge-args", "yes=high"), "yes=high: expected a number"),
        (("--reranker", "mine:LastFirst", "--reranker-args", "n=x", "m=2"), "n=x: expected a whole number"),
    ],
)
def test_wrong_import_paths_and_arguments_end_in_one_line(bench, mine, task, flags, reason):
    outcome = bench("--task", task, *flags, path=(mine,))
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: ")
    assert reason in outcome.err
    assert outcome.err.count("\n") == 1

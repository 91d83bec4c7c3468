"""BM25 against bm25s called plainly with full score arrays, and against the formula worked by hand."""

import json
import math
import random
import subprocess
import sys
from collections import defaultdict

import bm25s
import numpy as np
import pytest
import Stemmer

from corpora.jsonl import Jsonl
from corpora.memory import MemoryCorpus
from corpora.types import Hit, Passage, Query
from retrievers.bm25 import BM25, METHODS
from tests.conftest import DATA

PERSPECTRUM = DATA / "perspectrum"
needs_perspectrum = pytest.mark.skipif(not PERSPECTRUM.exists(), reason="needs the public data (see CONTRIBUTING.md)")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RETRIEVAL_DIVERSITY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def queries(*texts):
    return [Query(f"q{i}", f"q{i}", text) for i, text in enumerate(texts)]


def corpus_of(*texts):
    return MemoryCorpus(Passage(f"p{i}", text) for i, text in enumerate(texts))


def ids(ranking):
    return [hit.passage_id for hit in ranking]


def random_corpus(n=300, words=40, seed=0):
    """Few words and short texts, so that equal scores are common; identifiers are not in row order."""
    rng = random.Random(seed)
    names = rng.sample(range(10 * n), n)
    texts = [" ".join(f"w{rng.randrange(words)}x" for _ in range(rng.randrange(1, 5))) for _ in range(n)]
    return MemoryCorpus(Passage(f"d{name}", text) for name, text in zip(names, texts, strict=True))


def reference(corpus, texts, k, stemmer=None, stop_words="english", **arguments):
    """Rankings from bm25s' own tokeniser and full score arrays, sorted in Python by score and identifier."""
    quiet = {"show_progress": False, "stopwords": stop_words, "stemmer": stemmer and Stemmer.Stemmer(stemmer)}
    tokens = bm25s.tokenize([f"{p.title} {p.text}".strip() for p in corpus], return_ids=False, **quiet)
    model = bm25s.BM25(backend="numpy", **arguments)
    model.index(tokens, show_progress=False)
    names, sets = [p.passage_id for p in corpus], [set(text) for text in tokens]
    rankings = []
    for words in bm25s.tokenize(texts, return_ids=False, **quiet):
        scores = model.get_scores(words) if words else np.zeros(len(names))
        has = [not text.isdisjoint(words) for text in sets]
        found = [Hit(name, float(s)) for name, s, one in zip(names, scores, has, strict=True) if one and s > 0]
        rankings.append(tuple(sorted(found, key=lambda hit: (-hit.score, hit.passage_id))[:k]))
    return rankings


def test_scores_of_three_passages_by_hand():
    index = BM25().index(corpus_of("wind power", "wind wind turbines spin", "coal"))
    (ranking,) = index.search(queries("Wind turbines?"), 10)
    # N = 3, lengths 2, 4, 1, mean 7/3. idf(t) = ln(1 + (N - df + 0.5) / (df + 0.5)): wind df 2, turbines df 1.
    wind, turbines = math.log(1 + 1.5 / 2.5), math.log(1 + 2.5 / 1.5)
    # tf / (tf + k1 (1 - b + b length / mean)), k1 = 1.5, b = 0.75
    norm = {"p0": 1.5 * (0.25 + 0.75 * 2 / (7 / 3)), "p1": 1.5 * (0.25 + 0.75 * 4 / (7 / 3))}
    expected = {
        "p1": wind * 2 / (2 + norm["p1"]) + turbines * 1 / (1 + norm["p1"]),
        "p0": wind * 1 / (1 + norm["p0"]),
    }
    assert ids(ranking) == ["p1", "p0"]
    assert {hit.passage_id: hit.score for hit in ranking} == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("k", [1, 3, 10, 50, 1000])
def test_equals_bm25s_with_ties_by_identifier(method, k):
    corpus = random_corpus()
    rng = random.Random(1)
    texts = [" ".join(f"w{rng.randrange(44)}x" for _ in range(rng.randrange(1, 4))) for _ in range(30)]
    texts += ["w1x w1x w2x", "w43x", "the and of", ""]
    found = BM25(method=method, k1=1.2, b=0.6).index(corpus).search(queries(*texts), k)
    expected = reference(corpus, texts, k, method=method, k1=1.2, b=0.6)
    assert found == expected
    assert any(len({h.score for h in ranking}) < len(ranking) for ranking in found) or k == 1


@pytest.mark.parametrize("stemmer", [None, "english"])
@pytest.mark.parametrize("stop_words", [None, "english", "german"])
def test_words_are_those_of_bm25s(stemmer, stop_words):
    corpus = MemoryCorpus(
        [
            Passage("a", "The runner's RUNNING shoes, running-shoes and 2nd-hand e-bikes; Straße naïve ÉTÉ"),
            Passage("b", "Und die Läufer liefen; they ran and the run was run", "Runners"),
            Passage("c", "速度限制可以挽救生命 Ограничение скорости \n\t snake_case x y z"),
        ]
    )
    texts = [
        "running",
        "The runs",
        "strasse straße",
        "été läufer die",
        "скорости",
        "速度限制可以挽救生命",
        "2nd bikes snake_case",
    ]
    found = BM25(stemmer=stemmer, stop_words=stop_words).index(corpus).search(queries(*texts), 10)
    assert found == reference(corpus, texts, 10, stemmer, stop_words)
    assert found[4]


def test_ties_at_the_cut_go_by_identifier():
    rng = random.Random(0)
    names = [f"t{i:04d}" for i in range(2000)]
    rng.shuffle(names)
    corpus = MemoryCorpus([*(Passage(name, "equal text") for name in names), Passage("z", "equal equal text text")])
    (ranking,) = BM25().index(corpus).search(queries("equal"), 100)
    assert ids(ranking) == ["z", *sorted(names)[:99]]
    assert len({hit.score for hit in ranking[1:]}) == 1


def test_only_matching_passages_are_returned():
    corpus = corpus_of("apple pie", "banana bread", "", "the of and", "apple")
    for method in METHODS:
        index = BM25(method=method).index(corpus)
        found = index.search(queries("apple", "unseen", "", "the of", "!?", "a", "unseen banana"), 100)
        assert [sorted(ids(ranking)) for ranking in found] == [["p0", "p4"], [], [], [], [], [], ["p1"]], method


@pytest.mark.parametrize("texts", [["apple"], [""], ["the"], ["", "the of", "?"], ["apple", "apple"]])
def test_smallest_corpora(texts):
    index = BM25().index(corpus_of(*texts))
    found = index.search(queries("apple", "the", ""), 5)
    assert [ids(ranking) for ranking in found] == [[f"p{i}" for i, t in enumerate(texts) if t == "apple"], [], []]
    assert index.search(queries("apple"), 0) == [()]


def test_a_corpus_without_passages_finds_nothing(recwarn):
    for method in METHODS:
        assert BM25(method=method).index(MemoryCorpus()).search(queries("apple", ""), 5) == [(), ()]
    assert not recwarn.list


def test_title_is_searched_as_if_in_front_of_the_text():
    titled = MemoryCorpus([Passage("a", "is a fruit", "Apple"), Passage("b", "is a vegetable", "Leek")])
    joined = MemoryCorpus([Passage("a", "Apple is a fruit"), Passage("b", "Leek is a vegetable")])
    wanted = queries("apple fruit", "leek")
    assert BM25().index(titled).search(wanted, 5) == BM25().index(joined).search(wanted, 5)
    assert ids(BM25(title=False).index(titled).search(wanted, 5)[1]) == []


def test_rankings_do_not_depend_on_threads_or_batches():
    corpus = random_corpus(seed=3)
    wanted = queries(*(f"w{i}x w{i // 2}x w{i % 7}x" for i in range(40)))
    whole = BM25(stemmer="english").index(corpus).search(wanted, 20)
    index = BM25(stemmer="english", threads=4).index(corpus)
    assert index.search(wanted, 20) == whole
    assert [index.search([query], 20)[0] for query in wanted] == whole
    assert index.search(wanted[::-1], 20)[::-1] == whole
    assert index.search([], 20) == []


def test_one_index_for_each_content_and_index_argument(cache):
    corpus = random_corpus()
    BM25().index(corpus)
    BM25(threads=8).index(MemoryCorpus(list(corpus)))
    assert len(list((cache / "index").iterdir())) == 1
    BM25(b=0.5).index(corpus)
    BM25(stop_words=None).index(corpus)
    BM25().index(random_corpus(seed=9))
    assert len(list((cache / "index").iterdir())) == 4


def test_an_index_is_opened_and_not_built_again(monkeypatch):
    corpus, wanted = random_corpus(), queries("w1x w2x")
    first = BM25().index(corpus).search(wanted, 10)
    monkeypatch.setattr(bm25s.BM25, "index", None)
    assert BM25().index(corpus).search(wanted, 10) == first


def test_index_is_the_same_in_every_process(tmp_path):
    code = (
        "import sys, pathlib\n"
        "from corpora.memory import MemoryCorpus\nfrom corpora.types import Passage\nfrom retrievers.bm25 import BM25\n"
        "BM25(stemmer='english').index(MemoryCorpus([Passage('a', 'one two three'), Passage('b', 'two ones five')]))\n"
    )
    contents = []
    for seed in ("1", "2"):
        env = {"RETRIEVAL_DIVERSITY_CACHE": str(tmp_path / seed), "PYTHONHASHSEED": seed, "PATH": ""}
        subprocess.run([sys.executable, "-c", code], check=True, env=env)
        files = sorted(p for p in (tmp_path / seed / "index").rglob("*") if p.is_file())
        contents.append([(p.relative_to(tmp_path / seed), p.read_bytes()) for p in files])
    assert contents[0] == contents[1]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"method": "bm26"}, "method 'bm26' is unknown: expected one of lucene, robertson"),
        ({"stemmer": "klingon"}, "stemmer 'klingon' is unknown: expected one of arabic"),
        ({"stop_words": "klingon"}, "stop_words 'klingon' is unknown"),
    ],
)
def test_wrong_arguments_are_named_when_used(arguments, message, cache):
    retriever = BM25(**arguments)
    with pytest.raises(ValueError, match=message):
        retriever.index(corpus_of("text"))
    assert not cache.exists()


def perspectrum():
    gold = defaultdict(lambda: defaultdict(set))
    for line in (PERSPECTRUM / "qrels.txt").read_text(encoding="utf-8").splitlines():
        question_id, perspective_id, passage_id, relevance = line.split()
        if int(relevance) > 0:
            gold[question_id][perspective_id].add(passage_id)
    lines = (PERSPECTRUM / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines], gold


@pytest.mark.data
@needs_perspectrum
@pytest.mark.parametrize("k, mrecall, precision", [(5, 27.03, 48.11), (10, 28.38, 37.03)])
def test_perspectrum_gives_the_independent_values(k, mrecall, precision):
    questions, gold = perspectrum()
    wanted = [Query(q["question_id"], q["question_id"], q["question"]) for q in questions]
    rankings = BM25().index(Jsonl(PERSPECTRUM)).search(wanted, k)
    recalls, precisions = [], []
    for question, ranking in zip(questions, rankings, strict=True):
        supports, top, m = gold[question["question_id"]], set(ids(ranking)), len(question["perspectives"])
        n = sum(bool(top & supports[p["perspective_id"]]) for p in question["perspectives"])
        recalls.append(n >= k if m > k else n == m)
        precisions.append(len(top & set().union(*supports.values())) / k)
    assert len(questions) == 222
    assert 100 * np.mean(recalls) == pytest.approx(mrecall, abs=0.005)
    assert 100 * np.mean(precisions) == pytest.approx(precision, abs=0.005)


@pytest.mark.data
@needs_perspectrum
def test_perspectrum_equals_bm25s():
    corpus = Jsonl(PERSPECTRUM)
    texts = [question["question"] for question in perspectrum()[0]]
    assert BM25(stemmer="english").index(corpus).search(queries(*texts), 100) == reference(
        corpus, texts, 100, "english"
    )

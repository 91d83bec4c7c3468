"""rank-bm25 against the formula worked by hand and the package called plainly."""

import math
import random

import bm25s
import pytest
import rank_bm25 as package

from corpora.memory import MemoryCorpus
from corpora.types import Hit, Passage, Query
from retrievers import rank_bm25
from retrievers.bm25 import BM25
from retrievers.rank_bm25 import RankBM25

CLASSES = {"okapi": package.BM25Okapi, "plus": package.BM25Plus, "l": package.BM25L}


def queries(*texts):
    return [Query(f"q{i}", f"q{i}", text) for i, text in enumerate(texts)]


def corpus_of(*texts):
    return MemoryCorpus(Passage(f"p{i}", text) for i, text in enumerate(texts))


def random_corpus(n=200, words=40):
    rng = random.Random(0)
    names = rng.sample(range(10 * n), n)
    texts = [" ".join(f"w{rng.randrange(words)}x" for _ in range(rng.randrange(1, 5))) for _ in range(n)]
    return MemoryCorpus(Passage(f"d{name}", text) for name, text in zip(names, texts, strict=True))


def test_okapi_score_by_hand():
    (ranking,) = RankBM25().index(corpus_of("wind power", "coal coal mine shaft", "sun")).search(queries("wind"), 5)
    # N = 3, df = 1: idf = ln(2.5 / 1.5); length 2, mean 7/3; tf (k1 + 1) / (tf + k1 (1 - b + b length / mean))
    expected = math.log(2.5 / 1.5) * 2.5 / (1 + 1.5 * (0.25 + 0.75 * 2 / (7 / 3)))
    assert ranking == (Hit("p0", pytest.approx(expected)),)


@pytest.mark.parametrize("variant", CLASSES)
@pytest.mark.parametrize("k", [1, 5, 1000])
def test_equals_the_package_with_ties_by_identifier(variant, k):
    corpus = random_corpus()
    texts = [f"w{i}x w{i * 3 % 40}x the w{i // 3}x" for i in range(25)] + ["w5x w5x", "w99x", "the", ""]
    tokens = bm25s.tokenize([p.text for p in corpus], return_ids=False, show_progress=False)
    model = CLASSES[variant](tokens, k1=1.2, b=0.6)
    found = RankBM25(variant=variant, k1=1.2, b=0.6).index(corpus).search(queries(*texts), k)
    for text, ranking in zip(texts, found, strict=True):
        words = [word for word in text.split() if word != "the"]
        scores = zip(corpus, model.get_scores(words), tokens, strict=True)
        hits = [Hit(p.passage_id, float(score)) for p, score, has in scores if set(has) & set(words)]
        assert ranking == tuple(sorted(hits, key=lambda hit: (-hit.score, hit.passage_id))[:k])


def test_passages_with_a_word_of_the_query_match_whatever_their_score():
    corpus = corpus_of("apple pie", "apple tart", "apple cake", "")
    for variant in CLASSES:
        found = RankBM25(variant=variant).index(corpus).search(queries("apple", "tart", "plum", "", "the"), 9)
        expected = [["p0", "p1", "p2"], ["p1"], [], [], []]
        assert [[hit.passage_id for hit in ranking] for ranking in found] == expected
    (alone,) = RankBM25().index(corpus_of("apple")).search(queries("apple"), 9)
    assert alone[0].score < 0  # ln(0.5 / 1.5), times a quarter: below zero, and yet the best


@pytest.mark.parametrize("texts", [[""], ["the", "?"]])
def test_a_corpus_without_words_matches_nothing(texts):
    assert RankBM25().index(corpus_of(*texts)).search(queries("apple", ""), 5) == [(), ()]


def test_the_passages_found_are_those_of_bm25(tmp_path, monkeypatch):
    monkeypatch.setenv("RETRIEVAL_DIVERSITY_CACHE", str(tmp_path))
    corpus, wanted = random_corpus(), queries("w1x w2x", "w7x the", "w3x w30x w12x", "unseen")
    ours = RankBM25(stemmer="english").index(corpus).search(wanted, 1000)
    theirs = BM25(stemmer="english").index(corpus).search(wanted, 1000)
    found = [[sorted(hit.passage_id for hit in ranking) for ranking in rankings] for rankings in (ours, theirs)]
    assert found[0] == found[1]
    assert [bool(names) for names in found[0]] == [True, True, True, False]


def test_large_corpora_are_warned_of_in_one_line(monkeypatch):
    monkeypatch.setattr(rank_bm25, "SMALL", 3)
    with pytest.warns(UserWarning, match=r"keeps all of 4 passages in memory .*: bm25 is far faster") as caught:
        RankBM25().index(corpus_of(*"abcd"))
    assert "\n" not in str(caught[0].message)


def test_unknown_variant_is_named_when_used():
    retriever = RankBM25(variant="bm26")
    with pytest.raises(ValueError, match="variant 'bm26' is unknown: expected one of okapi, plus, l"):
        retriever.index(corpus_of("text"))

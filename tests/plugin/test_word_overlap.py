from word_overlap import WordOverlap

from corpora.memory import MemoryCorpus
from corpora.types import Hit, Passage, Query
from retrievers.checks import check_retriever


def test_word_overlap_keeps_every_promise():
    check_retriever(WordOverlap)
    check_retriever(WordOverlap(lower=False))


def test_passages_are_ranked_by_words_in_common():
    passages = [Passage("b", "a tax on fuel"), Passage("a", "fuel TAX"), Passage("c", "trains and buses")]
    found = WordOverlap().index(MemoryCorpus(passages)).search([Query("q", "q", "a fuel tax")], 5)
    assert found == [(Hit("b", 3.0), Hit("a", 2.0))]

"""A run file as a retriever."""

import gzip

import pytest

from corpora.lines import InputError
from corpora.memory import MemoryCorpus
from corpora.types import Hit, Query
from retrievers.runfile import RunFile

RUN = "a Q0 p3 1 9.5 tag\na Q0 p1 2 8 tag\na Q0 p2 3 7 tag\nb Q0 p1 1 1 tag\n"
QUERIES = [
    Query("b", "b", "text"),
    Query("a", "a", "text"),
    Query("absent", "absent", "text"),
    Query("a:1", "a", "other", "supporting"),
]


@pytest.mark.parametrize("compress", [False, True])
def test_answers_by_question_and_cuts_at_k(tmp_path, compress):
    path = tmp_path / ("run.trec.gz" if compress else "run.trec")
    path.write_bytes(gzip.compress(RUN.encode()) if compress else RUN.encode())
    index = RunFile(path).index(MemoryCorpus())
    a = (Hit("p3", 9.5), Hit("p1", 8.0), Hit("p2", 7.0))
    b = (Hit("p1", 1.0),)
    assert index.search(QUERIES, 10) == [b, a, (), a]
    assert index.search(QUERIES, 2) == [b, a[:2], (), a[:2]]
    assert index.search(QUERIES, 0) == [(), (), (), ()]
    assert index.search([], 5) == []


def test_bad_files_are_named_when_used(tmp_path):
    absent = RunFile(tmp_path / "absent.trec")
    with pytest.raises(InputError, match=r"absent\.trec"):
        absent.index(MemoryCorpus())
    (tmp_path / "bad.trec").write_text("a Q0 p3 1 9.5 tag\na Q0 p1\n")
    with pytest.raises(InputError, match=r"bad\.trec:2"):
        RunFile(tmp_path / "bad.trec").index(MemoryCorpus())

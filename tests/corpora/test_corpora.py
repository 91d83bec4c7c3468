"""The corpus plug-ins on BEIR files and the built-in collection."""

import gzip
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from corpora import stored
from corpora.base import Corpus
from corpora.demo import Demo
from corpora.jsonl import Jsonl
from corpora.lines import InputError
from corpora.memory import MemoryCorpus
from corpora.types import Passage
from tests.conftest import DATA

PASSAGES = [Passage(f"p{i}", f"text {i}", "title", "") for i in range(30)]
ROOT = Path(__file__).parents[2]
DEMO = ROOT / "corpora" / "demo"
PERSPECTRUM = DATA / "perspectrum"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RETRIEVAL_DIVERSITY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write(path, passages=PASSAGES):
    lines = "".join(json.dumps({"_id": p.passage_id, "title": p.title, "text": p.text}) + "\n" for p in passages)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(lines.encode()) if path.suffix == ".gz" else lines.encode())
    return path


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz"])
def test_jsonl_of_a_file_and_of_its_folder(tmp_path, name):
    file = write(tmp_path / "data" / name)
    memory = MemoryCorpus(PASSAGES)
    for path in (file, file.parent):
        corpus = Jsonl(path)
        assert isinstance(corpus, Corpus)
        assert corpus.path is path
        assert list(corpus) == PASSAGES
        assert len(corpus) == 30
        assert corpus.fingerprint == memory.fingerprint
        assert corpus.get(["p7"]) == [PASSAGES[7]]
        assert corpus.ids([2, 1]) == ["p2", "p1"]
        assert corpus.for_question("any") is corpus
        assert list(corpus.part(0, 1)) == PASSAGES
        assert corpus.part(0, 1).fingerprint == corpus.fingerprint


def test_jsonl_parts_are_jsonl(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "build_store", lambda *a, **k: real(*a, **{**k, "block_rows": 10}))
    from corpora.store import build_store as real

    corpus = Jsonl(write(tmp_path / "corpus.jsonl"))
    parts = [corpus.part(i, 2) for i in range(2)]
    assert [len(part) for part in parts] == [10, 20]
    assert [p for part in parts for p in part] == PASSAGES == list(corpus)
    assert all(isinstance(part, Jsonl) for part in parts)


def test_constructor_reads_and_writes_nothing(tmp_path, cache):
    corpus = Jsonl(tmp_path / "absent")
    assert not cache.exists()
    with pytest.raises(InputError, match="absent: no such file or folder"):
        len(corpus)


def test_the_store_is_built_once_for_a_content(tmp_path, monkeypatch, cache):
    calls = []
    monkeypatch.setattr(stored, "build_store", lambda *a, **k: calls.append(1) or real(*a, **k))
    from corpora.store import build_store as real

    file = write(tmp_path / "corpus.jsonl")
    first = Jsonl(file).fingerprint
    assert Jsonl(write(tmp_path / "copy" / "other.jsonl")).fingerprint == first
    assert len(calls) == 1
    write(file, PASSAGES[:-1])
    assert Jsonl(file).fingerprint == MemoryCorpus(PASSAGES[:-1]).fingerprint != first
    assert len(calls) == 2
    assert len(list((cache / "store").iterdir())) == 2


def test_bad_input_is_named_and_leaves_no_artefact(tmp_path, cache):
    write(tmp_path / "corpus.jsonl", [*PASSAGES, PASSAGES[3]])
    with pytest.raises(InputError, match=r"corpus\.jsonl: passage identifier 'p3' is on lines 4 and 31"):
        Jsonl(tmp_path).fingerprint  # noqa: B018
    (tmp_path / "corpus.jsonl").write_text('{"_id": "a"}\n')
    with pytest.raises(InputError, match=r"corpus\.jsonl:1"):
        Jsonl(tmp_path).fingerprint  # noqa: B018
    assert list((cache / "store").iterdir()) == []
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="the folder has neither of"):
        len(Jsonl(tmp_path / "empty"))
    write(tmp_path / "corpus.jsonl.gz")
    with pytest.raises(InputError, match="the folder has both of"):
        len(Jsonl(tmp_path))


def test_demo_is_a_module_beside_a_folder_of_the_same_name(tmp_path):
    assert importlib.import_module("corpora.demo").__file__ == str(ROOT / "corpora" / "demo.py")
    assert not (DEMO / "__init__.py").exists()
    folder = tmp_path / "package"
    (folder / "demo").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "demo.py").write_text("HERE = True\n")
    (folder / "demo" / "corpus.jsonl").write_text("")
    code = "import package.demo as d; print(d.HERE, d.__file__.endswith('demo.py'))"
    found = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True", "True"]


def test_demo_outside_the_checkout_finds_its_folder(tmp_path):
    code = "from corpora.demo import Demo; d = Demo(); print(d.path)"
    found = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert Path(found.stdout.strip()) == DEMO


def test_demo_reads_its_folder(tmp_path, monkeypatch):
    write(tmp_path / "demo" / "corpus.jsonl")
    monkeypatch.setattr("corpora.demo.__file__", str(tmp_path / "demo.py"))
    corpus = Demo()
    assert list(corpus) == PASSAGES
    assert corpus.task == "demo"


@pytest.mark.skipif(not (DEMO / "corpus.jsonl").exists(), reason="the built-in collection has no texts yet")
def test_the_built_in_collection_can_be_read():
    corpus = Demo()
    ids = [json.loads(line)["_id"] for line in (DEMO / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [passage.passage_id for passage in corpus] == ids


@pytest.mark.data
@pytest.mark.skipif(not PERSPECTRUM.exists(), reason="needs the public data (see CONTRIBUTING.md)")
def test_perspectrum_is_read_whole():
    corpus = Jsonl(PERSPECTRUM)
    records = [json.loads(line) for line in (PERSPECTRUM / "corpus.jsonl").open(encoding="utf-8")]
    assert len(corpus) == len(records) == 3964
    assert [(p.passage_id, p.text) for p in corpus] == [(r["_id"], r["text"]) for r in records]
    assert corpus.get(["e4134"])[0].text.startswith("60% of middle school boys")

"""Data sets of the hub, from local folders in the hub's forms (there is no network in tests)."""

import json

import pytest

pytest.importorskip("datasets")
import pyarrow as pa
import pyarrow.parquet as pq

from corpora.base import Corpus
from corpora.hub import Hub
from corpora.lines import InputError
from corpora.memory import MemoryCorpus
from corpora.types import Passage

ROWS = [{"docid": i, "body": f"text {i}", "head": f"title {i}" if i % 2 else None} for i in range(20)]
PASSAGES = [Passage(str(i), f"text {i}", f"title {i}" if i % 2 else "") for i in range(20)]
COLUMNS = {"id_column": "docid", "text_column": "body", "title_column": "head"}


@pytest.fixture
def jsonl(tmp_path):
    folder = tmp_path / "jsonl"
    folder.mkdir()
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return folder


def test_json_and_parquet_give_the_same_corpus(tmp_path, jsonl):
    parquet = tmp_path / "parquet"
    parquet.mkdir()
    pq.write_table(pa.Table.from_pylist(ROWS), parquet / "train-00000-of-00001.parquet")
    for folder in (jsonl, parquet):
        corpus = Hub(str(folder), **COLUMNS)
        assert "into a passage store" in corpus.pending()
        assert list(corpus) == PASSAGES
        assert isinstance(corpus, Corpus)
        assert corpus.pending() is None
        assert corpus.commit is None
        assert corpus.fingerprint == MemoryCorpus(PASSAGES).fingerprint
        assert corpus.get(["7"]) == [PASSAGES[7]]
        assert corpus.span.stop == len(corpus) == 20


def test_wrong_columns_are_named_with_those_there_are(jsonl):
    with pytest.raises(InputError, match="no column id_column=_id, url_column=link: it has docid, body, head") as error:
        len(Hub(str(jsonl), text_column="body", url_column="link"))
    assert "\n" not in str(error.value)


def test_wrong_split_and_wrong_rows_are_one_line(jsonl):
    with pytest.raises(InputError, match="split"):
        len(Hub(str(jsonl), split="corpus", **COLUMNS))
    with pytest.raises(InputError, match="row 1: head = None, expected a text"):
        len(Hub(str(jsonl), id_column="docid", text_column="head"))
    with pytest.raises(InputError, match="row 1: body = 'text 0', expected an id of one word"):
        len(Hub(str(jsonl), id_column="body", text_column="body"))


def test_a_changed_folder_is_read_again(jsonl):
    first = Hub(str(jsonl), **COLUMNS).fingerprint
    (jsonl / "train.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
    corpus = Hub(str(jsonl), **COLUMNS)
    assert len(corpus) == 1
    assert corpus.fingerprint != first


def test_offline_without_a_commit_is_one_line(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(
        InputError, match="commit is not known and HF_HUB_OFFLINE=1 forbids asking: give revision=COMMIT"
    ):
        Hub("nobody/nothing").pending()
    commit = "0123456789" * 4
    corpus = Hub("nobody/nothing", revision=commit)
    assert corpus.commit == commit
    assert commit in corpus.pending()


def test_a_branch_is_resolved_once_and_kept(monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    commit, asked = "abcdef0123" * 4, []

    class Api:
        def dataset_info(self, dataset, revision):
            asked.append((dataset, revision))
            return type("Info", (), {"sha": commit})()

    monkeypatch.setattr("corpora.hub.HfApi", Api)
    assert Hub("some/set", revision="main").commit == commit
    assert Hub("some/set", revision="main").commit == commit
    assert asked == [("some/set", "main")]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert Hub("some/set", revision="main").commit == commit

"""The passage store, against plain lists and dictionaries."""

import gzip
import hashlib
import json
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corpora import store as store_module
from corpora.memory import MemoryCorpus
from corpora.records import read_passages
from corpora.store import PassageStore, build_store
from corpora.types import Passage

PASSAGES = [
    Passage(f"p{i * 37 % 100}", f"Text {i} ☃", f"Title {i}" if i % 2 else "", f"http://x/{i}") for i in range(100)
]


def built(passages, folder, **arguments):
    folder.mkdir(exist_ok=True)
    build_store(passages, folder, **arguments)
    hash_id = {key: value for key, value in arguments.items() if key == "hash_id"}
    return PassageStore(folder, **hash_id)


def test_holds_what_it_was_given(tmp_path):
    store = built(iter(PASSAGES), tmp_path)
    assert len(store) == 100
    assert list(store) == PASSAGES
    assert store.get(["p37", "p0", "p37"]) == [PASSAGES[1], PASSAGES[0], PASSAGES[1]]
    assert store.get([]) == []
    assert store.ids([99, 0]) == [PASSAGES[99].passage_id, "p0"]
    assert store.ids(np.array([1], dtype=np.int32)) == ["p37"]
    assert store.for_question("q") is store


def test_fingerprint_is_the_sha256_of_the_documented_bytes(tmp_path):
    store = built([Passage("a", "tö", "T", "u"), Passage("b", "")], tmp_path)
    data = struct.pack("<4I", 1, 1, 3, 1) + b"aTt\xc3\xb6u" + struct.pack("<4I", 1, 0, 0, 0) + b"b"
    assert store.fingerprint == hashlib.sha256(data).hexdigest()


def test_fingerprint_depends_on_content_and_order_alone(tmp_path):
    first = built(PASSAGES, tmp_path / "a").fingerprint
    assert built(PASSAGES, tmp_path / "b", block_rows=7).fingerprint == first
    assert MemoryCorpus(PASSAGES).fingerprint == first
    lines = [json.dumps({"text": p.text, "_id": p.passage_id, "title": p.title, "url": p.url}) for p in PASSAGES]
    (tmp_path / "c.jsonl").write_text("\n".join(lines))
    (tmp_path / "d.jsonl.gz").write_bytes(gzip.compress("\n\n".join(lines).encode()))
    assert built(read_passages(tmp_path / "c.jsonl"), tmp_path / "c").fingerprint == first
    assert built(read_passages(tmp_path / "d.jsonl.gz"), tmp_path / "d").fingerprint == first


@pytest.mark.parametrize(
    "other",
    [
        [Passage("a", "xy", "z", "u"), Passage("b", "t")],
        [Passage("a", "y", "zx", "u"), Passage("b", "t")],
        [Passage("a", "x", "z", "uy"), Passage("b", "t")],
        [Passage("ax", "y", "z", "u"), Passage("b", "t")],
        [Passage("b", "t"), Passage("a", "x y", "z", "u")],
        [Passage("a", "x y", "z", "u"), Passage("b", "t"), Passage("c", "")],
    ],
)
def test_fingerprint_sees_every_change(other):
    assert (
        MemoryCorpus(other).fingerprint != MemoryCorpus([Passage("a", "x y", "z", "u"), Passage("b", "t")]).fingerprint
    )


@pytest.mark.parametrize("make", [PassageStore, MemoryCorpus])
def test_unknown_identifier_is_named(make, tmp_path):
    corpus = built(PASSAGES, tmp_path) if make is PassageStore else MemoryCorpus(PASSAGES)
    with pytest.raises(KeyError, match=r"no passage 'nowhere' in this corpus of 100 passages \(its first is 'p0'\)"):
        corpus.get(["p1", "nowhere"])
    with pytest.raises(KeyError, match="no passage"):
        corpus.get([""])
    with pytest.raises(KeyError, match="no passage"):
        corpus.get(["\ud800"])
    for row in (-1, 100):
        with pytest.raises(IndexError, match="rows 0 to 99"):
            corpus.ids([row])


def both_fail(passages, folder, message):
    with pytest.raises(ValueError, match=message) as error:
        build_store(passages, folder)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=message):
        MemoryCorpus(passages)


def test_bad_identifiers_are_refused_with_their_line(tmp_path):
    good = [Passage("a", ""), Passage("b", "")]
    both_fail([*good, Passage("a", "other")], tmp_path, r"'a' is on lines 1 and 3")
    both_fail([*good, Passage("", "x")], tmp_path, r"line 3: the passage identifier '' is empty")
    both_fail([*good, Passage("a b", "x")], tmp_path, r"line 3: the passage identifier 'a b' has white space")
    both_fail([*good, Passage("c\n", "x")], tmp_path, r"line 3: .* has white space")
    both_fail([Passage("a", "\ud800")], tmp_path, r"line 1: passage 'a' has half a surrogate pair")


def test_the_first_of_several_duplicates_is_named(tmp_path):
    names = [f"n{i}" for i in range(50)]
    passages = [Passage(name, "") for name in [*names, "n40", "n3", "n40"]]
    both_fail(passages, tmp_path, r"'n40' is on lines 41 and 51")


def test_an_empty_corpus_is_refused_on_disk(tmp_path):
    with pytest.raises(ValueError, match="the corpus is empty"):
        build_store([], tmp_path)


@pytest.mark.parametrize(
    "bad_hash", [lambda data: 0, lambda data: 2**64 - 1, lambda data: len(data), lambda data: data[-1]]
)
@pytest.mark.parametrize("sort_rows", [1 << 25, 8])
def test_colliding_hashes_do_no_harm(tmp_path, monkeypatch, bad_hash, sort_rows):
    monkeypatch.setattr(store_module, "_SORT_ROWS", sort_rows)
    store = built(PASSAGES, tmp_path / "a", hash_id=bad_hash)
    assert [store.get([p.passage_id])[0] for p in PASSAGES] == PASSAGES
    with pytest.raises(KeyError):
        store.get(["p100"])
    (tmp_path / "b").mkdir()
    with pytest.raises(ValueError, match=r"'p0' is on lines 1 and 101"):
        build_store([*PASSAGES, Passage("p0", "again")], tmp_path / "b", hash_id=bad_hash)


def test_sorting_in_several_passes_gives_the_same_files(tmp_path, monkeypatch):
    built(PASSAGES, tmp_path / "a")
    monkeypatch.setattr(store_module, "_SORT_ROWS", 9)
    built(PASSAGES, tmp_path / "b")
    files = sorted(file.name for file in (tmp_path / "a").iterdir())
    assert files == ["hashes.u64", "offsets.u64", "records.bin", "rows.u64", "store.json"]
    assert all((tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes() for name in files)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 10, 40])
def test_parts_are_the_corpus_cut_at_blocks(tmp_path, n):
    store, memory = built(PASSAGES, tmp_path, block_rows=10), MemoryCorpus(PASSAGES, block_rows=10)
    parts = [store.part(i, n) for i in range(n)]
    assert [passage for part in parts for passage in part] == PASSAGES
    assert all(len(part) % 10 == 0 for part in parts)
    for part, twin in zip(parts, (memory.part(i, n) for i in range(n)), strict=True):
        assert list(part) == list(twin)
        assert part.fingerprint == twin.fingerprint
        ids = [passage.passage_id for passage in part]
        assert part.ids(range(len(part))) == ids
        assert part.get(ids) == list(part)
    filled = [part for part in parts if len(part)]
    assert len({part.fingerprint for part in filled}) == len(filled)
    assert parts[0].fingerprint == store.fingerprint or n > 1


def test_a_part_knows_its_own_passages_alone(tmp_path):
    store = built(PASSAGES, tmp_path, block_rows=10)
    part = store.part(1, 10)
    with pytest.raises(KeyError, match="corpus of 10 passages"):
        part.get([PASSAGES[0].passage_id])
    with pytest.raises(IndexError):
        part.ids([10])
    assert part.part(0, 1).fingerprint == part.fingerprint
    assert list(store.part(1, 2).part(1, 5)) == PASSAGES[60:70]
    nested = MemoryCorpus(PASSAGES, block_rows=10).part(1, 2).part(1, 5)
    assert store.part(1, 2).part(1, 5).fingerprint == nested.fingerprint
    with pytest.raises(ValueError, match="part 3 of 3: expected a part from 0 to 2"):
        store.part(3, 3)


def test_damaged_and_foreign_folders_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"holds no passage store: store\.json is missing"):
        PassageStore(tmp_path)
    built(PASSAGES, tmp_path)
    (tmp_path / "rows.u64").write_bytes(b"")
    with pytest.raises(ValueError, match=r"rows\.u64 does not have 800 bytes: the store is damaged"):
        PassageStore(tmp_path)
    meta = json.loads((tmp_path / "store.json").read_text())
    (tmp_path / "store.json").write_text(json.dumps({**meta, "format": 99}))
    with pytest.raises(ValueError, match="format 99, expected 1"):
        PassageStore(tmp_path)


def test_progress_counts_every_passage(tmp_path):
    counts = []
    built(PASSAGES, tmp_path, block_rows=30, progress=counts.append)
    assert counts == [30, 30, 30, 10]


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
IDS = st.text(st.characters(exclude_categories=["Cs", "Z", "C"]), min_size=1, max_size=5)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(IDS, st.tuples(TEXT, TEXT, TEXT), min_size=1, max_size=30), st.integers(1, 9))
def test_any_text_comes_back_unchanged(tmp_path, content, block_rows):
    passages = [Passage(passage_id, *fields) for passage_id, fields in content.items()]
    store = built(passages, tmp_path, block_rows=block_rows)
    assert list(store) == passages
    assert store.get(list(content)[::-1]) == passages[::-1]
    assert store.fingerprint == MemoryCorpus(passages).fingerprint

"""The segment store (corpora/segments.py): what is published stays, whoever is killed, in whatever order it is read."""

import itertools
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora import _segment_files, segments
from corpora.segments import Segments

SCHEMA = pa.schema([("number", pa.float64()), ("text", pa.dictionary(pa.int32(), pa.string()))])

PUBLISHER = """
import sys
from pathlib import Path
import numpy as np, pyarrow as pa
from corpora import _segment_files
from corpora.segments import Segments
SCHEMA = pa.schema([("number", pa.float64()), ("text", pa.dictionary(pa.int32(), pa.string()))])
folder, writer, mode = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
store = Segments(folder, SCHEMA, resident=("number",))
if mode == "compact":
    _segment_files.GRACE_S = -1.0
for block in range(int(sys.argv[4])):
    print("start", block, flush=True)
    # "overlap": the same keys from every writer, with values of its own
    first = block * 16 if mode == "overlap" else (writer * 1000000 + block) * 16
    keys = [i.to_bytes(16, "big") for i in range(first, first + 16)]
    values = [i + writer / 8 for i in range(first, first + 16)]
    store.publish(keys, {"number": values, "text": [f"{v} by {writer}" for v in values]})
    print("done", block, flush=True)
    if mode == "compact" and block % 3 == 2:
        store.compact()
        store.refresh()
"""


def publisher(folder, writer, mode, blocks):
    command = [sys.executable, "-c", PUBLISHER, str(folder), str(writer), mode, str(blocks)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def key(number):
    return number.to_bytes(16, "big")


def columns(numbers, texts=None):
    return {"number": numbers, "text": texts or [str(number) for number in numbers]}


def contents(store):
    """All records by key, read through the public look-up."""
    keys = store.keys()
    found, table = store.get(keys)
    assert found.all()
    return dict(zip(map(bytes, keys), map(tuple, (row.values() for row in table.to_pylist())), strict=True))


@pytest.fixture
def store(tmp_path):
    return Segments(tmp_path / "store", SCHEMA, resident=("number",))


def test_published_records_are_found_and_others_are_not(store):
    path = store.publish([key(3), key(1)], {"number": [0.1, None], "text": ["Yes", None]})
    assert path.parent == store.folder
    store.refresh()
    assert len(store) == 2
    assert store.keys().tolist() == [list(key(1)), list(key(3))]
    found, table = store.get([key(2), key(3), key(1), key(3)])
    assert found.tolist() == [False, True, True, True]
    yes, nothing = {"number": 0.1, "text": "Yes"}, {"number": None, "text": None}
    assert table.to_pylist() == [yes, nothing, yes]
    found, values = store.lookup([key(1), key(2), key(3)], ("number",))
    assert found.tolist() == [True, False, True]
    assert np.array_equal(values["number"], [np.nan, 0.0, 0.1], equal_nan=True)
    assert store.get([], None)[1].num_rows == 0
    assert store.get([key(1)], ["text"])[1].column_names == ["text"]


def test_file_name_is_the_hash_of_its_content(store):
    import hashlib

    path = store.publish([key(1)], columns([0.5]))
    assert path.name == hashlib.sha256(path.read_bytes()).hexdigest() + ".arrow"
    assert os.listdir(store.folder) == [path.name]


def test_embeddings_and_bytes_are_kept_exactly(tmp_path):
    schema = pa.schema([("vector", pa.list_(pa.float32(), 4)), ("reply", pa.large_binary())])
    store = Segments(tmp_path, schema)
    vectors = np.random.default_rng(0).standard_normal((300, 4)).astype(np.float32)
    for start in (0, 100, 200):
        rows = range(start, start + 100)
        store.publish([key(i) for i in rows], {"vector": vectors[rows], "reply": [b"\0" * i for i in rows]})
    store.compact()
    store.refresh()
    order = np.random.default_rng(1).permutation(300)
    _, table = store.get([key(int(i)) for i in order])
    read = np.stack(table.column("vector").to_numpy())
    assert read.dtype == np.float32
    assert read.tobytes() == vectors[order].tobytes()
    assert [len(reply) for reply in table.column("reply").to_pylist()] == order.tolist()


# Keys whose first halves, or last halves, are the same test the search beyond the first 64 bits.
KEYS = [struct.pack(">QQ", high, low) for high in (0, 1, 2**64 - 1) for low in (0, 1, 2, 2**63, 2**64 - 1)]
RECORDS = st.tuples(
    st.sampled_from(KEYS), st.none() | st.floats(allow_nan=False), st.sampled_from([None, "", "Yes", "No", "é"])
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(RECORDS, min_size=1, max_size=8), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_every_order_of_reading_gives_the_same_records(blocks, chance):
    with tempfile.TemporaryDirectory() as made:
        origin, results = Path(made) / "origin", []
        paths = [
            Segments(origin, SCHEMA).publish([r[0] for r in b], columns([r[1] for r in b], [r[2] for r in b]))
            for b in blocks
        ]
        for attempt in range(3):
            store = Segments(Path(made) / str(attempt), SCHEMA, resident=("number",))
            store.folder.mkdir()
            for path in chance.sample(paths, len(paths)):
                shutil.copy(path, store.folder)
                if attempt:
                    store.refresh()
            store.refresh()
            results.append(contents(store))
        writer = Segments(Path(made) / "compacted", SCHEMA)
        for block in chance.sample(blocks, len(blocks)):
            writer.publish([r[0] for r in block], columns([r[1] for r in block], [r[2] for r in block]))
        writer.compact()
        results.append(contents(Segments(writer.folder, SCHEMA).load()))
    assert all(result == results[0] for result in results)
    published = list(itertools.chain(*blocks))
    assert results[0].keys() == {record[0] for record in published}
    assert {(k, *v) for k, v in results[0].items()} <= set(published)


def test_duplicates_are_counted(store):
    store.publish([key(1), key(2)], columns([1.0, 2.0]))
    store.publish([key(2), key(3), key(3)], columns([2.5, 3.0, 3.0]))
    report = store.verify()
    assert (report.segments, report.records, report.duplicates, report.damaged) == (2, 5, 2, {})


def test_processes_that_write_the_same_keys_are_resolved_alike(tmp_path):
    writers = [publisher(tmp_path / "s", writer, "overlap", 10) for writer in range(4)]
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    first = Segments(tmp_path / "s", SCHEMA).load()
    report = first.verify()
    assert (report.segments, report.records, report.duplicates) == (40, 640, 480)
    expected = contents(first)
    for k, (number, text) in expected.items():
        assert int(number) == int.from_bytes(k, "big")
        assert text == f"{number} by {int(number % 1 * 8)}"
    assert len({text.split()[-1] for _, text in expected.values()}) > 1  # no writer wins by being first
    files = sorted((tmp_path / "s").iterdir())
    for seed in range(2):
        other = Segments(tmp_path / str(seed), SCHEMA)
        other.folder.mkdir()
        for i, file in enumerate(random.Random(seed).sample(files, len(files))):
            shutil.copy(file, other.folder)
            if i % 7 == 0:
                other.refresh()
        other.refresh()
        assert contents(other) == expected


@pytest.mark.slow
def test_kills_lose_at_most_the_block_that_was_being_written(tmp_path):
    chance = random.Random(0)
    for writer in range(20):
        process = publisher(tmp_path, writer, "plain", 10**6)
        lines = [process.stdout.readline()]
        time.sleep(chance.uniform(0, 0.1))
        process.kill()
        lines += process.communicate()[0].splitlines()
        done = sum(line.startswith("done") for line in lines)
        started = sum(line.startswith("start") for line in lines)
        store = Segments(tmp_path, SCHEMA).load()
        assert store.damaged == {}
        first = writer * 1_000_000 * 16
        found, table = store.get([key(i) for i in range(first, first + 16 * started)])
        assert found[: 16 * done].all()
        assert started - done <= 1
        for i, row in zip(np.flatnonzero(found).tolist(), table.to_pylist(), strict=True):
            number = first + i + writer / 8
            assert row == {"number": number, "text": f"{number} by {writer}"}


@pytest.mark.slow
def test_readers_see_everything_while_writers_compact_and_delete(tmp_path):
    writers = [publisher(tmp_path, writer, "compact", 150) for writer in range(2)]
    reader = Segments(tmp_path, SCHEMA, resident=("number",))
    seen = rounds = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        while any(writer.poll() is None for writer in writers):
            rounds += 1
            reader.refresh()
            keys = reader.keys()
            found, table = reader.get(keys)
            assert found.all()
            assert table.column("number").to_numpy().astype(int).tolist() == [int.from_bytes(k, "big") for k in keys]
            assert len(reader) >= seen
            seen = len(reader)
        assert [writer.wait() for writer in writers] == [0, 0]
        expected = {(w * 1_000_000 + b) * 16 + i for w in range(2) for b in range(150) for i in range(16)}
        reader.refresh()
        keys = reader.keys()
        assert {int.from_bytes(k, "big") for k in keys} == expected
        report = reader.verify()
    assert (report.records, report.duplicates, report.damaged) == (2 * 150 * 16, 0, {})
    assert len(os.listdir(tmp_path)) < 100  # of 300 blocks and 100 merged segments
    assert rounds > 3


def test_compaction_replaces_own_segments_and_keeps_them_for_a_while(store, monkeypatch):
    other = Segments(store.folder, SCHEMA).publish([key(9)], columns([9.0]))
    own = [store.publish([key(i), key(i + 1)], columns([i, 0.5])) for i in range(4)]
    store.refresh()
    before = contents(store)
    store.compact()
    merged = [path for path in store.folder.iterdir() if path.name.endswith(".merged.arrow")]
    assert len(merged) == 1
    assert all(path.exists() for path in own)
    assert store.refresh() == 1
    report = store.verify()
    assert (report.segments, report.records, report.duplicates) == (2, 6, 0)
    assert contents(store) == before
    monkeypatch.setattr(_segment_files, "GRACE_S", -1.0)
    store.compact()
    assert sorted(store.folder.iterdir()) == sorted([other, *merged])
    assert contents(store) == before == contents(Segments(store.folder, SCHEMA).load())


def test_replaced_segments_stay_while_the_merged_one_is_damaged(store, monkeypatch):
    for i in range(3):
        store.publish([key(i)], columns([float(i)]))
    store.compact()
    store.load()
    (merged,) = (path for path in store.folder.iterdir() if path.name.endswith(".merged.arrow"))
    merged.write_bytes(merged.read_bytes()[:-1])
    monkeypatch.setattr(_segment_files, "GRACE_S", -1.0)
    with pytest.warns(UserWarning, match=merged.name):
        store.compact()
    assert len(os.listdir(store.folder)) == 4
    with pytest.warns(UserWarning, match=merged.name):
        assert len(Segments(store.folder, SCHEMA).load()) == 3


def test_compaction_that_fails_halfway_loses_nothing(store, monkeypatch):
    for i in range(3):
        store.publish([key(i)], columns([float(i)]))

    def killed(path, data):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_segment_files, "write_atomic", killed)
        with pytest.raises(KeyboardInterrupt):
            store.compact()
    assert len(Segments(store.folder, SCHEMA).load()) == 3
    store.compact()
    assert Segments(store.folder, SCHEMA).load().verify().segments == 1


def test_many_short_sessions_do_not_rewrite_everything_each_time(store, monkeypatch):
    written = []
    write = _segment_files.write_atomic

    def counted(path, data):
        written.append(len(data))
        write(path, data)

    monkeypatch.setattr(_segment_files, "write_atomic", counted)
    n = 64
    for session in range(n):
        store.publish([key(100 * session + i) for i in range(100)], columns([float(i) for i in range(100)]))
        store.compact()
    block = written[0]
    assert sum(written) < n * block * 12  # quadratic rewriting would be about n * n / 2 = 32 n blocks
    assert len(store.load()) == 100 * n


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "garbage"])
def test_damaged_file_is_named_once_and_skipped(store, damage):
    good = store.publish([key(1)], columns([1.0]))
    bad = store.publish([key(2)], columns([2.0]))
    data = bytearray(bad.read_bytes())
    data[len(data) // 2] ^= 1
    bad.write_bytes({"flip": bytes(data), "truncate": data[:-7], "empty": b"", "garbage": b"\xff" * 99}[damage])
    reader = Segments(store.folder, SCHEMA)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        reader.load()
        reader.refresh()
        report = reader.verify()
    assert [bad.name in str(warning.message) for warning in caught] == [True]
    assert (report.segments, report.records, list(report.damaged)) == (1, 1, [bad.name])
    assert reader.get([key(1), key(2)])[0].tolist() == [True, False]
    assert sorted(store.folder.iterdir()) == sorted([good, bad])


def test_every_single_bit_flip_is_noticed(store):
    path = store.publish([key(1)], columns([1.0]))
    data = path.read_bytes()
    for bit in range(0, len(data) * 8, 97):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bytes(flipped))
        with pytest.warns(UserWarning, match="do not have the hash"):
            assert len(Segments(store.folder, SCHEMA).load()) == 0
    path.write_bytes(data)
    assert len(Segments(store.folder, SCHEMA).load()) == 1


def test_foreign_files_and_other_columns_do_not_disturb(store):
    store.publish([key(1)], columns([1.0]))
    for name in ("README.md", ".nfs0001", ".tmp-x", "notes.arrow", f"{'0' * 64}.arrow.bak"):
        (store.folder / name).write_text("hello")
    (store.folder / "folder").mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(store.load()) == 1
    Segments(store.folder, pa.schema([("other", pa.int8())])).publish([key(5)], {"other": [1]})
    with pytest.warns(UserWarning, match="its columns are"):
        assert len(store.load()) == 1


def test_missing_folder_is_empty(store):
    assert len(store.load()) == 0
    assert store.keys().shape == (0, 16)
    assert store.verify().segments == 0
    assert store.get([key(1)])[0].tolist() == [False]
    store.compact()
    assert not store.folder.exists()


def test_unwritable_folder_is_one_clear_line(tmp_path):
    (tmp_path / "file").write_text("")
    store = Segments(tmp_path / "file", SCHEMA)
    with pytest.raises(ValueError, match=r"^cannot write to .*file \(.*\): choose another place"):
        store.publish([key(1)], columns([1.0]))
    with pytest.raises(ValueError, match="cannot read the folder"):
        store.load()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_folder_can_be_read(store):
    store.publish([key(1)], columns([1.0]))
    store.folder.chmod(0o555)
    try:
        with pytest.raises(ValueError, match="cannot write to"):
            store.publish([key(2)], columns([2.0]))
        assert len(store.load()) == 1
    finally:
        store.folder.chmod(0o755)


def test_later_duplicates_are_resolved_as_by_a_reader_that_starts_anew(store):
    store.publish([key(i) for i in range(200)], columns([1.0] * 200))
    store.refresh()
    asked = [key(i) for i in range(20)]
    store.publish(asked, columns([2.0] * 20, ["same"] * 20))
    store.refresh()
    anew = Segments(store.folder, SCHEMA, resident=("number",)).load()
    assert len(anew) == 200
    records = store.get(asked)[1].to_pylist()
    assert records == anew.get(asked)[1].to_pylist()
    assert store.lookup(asked, ("number",))[1]["number"].tolist() == [record["number"] for record in records]
    for i in range(20, 40):  # one more each: whichever wins, some keys go to the first record and some to the later
        store.publish([key(i)], columns([float(i)]))
    store.refresh()
    asked = [key(i) for i in range(40)]
    records = store.get(asked)[1].to_pylist()
    assert records == anew.load().get(asked)[1].to_pylist()
    assert {record["number"] == 1.0 for record in records} == {True, False}


def test_interrupted_refresh_is_repeated_from_the_start(store, monkeypatch):
    for i in range(3):
        store.publish([key(i)], columns([float(i)]))
    store.refresh()
    store.publish([key(3)], columns([3.0]))

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(segments, "_stack", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.refresh()
    store.refresh()
    assert len(store) == 4


def test_answers_shared_by_many_records_stay_small_when_merged(store):
    """Merging must not write out a repeated text once per record."""
    for block in range(4):
        keys = [key(1000 * block + i) for i in range(1000)]
        store.publish(keys, {"number": [0.5] * 1000, "text": ["long " * 1000, "other"] * 500})
    store.compact()
    store.refresh()
    (merged,) = store.folder.glob("*.merged.arrow")
    assert merged.stat().st_size < 4000 * 64 + 5000 * 2
    assert store.get([key(3000), key(1)], ["text"])[1].to_pylist() == [{"text": "long " * 1000}, {"text": "other"}]


def test_deletion_by_hand_brings_back_the_record_that_had_lost(store):
    paths = [store.publish([key(1)], columns([value])) for value in (1.0, 2.0)]
    store.refresh()
    ((winner, _),) = contents(store).values()
    paths[int(winner) - 1].unlink()
    store.refresh()
    ((left, _),) = contents(store).values()
    assert {winner, left} == {1.0, 2.0}


def test_wrong_input_is_refused(store):
    for keys, values, message in [
        ([b"short"], columns([1.0]), "16 bytes"),
        ([b""], columns([1.0]), "16 bytes"),
        (np.zeros((2, 15), np.uint8), columns([1.0, 2.0]), "uint8"),
        ([key(1)], {"number": [1.0]}, "expected"),
        ([key(1)], columns([1.0, 2.0]), "2 values for 1 keys"),
        ([], columns([]), "at least one"),
    ]:
        with pytest.raises(ValueError, match=message):
            store.publish(keys, values)
    assert not store.folder.exists()
    with pytest.raises(ValueError, match="segments hold"):
        Segments(store.folder, pa.schema([("when", pa.timestamp("s"))]))
    with pytest.raises(ValueError, match="own"):
        Segments(store.folder, pa.schema([("key", pa.int8())]))


def test_few_files_stay_open(store, monkeypatch):
    monkeypatch.setattr(segments, "OPEN_FILES", 3)
    for i in range(20):
        store.publish([key(i)], columns([float(i)]))
    store.refresh()
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    assert [value for value, _ in contents(store).values()] == [float(i) for i in range(20)]
    after = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    assert after - before <= 3


def test_merged_segments_name_all_that_they_replace(store):
    """A reader that misses the one in the middle must still skip the first ones."""
    first = [store.publish([key(i)], columns([float(i)])).name for i in range(2)]
    store.compact()
    store.publish([key(7)], columns([7.0]))
    store.compact()
    named = []
    for path in store.folder.glob("*.merged.arrow"):
        metadata = pa.ipc.open_file(path).schema.metadata
        named.append(json.loads(metadata[b"supersedes"]))
    assert set(first) < set(max(named, key=len))
    assert len(max(named, key=len)) == 4

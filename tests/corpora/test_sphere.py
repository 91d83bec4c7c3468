"""Sphere's forms, small: JSONL shards, archives, the metadata of the dense index; samples; the plan."""

import gzip
import io
import json
import pickle
import random
import shutil
import sys
import tarfile
import types
import zlib

import pytest

from corpora import sphere, sphere_files, stored
from corpora.base import Corpus
from corpora.lines import InputError
from corpora.memory import MemoryCorpus
from corpora.sphere import Sphere, draw
from corpora.types import Passage

PASSAGES = [Passage(f"id-{i}", f"text {i}", f"title {i}", f"http://example.org/{i}") for i in range(100)]


def line(p):
    record = {"id": p.passage_id, "url": p.url, "title": p.title, "sha": "x", "raw": p.text, "vector": [0.5, 1.0]}
    return (json.dumps(record) + "\n").encode()


@pytest.fixture
def shards(tmp_path):
    folder = tmp_path / "shards"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(b"".join(map(line, PASSAGES[:40])))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(b"".join(map(line, PASSAGES[40:70]))))
    with tarfile.open(folder / "c.jsonl.tar.gz", "w:gz") as tar:
        data = b"".join(map(line, PASSAGES[70:]))
        info = tarfile.TarInfo("sphere.c.jsonl")
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
        tar.addfile(tarfile.TarInfo("README"))
    return folder


def test_shards_plain_packed_and_in_archives(shards):
    corpus = Sphere("jsonl", shards)
    assert list(corpus) == PASSAGES
    assert isinstance(corpus, Corpus)
    assert corpus.fingerprint == MemoryCorpus(PASSAGES).fingerprint
    assert list(Sphere("jsonl", shards / "a.jsonl")) == PASSAGES[:40]


def test_a_sample_depends_on_the_seed_and_not_on_the_order(shards, tmp_path):
    corpus = Sphere("jsonl", shards, sample=20)
    assert len(corpus) == len({p.passage_id for p in corpus}) == 20
    assert set(corpus) <= set(PASSAGES)
    shuffled = PASSAGES.copy()
    random.Random(3).shuffle(shuffled)
    file = tmp_path / "other.jsonl"
    file.write_bytes(b"".join(map(line, shuffled)))
    assert Sphere("jsonl", file, sample=20).fingerprint == corpus.fingerprint
    assert list(Sphere("jsonl", file, sample=7)) == list(corpus)[:7]
    assert set(Sphere("jsonl", file, sample=20, seed=1)) != set(corpus)
    # the definition itself: the smallest hashes, in their order
    by_hash = sorted(PASSAGES, key=lambda p: sphere_files.hash_of(0, p.passage_id))
    assert list(corpus) == by_hash[:20]
    with pytest.raises(InputError, match="sample=101: there are only 100 passages"):
        len(Sphere("jsonl", file, sample=101))


def test_a_sample_is_uniform():
    """Of 2,000 passages each is drawn with probability 1/4: 40 seeds, 20,000 draws, every tenth part about 2,000."""
    passages = [Passage(str(i), "") for i in range(2000)]
    counts = [0] * 10
    for seed in range(40):
        for passage in draw(passages, 500, seed):
            counts[int(passage.passage_id) // 200] += 1
    # standard deviation of one count: sqrt(40 * 200 * 1/4 * 3/4) = 39; five of them
    assert all(abs(count - 2000) < 195 for count in counts), counts


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b'{"id": "x", "raw": 5}\n', r"a.jsonl:41: found 'raw' = 5, expected a string"),
        (b'{"id": "x"}\n', r"a.jsonl:41: found no field 'text'"),
        (b'{"id": "x y", "raw": "t"}\n', r"a.jsonl:41: found 'id' = 'x y'"),
        (b"not json\n", r"a.jsonl:41: found .* expected valid JSON"),
        (line(PASSAGES[0]), r"shards: passage identifier 'id-0' is on lines 1 and 41"),
    ],
)
def test_errors_name_file_and_line(shards, bad, message):
    with (shards / "a.jsonl").open("ab") as file:
        file.write(bad)
    with pytest.raises(InputError, match=message):
        len(Sphere("jsonl", shards))


def test_errors_inside_an_archive_and_damaged_ones(shards, tmp_path):
    packed = shards / "c.jsonl.tar.gz"
    packed.write_bytes(packed.read_bytes()[:-300])
    with pytest.raises(InputError, match=r"c.jsonl.tar.gz: damaged archive|c.jsonl.tar.gz/sphere.c.jsonl"):
        len(Sphere("jsonl", packed))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"no file that ends in \.jsonl"):
        len(Sphere("jsonl", tmp_path / "empty"))
    with pytest.raises(InputError, match="no such file or folder"):
        len(Sphere("jsonl", tmp_path / "absent"))


def metadata(folder, rows, number):
    place = folder / str(number)
    place.mkdir(parents=True)
    (place / "meta.pkl").write_bytes(pickle.dumps(rows))
    return place / "meta.pkl"


def packed(p, flag=False):
    return (p.passage_id, zlib.compress(p.text.encode()), zlib.compress(p.title.encode()), flag)


def test_passages_of_a_dense_index(tmp_path):
    for number, start in ((0, 0), (2, 20), (10, 40)):  # in the order of the numbers, not of the names
        metadata(tmp_path, [packed(p) for p in PASSAGES[start : start + 20]], number)
    expected = [Passage(p.passage_id, p.text, p.title) for p in PASSAGES[:60]]
    assert list(Sphere("dense", tmp_path)) == expected
    assert list(Sphere("dense", tmp_path, sample=60)) != expected
    assert set(Sphere("dense", tmp_path, sample=60)) == set(expected)


class Evil:
    def __reduce__(self):
        return (print, ("this must not run",))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_metadata_cannot_run_code(tmp_path, capsys, protocol):
    file = metadata(tmp_path, [], 0)
    for value in ([("a", Evil())], Evil(), [types.SimpleNamespace(a=1)], [print], [b"x", complex(1)]):
        file.write_bytes(pickle.dumps(value, protocol))
        with pytest.raises(InputError, match=r"meta.pkl: refused as metadata: it asks for ") as error:
            sphere_files.read_metadata(file)
        assert "\n" not in str(error.value)
    file.write_bytes(b"cos\nsystem\n(S'echo this must not run'\ntR.")
    with pytest.raises(InputError, match=r"refused as metadata: it asks for os\.system"):
        sphere_files.read_metadata(file)
    assert "must not run" not in capsys.readouterr().out


def test_plain_metadata_is_read_in_every_protocol(tmp_path):
    rows = [("a", b"x", "t", True, None, 1.5, 2**70), ["b", {"k": [1, 2]}], 7]
    file = metadata(tmp_path, [], 0)
    for protocol in range(3, pickle.HIGHEST_PROTOCOL + 1):
        file.write_bytes(pickle.dumps(rows, protocol))
        assert sphere_files.read_metadata(file) == rows


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps({"a": 1}), "found dict, expected a list"),
        (pickle.dumps([1, 2, 3])[:-2], "refused as metadata: "),
        (b"\xff\xff", "refused as metadata: "),
        (pickle.dumps([("a b", b"", b"")]), r"row 0 is \('a b', b'', b''\), expected a tuple that begins with an id"),
        (pickle.dumps([("a", b"no zlib", b"")]), "row 0 has 'no zlib' .*, expected a text packed by zlib"),
        (pickle.dumps([("a",)]), r"row 0 is \('a',\), expected \(id, text, title, ...\)"),
    ],
)
def test_wrong_metadata_is_one_line(tmp_path, content, message):
    metadata(tmp_path, [], 0).write_bytes(content)
    with pytest.raises(InputError, match=message):
        len(Sphere("dense", tmp_path))


def test_lucene_passages_come_from_the_stored_fields(tmp_path, monkeypatch):
    """The reader has tests of its own (it needs Java): here only that its passages are taken and sampled."""
    (tmp_path / "sparse").mkdir()
    (tmp_path / "sparse" / "segments_1").write_bytes(b"commit")
    reader = types.ModuleType("corpora.lucene_index")
    reader.read_lucene_passages = lambda path: iter(PASSAGES if path == tmp_path / "sparse" else [])
    reader.lucene_fingerprint = lambda path: path.name
    monkeypatch.setitem(sys.modules, "corpora.lucene_index", reader)
    assert list(Sphere("lucene", tmp_path)) == PASSAGES
    assert len(Sphere("lucene", tmp_path, sample=5)) == 5
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "segments_1").write_bytes(b"commit")
    with pytest.raises(InputError, match="2 Lucene indexes in it"):
        len(Sphere("lucene", tmp_path, sample=6))


def test_the_plan_of_the_whole():
    plan = Sphere().pending()
    assert "\n" not in plan
    assert plan.startswith("download https://dl.fbaipublicfiles.com/sphere/sphere_sparse_index.tar.gz (775.6 GiB)")
    assert "906000000 passages" in plan
    # archive and unpacked index of 775.6 GiB each, and 906 M times 790 bytes = 666.6 GiB
    assert "needs 2.2 TiB of disk" in plan
    # 906,000,000 / 83 / 3,600 = 3,032 hours; 906,000,000 * 768 * 2 bytes = 1,391.6 GB
    assert "no Contriever index of Sphere is published" in plan
    assert "about 3032 GPU hours" in plan
    assert "1391.6 GB in fp16" in plan
    assert "(1.2 TiB)" in Sphere("dense").pending()
    assert "sphere.1M.jsonl.tar.gz" in Sphere("1M").pending()


def test_too_small_a_machine_is_refused_in_one_line(monkeypatch):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(stored.shutil, "disk_usage", lambda path: usage._replace(free=100 << 30))
    with pytest.raises(ValueError, match=r"needs 2\.2 TiB of disk in .*, 100\.0 GiB are free") as error:
        len(Sphere())
    assert "\n" not in str(error.value)
    monkeypatch.setattr(stored.shutil, "disk_usage", lambda path: usage._replace(free=10 << 40))
    monkeypatch.setattr(stored, "memory_available", lambda: 8 << 30)
    # a sample of 100 million is drawn in memory: 100 M times 1,500 bytes and more
    with pytest.raises(ValueError, match=r"needs 14\d\.\d GiB of memory, 8\.0 GiB are available.*smaller sample"):
        len(Sphere(sample=100_000_000))


def test_wrong_arguments():
    with pytest.raises(ValueError, match="source=web: expected one of lucene, dense, jsonl"):
        Sphere("web")
    with pytest.raises(ValueError, match="source=jsonl needs path="):
        Sphere("jsonl")
    with pytest.raises(ValueError, match="sample=0"):
        Sphere(sample=0)


def test_an_archive_cannot_write_outside(tmp_path):
    archive = tmp_path / "x.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("../outside"))
    (tmp_path / "in").mkdir()
    with pytest.raises(InputError, match="damaged archive"):
        sphere_files.unpack(archive, tmp_path / "in")
    assert not (tmp_path / "outside").exists()


def test_large_files_count_by_name_size_and_both_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(sphere_files, "_WHOLE_BYTES", 100)
    monkeypatch.setattr(sphere_files, "_ENDS", 10)
    file = tmp_path / "a"
    file.write_bytes(bytes(200))
    first = sphere_files.files_key([file])
    file.write_bytes(bytes(190) + b"x" * 10)
    assert sphere_files.files_key([file]) != first
    file.write_bytes(bytes(201))
    assert sphere_files.files_key([file]) != first
    file.write_bytes(bytes(200))
    assert sphere_files.files_key([file]) == first
    assert sphere.weaviate("1M").sha256 is None

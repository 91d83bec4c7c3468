"""Vectors on disk: blocks, shards, kills, damage, full disks, and vectors built elsewhere."""

import errno
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, namedtuple
from pathlib import Path

import numpy as np
import pytest

from corpora.artefacts import cache_root
from corpora.base import span_of
from corpora.memory import MemoryCorpus
from corpora.store import PassageStore, build_store
from corpora.types import Passage, Span
from retrievers import encoding
from retrievers.encoding import corpus_vectors, missing_rows
from retrievers.shards import shard_folders, vectors_folder, verify
from retrievers.vectors import cut, open_vectors
from tests.retrievers.fake_encoder import FakeEncoder

ROWS = 37


@pytest.fixture
def corpus(monkeypatch):
    """Ten blocks of four rows, the last one short; identifiers are not in row order."""
    monkeypatch.setattr(encoding, "BLOCK_ROWS", 4)
    return MemoryCorpus([Passage(f"p{i * 17 % 101}", f"w{i} w{i % 5}", "t") for i in range(ROWS)], block_rows=4)


def folder_of(corpus, encoder, dtype="fp32"):
    return vectors_folder(span_of(corpus).fingerprint, encoder.passage_fingerprint, dtype)


def expected(corpus, encoder):
    return np.stack([encoder._vector(f"{p.title} {p.text}") for p in corpus])


def test_span_tells_where_a_part_lies(corpus, tmp_path):
    build_store(corpus, tmp_path, block_rows=4)
    for each in (corpus, PassageStore(tmp_path)):
        assert each.span == Span(corpus.fingerprint, 0, ROWS)
        assert each.part(1, 2).span == Span(corpus.fingerprint, 20, ROWS)
        assert each.part(1, 2).part(1, 2).span == Span(corpus.fingerprint, 28, ROWS)
        assert next(iter(each.part(1, 2))) == list(corpus)[20]

    class Stranger:
        fingerprint = "s"

        def __len__(self):
            return 3

    assert span_of(Stranger()) == Span("s", 0, 3)


def test_cut_at_multiples():
    assert cut(3, 13, 4) == [(3, 4), (4, 8), (8, 12), (12, 13)]
    assert cut(4, 8, 4) == [(4, 8)]
    assert cut(5, 5, 4) == []


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_encodes_once_and_opens(corpus, dtype):
    encoder = FakeEncoder()
    vectors = corpus_vectors(corpus, encoder, dtype)
    assert (len(vectors), vectors.dimension) == (ROWS, 16)
    assert vectors.read(0, ROWS).dtype == {"fp16": np.float16, "fp32": np.float32}[dtype]
    np.testing.assert_array_equal(vectors.take(np.arange(ROWS)), expected(corpus, encoder))  # eighths fit in fp16
    assert vectors.max_norm == pytest.approx(np.linalg.norm(expected(corpus, encoder), axis=1).max())
    assert encoder.encoded == [p.passage_id for p in corpus]
    again = corpus_vectors(corpus, encoder, dtype)
    assert len(encoder.encoded) == ROWS
    assert again.fingerprint == vectors.fingerprint
    folder = folder_of(corpus, encoder, dtype)
    assert [path.name for path in folder.glob("*")] in (["rows-0-37", "blocks"], ["blocks", "rows-0-37"])
    assert not list((folder / "blocks").iterdir())
    assert verify(folder) == 1


def test_any_partition_serves_the_whole_and_each_other(corpus):
    encoder = FakeEncoder()
    corpus_vectors(corpus.part(2, 5), encoder, "fp32")
    corpus_vectors(corpus.part(0, 2), encoder, "fp32")  # overlaps with it
    assert len(encoder.encoded) == len(set(encoder.encoded))
    assert missing_rows(corpus, encoder.passage_fingerprint, "fp32") == [(24, 37)]
    whole = corpus_vectors(corpus, encoder, "fp32")
    assert sorted(encoder.encoded) == sorted(p.passage_id for p in corpus)
    assert [p.name for p in shard_folders(folder_of(corpus, encoder))] == ["rows-0-16", "rows-16-24", "rows-24-37"]
    np.testing.assert_array_equal(whole.read(0, ROWS), expected(corpus, encoder))
    part = corpus_vectors(corpus.part(1, 2), encoder, "fp32")
    assert (part.start, part.stop) == (20, 37)
    np.testing.assert_array_equal(part.take(np.array([36, 20, 30])), expected(corpus, encoder)[[36, 20, 30]])
    assert len(encoder.encoded) == ROWS


def test_blocks_do_not_depend_on_shards(corpus):
    encoder = FakeEncoder()
    for i in range(3):
        corpus_vectors(corpus.part(i, 3), encoder, "fp32")
    vectors = corpus_vectors(corpus, encoder, "fp32")
    assert [(start, len(block)) for start, block in vectors.blocks(16)] == [(0, 16), (16, 16), (32, 5)]


def test_long_ranges_become_several_shards(corpus, monkeypatch):
    monkeypatch.setattr(encoding, "SHARD_ROWS", 16)
    encoder = FakeEncoder()
    vectors = corpus_vectors(corpus, encoder, "fp32")
    assert len(shard_folders(folder_of(corpus, encoder))) == 3
    np.testing.assert_array_equal(vectors.read(0, ROWS), expected(corpus, encoder))


def test_other_corpus_encoder_and_dtype_have_other_vectors(corpus):
    encoders = FakeEncoder(), FakeEncoder(seed=1)
    other = MemoryCorpus([*corpus][:-1], block_rows=4)
    folders = {folder_of(c, e, d) for c in (corpus, other) for e in encoders for d in ("fp16", "fp32")}
    assert len(folders) == 8
    with pytest.raises(ValueError, match="dtype 'int8' is unknown: expected fp16 or fp32"):
        corpus_vectors(corpus, encoders[0], "int8")


def copied(corpus, encoder, other):
    """The shard of ``encoder`` where the vectors of ``other`` should be."""
    corpus_vectors(corpus, encoder, "fp32")
    shutil.copytree(folder_of(corpus, encoder), folder_of(*other))


def test_shard_of_another_encoder_or_corpus_is_refused(corpus):
    encoder, other = FakeEncoder(), FakeEncoder(seed=1)
    copied(corpus, encoder, (corpus, other))
    with pytest.raises(ValueError, match=r"rows-0-37 was made with another encoder: its fingerprint is fake 16 0"):
        corpus_vectors(corpus, other, "fp32")
    second = MemoryCorpus([*corpus][::-1], block_rows=4)
    shutil.copytree(folder_of(corpus, encoder), folder_of(second, encoder))
    with pytest.raises(ValueError, match="was made with another corpus"):
        corpus_vectors(second, encoder, "fp32")
    with pytest.raises(ValueError, match="another encoder"):
        open_vectors(folder_of(corpus, encoder), encoder="else")


def test_damaged_shards_are_refused(corpus):
    encoder = FakeEncoder()
    corpus_vectors(corpus, encoder, "fp32")
    (shard,) = shard_folders(folder_of(corpus, encoder))
    (file,) = shard.glob("*.npy")
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    corpus_vectors(corpus, encoder, "fp32")  # opening does not read the vectors
    with pytest.raises(ValueError, match=r"is damaged: its SHA-256 is .*, expected .*: remove the folder"):
        verify(folder_of(corpus, encoder))
    file.write_bytes(data[:-4])
    with pytest.raises(ValueError, match=rf"has {len(data) - 4} bytes, expected {len(data)}: remove the folder"):
        corpus_vectors(corpus, encoder, "fp32")
    file.unlink()
    with pytest.raises(ValueError, match=f"has 0 bytes, expected {len(data)}"):
        corpus_vectors(corpus, encoder, "fp32")
    (shard / "manifest.json").write_text("{")
    with pytest.raises(ValueError, match=r"manifest.json is damaged: remove the folder"):
        corpus_vectors(corpus, encoder, "fp32")
    shutil.rmtree(shard)
    assert len(corpus_vectors(corpus, encoder, "fp32")) == ROWS


def test_damaged_block_is_refused(corpus, monkeypatch):
    encoder = FakeEncoder()
    fails_after(monkeypatch, encoder, 3)
    with pytest.raises(OSError, match="out"):
        corpus_vectors(corpus, encoder, "fp32")
    block = min((folder_of(corpus, encoder) / "blocks").iterdir())
    block.write_bytes(b"x" + block.read_bytes()[1:])
    with pytest.raises(ValueError, match=r"is damaged \(wrong SHA-256\): remove it, and its rows are encoded again"):
        corpus_vectors(corpus, FakeEncoder(), "fp32")
    block.unlink()
    again = FakeEncoder()
    assert len(corpus_vectors(corpus, again, "fp32")) == ROWS
    assert len(again.encoded) == 4


def fails_after(monkeypatch, encoder, blocks):
    plain = encoder.encode_passages

    def encode(passages):
        if len(encoder.encoded) >= 4 * blocks:
            raise OSError(errno.EIO, "out")
        return plain(passages)

    monkeypatch.setattr(encoder, "encode_passages", encode)


def test_full_disk_is_refused_before(corpus, monkeypatch):
    usage = namedtuple("usage", "total used free")
    encoder = FakeEncoder(dimension=1024)
    needed = 2 * ROWS * 1024 * 4  # the blocks, and the file that they become
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, needed - 1))
    with pytest.raises(ValueError, match=r"encoding 37 passages needs 0.00 GiB and .* has 0.00 GiB free: free some"):
        corpus_vectors(corpus, encoder, "fp32")
    assert not encoder.encoded
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, needed))
    corpus_vectors(corpus, encoder, "fp32")


def test_disk_that_fills_loses_nothing(corpus, monkeypatch):
    encoder, written = FakeEncoder(), []
    plain = encoding.write_atomic

    def write(path, data):
        if len(written) == 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(path)
        plain(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(encoding, "write_atomic", write)
        with pytest.raises(ValueError, match=r"the disk of .* is full: free some.*finished blocks are kept"):
            corpus_vectors(corpus, encoder, "fp32")
    again = FakeEncoder()
    corpus_vectors(corpus, again, "fp32")
    assert len(again.encoded) == ROWS - 5 * 4


@pytest.mark.parametrize(
    "value, dtype, message",
    [
        (np.nan, "fp32", "the encoder gave NaN or infinite numbers for passage 'p85'"),
        (np.inf, "fp16", "the encoder gave NaN or infinite numbers for passage 'p85'"),
        (1e5, "fp16", "the vector of passage 'p85' has numbers too large for fp16: choose dtype=fp32"),
    ],
)
def test_what_is_no_number_names_the_passage(corpus, monkeypatch, value, dtype, message):
    encoder = FakeEncoder()
    plain = encoder.encode_passages

    def encode(passages):
        vectors = plain(passages)
        vectors[[p.passage_id == "p85" for p in passages], 3] = value  # row 5
        return vectors

    monkeypatch.setattr(encoder, "encode_passages", encode)
    with pytest.raises(ValueError, match=re.escape(message)):
        corpus_vectors(corpus, encoder, dtype)
    monkeypatch.setattr(encoder, "encode_passages", lambda passages: plain(passages)[:, :3])
    with pytest.raises(ValueError, match=re.escape("the encoder gave an array of shape (4, 3), expected (4, 16)")):
        corpus_vectors(corpus, encoder, dtype)


KILLED = """
import sys
from corpora.memory import MemoryCorpus
from corpora.types import Passage
from retrievers import encoding
from tests.retrievers.fake_encoder import FakeEncoder
encoding.BLOCK_ROWS = 4
corpus = MemoryCorpus([Passage(f"p{i}", f"w{i}") for i in range(160)], block_rows=4)
encoding.corpus_vectors(corpus, FakeEncoder(), "fp32")
"""


def test_killed_at_random_moments_repeats_at_most_one_block(tmp_path):
    log, kills, rng = tmp_path / "log", 0, random.Random(0)
    environment = {**os.environ, "FAKE_ENCODER_LOG": str(log), "FAKE_ENCODER_PAUSE": "0.02"}
    root = Path(__file__).resolve().parents[2]
    log.touch()
    while True:
        before = len(log.read_text().splitlines())
        process = subprocess.Popen([sys.executable, "-c", KILLED], env=environment, cwd=root)
        while process.poll() is None and len(log.read_text().splitlines()) == before:
            time.sleep(0.002)
        if kills < 10:
            time.sleep(rng.uniform(0, 0.07))
            process.send_signal(signal.SIGKILL)
            kills += process.wait() == -signal.SIGKILL
        else:
            assert process.wait() == 0
            break
    asked = Counter(log.read_text().splitlines())
    assert set(asked) == {f"p{i} 4" for i in range(0, 160, 4)}
    assert kills == 10
    assert sum(asked.values()) <= 40 + kills
    (folder,) = (cache_root() / "vectors").iterdir()
    assert verify(folder) == 1
    corpus = MemoryCorpus([Passage(f"p{i}", f"w{i}") for i in range(160)], block_rows=4)
    np.testing.assert_array_equal(open_vectors(folder).read(0, 160), expected(corpus, FakeEncoder()))


def test_two_processes_at_once(tmp_path):
    environment = {**os.environ, "FAKE_ENCODER_LOG": str(tmp_path / "log"), "FAKE_ENCODER_PAUSE": "0.002"}
    root = Path(__file__).resolve().parents[2]
    both = [subprocess.Popen([sys.executable, "-c", KILLED], env=environment, cwd=root) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    (folder,) = (cache_root() / "vectors").iterdir()
    assert verify(folder) == 1


def foreign(folder, ids=None, dtype=np.float16, n=10):
    folder.mkdir()
    data = np.random.default_rng(0).integers(-4, 5, (n, 8)).astype(dtype)
    np.save(folder / "a-0.npy", data[:6])
    np.save(folder / "a-1.npy", data[6:])
    if ids:
        (folder / "ids.txt").write_text("".join(f"{each}\n" for each in ids))
    return data


def test_vectors_built_elsewhere(tmp_path):
    data = foreign(tmp_path / "plain")
    vectors = open_vectors(tmp_path / "plain")
    assert vectors.ids is None
    np.testing.assert_array_equal(vectors.read(0, 10), data)
    foreign(tmp_path / "named", [f"d{i}" for i in range(10)])
    named = open_vectors(tmp_path / "named")
    assert named.ids([9, 0, 6]) == ["d9", "d0", "d6"]
    assert named.fingerprint != vectors.fingerprint
    both = open_vectors([tmp_path / "plain", tmp_path / "named"][:1] * 2)
    np.testing.assert_array_equal(both.read(8, 12), np.concatenate([data[8:], data[:2]]))


def test_identifiers_beside_each_file(tmp_path):
    foreign(tmp_path / "v", n=300)
    (tmp_path / "v" / "a-0.ids.txt").write_text("".join(f"x{i}\n" for i in range(6)))
    (tmp_path / "v" / "a-1.ids.txt").write_text("\n".join(f"y{i}" for i in range(294)))  # no last line end
    assert open_vectors(tmp_path / "v").ids([5, 6, 299, 200]) == ["x5", "y0", "y293", "y194"]


def test_vectors_built_elsewhere_are_checked(tmp_path):
    with pytest.raises(ValueError, match="no vectors in"):
        open_vectors(tmp_path)
    foreign(tmp_path / "few", ["d1"])
    with pytest.raises(ValueError, match="1 passage identifiers for 10 vectors"):
        open_vectors(tmp_path / "few")
    foreign(tmp_path / "int", dtype=np.int32)
    with pytest.raises(ValueError, match="expected float16 or float32"):
        open_vectors(tmp_path / "int")
    foreign(tmp_path / "said")
    (tmp_path / "said" / "manifest.json").write_text(json.dumps({"encoder": "theirs"}))
    assert len(open_vectors(tmp_path / "said", encoder="theirs")) == 10
    with pytest.raises(ValueError, match="were made with encoder theirs, not ours"):
        open_vectors(tmp_path / "said", encoder="ours")
    file = tmp_path / "said" / "a-1.npy"
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(ValueError, match=r"a-1.npy is no array of NumPy, or a truncated one"):
        open_vectors(tmp_path / "said")

"""Artefacts, atomic files and content hashes (corpora/artefacts.py)."""

import hashlib
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from corpora import artefacts

RACER = """
import os, sys, time
from corpora.artefacts import artefact
def make(folder):
    for i in range(20):
        (folder / f"{i}.txt").write_text(str(os.getpid()))
        time.sleep(0.005)
print("ready", flush=True)
sys.stdin.readline()
print(artefact("index", "abc", make), flush=True)
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RETRIEVAL_DIVERSITY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def dead_pid():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_cache_root_prefers_own_variable_then_xdg_then_home(monkeypatch, cache):
    assert artefacts.cache_root() == cache
    monkeypatch.delenv("RETRIEVAL_DIVERSITY_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert artefacts.cache_root() == Path("/somewhere/retrieval_diversity")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/ada")
    assert artefacts.cache_root() == Path("/home/ada/.cache/retrieval_diversity")


def test_importing_artefacts_needs_no_heavy_package():
    script = "import sys, corpora.artefacts; print(sorted({'numpy', 'pyarrow', 'torch'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"


def test_artefact_is_made_once(cache):
    calls = []

    def make(folder):
        calls.append(folder)
        (folder / "sub").mkdir()
        (folder / "sub" / "data").write_text("x")

    assert artefacts.find_artefact("search", "k1") is None
    assert artefacts.list_artefacts("search") == []
    first, second = artefacts.artefact("search", "k1", make), artefacts.artefact("search", "k1", make)
    assert first == second == cache / "search" / "k1" == artefacts.find_artefact("search", "k1")
    assert (first / "sub" / "data").read_text() == "x"
    assert len(calls) == 1
    assert artefacts.list_artefacts("search") == ["k1"]
    assert os.listdir(cache / "search") == ["k1"]


def test_failing_make_leaves_nothing(cache):
    def make(folder):
        (folder / "half").write_text("x")
        assert artefacts.list_artefacts("search") == []
        raise RuntimeError("no memory")

    with pytest.raises(RuntimeError, match="no memory"):
        artefacts.artefact("search", "k1", make)
    assert os.listdir(cache / "search") == []


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "a b", "x" * 201])
def test_unsafe_names_are_refused(name):
    with pytest.raises(ValueError, match="safe file name"):
        artefacts.find_artefact("search", name)
    with pytest.raises(ValueError, match="safe file name"):
        artefacts.list_artefacts(name)


def test_racing_processes_agree_on_one_whole_artefact(cache):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    racers = [subprocess.Popen([sys.executable, "-c", RACER], **pipes) for _ in range(4)]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    places = {racer.communicate("go\n")[0].strip() for racer in racers}
    assert all(racer.returncode == 0 for racer in racers)
    assert places == {str(cache / "index" / "abc")}
    written = {file.read_text() for file in (cache / "index" / "abc").iterdir()}
    assert len(written) == 1
    assert written <= {str(racer.pid) for racer in racers}
    assert os.listdir(cache / "index") == ["abc"]


def test_kill_while_making_leaves_nothing_visible(cache):
    racer = subprocess.Popen([sys.executable, "-c", RACER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    racer.stdout.readline()
    racer.stdin.write("go\n")
    racer.stdin.flush()
    while not (cache / "index").is_dir() or not os.listdir(cache / "index"):
        time.sleep(0.002)
    racer.send_signal(signal.SIGKILL)
    racer.communicate()
    assert artefacts.list_artefacts("index") == []
    assert artefacts.artefact("index", "abc", lambda folder: None).is_dir()


def test_only_old_remains_of_dead_processes_are_removed(cache):
    folder = cache / "index"
    days = 86_400
    host, dead, alive = platform.node()[:64], dead_pid(), os.getpid()
    cases = {  # (host, pid, age) -> removed?
        (host, dead, 2 * days): True,
        (host, dead, 60): False,
        (host, alive, 30 * days): False,
        ("elsewhere", dead, 2 * days): False,
        ("elsewhere", alive, 30 * days): True,
    }
    paths = {}
    for i, (owner, pid, age) in enumerate(cases):
        paths[owner, pid, age] = path = folder / f".tmp-{owner}-{pid}-{i:032x}"
        path.mkdir(parents=True)
        (path / "part").write_text("x")
        for old in (path / "part", path):
            os.utime(old, (time.time() - age,) * 2)
    (folder / ".tmp-notes").write_text("somebody's own file")
    artefacts.artefact("index", "new", lambda folder: None)
    assert {case: not path.exists() for case, path in paths.items()} == cases
    assert (folder / ".tmp-notes").exists()


def test_write_atomic_replaces_and_leaves_no_temporary_file(tmp_path):
    path = tmp_path / "results" / "scores.json"
    artefacts.write_atomic(path, "é")
    assert path.read_bytes() == b"\xc3\xa9"
    artefacts.write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(path.parent) == ["scores.json"]


def test_atomic_file_that_fails_leaves_the_old_content(tmp_path):
    path = tmp_path / "scores.json"
    artefacts.write_atomic(path, b"new")

    def fail():
        with artefacts.atomic_file(path) as temporary:
            temporary.write_text("half")
            assert temporary.suffix == ".json"
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_bytes() == b"new"
    assert os.listdir(path.parent) == ["scores.json"]


def test_unwritable_place_is_one_clear_line(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RETRIEVAL_DIVERSITY_CACHE", str(tmp_path / "file"))
    with pytest.raises(
        ValueError, match=r"^cannot write to \S+file/index \(.*\): choose another place.*--cache"
    ) as info:
        artefacts.artefact("index", "abc", lambda folder: None)
    assert "\n" not in str(info.value)


def test_content_hash_of_a_file_is_its_sha256(tmp_path):
    (tmp_path / "f").write_bytes(b"abc")
    # FIPS 180-2, appendix B.1
    assert artefacts.content_hash(tmp_path / "f") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_content_hash_of_a_folder_follows_names_and_contents(tmp_path):
    def tree(name, files):
        for path, text in files.items():
            (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / path).write_text(text)
        return artefacts.content_hash(tmp_path / name)

    first = tree("a", {"x": "1", "sub/y": "2"})
    assert first == tree("b", {"sub/y": "2", "x": "1"})
    others = [
        tree("c", {"x": "1", "sub/y": "3"}),
        tree("d", {"x": "1", "y": "2"}),
        tree("e", {"x": "2", "sub/y": "1"}),
        tree("f", {"x": "1"}),
        tree("g", {"x": "1", "sub/y": "2", ".hidden": ""}),
    ]
    assert len({first, *others}) == 6
    os.utime(tmp_path / "a" / "x", (1, 1))
    assert artefacts.content_hash(tmp_path / "a") == first
    (tmp_path / "h").mkdir()
    (tmp_path / "h" / "x").symlink_to(tmp_path / "a" / "x")
    (tmp_path / "h" / "sub").symlink_to(tmp_path / "a" / "sub")
    assert artefacts.content_hash(tmp_path / "h") == first


def test_large_file_is_hashed_once_until_it_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(artefacts, "SETTLED_S", -1.0)
    path = tmp_path / "large"
    path.write_bytes(b"a" * artefacts.MEMO_BYTES)
    expected = hashlib.sha256(b"a" * artefacts.MEMO_BYTES).hexdigest()
    assert artefacts.content_hash(path) == expected
    with monkeypatch.context() as patch:
        patch.setattr(hashlib, "file_digest", lambda *_: pytest.fail("hashed again"))
        assert artefacts.content_hash(path) == expected
    stamp = path.stat().st_mtime_ns
    path.write_bytes(b"b" * artefacts.MEMO_BYTES)
    os.utime(path, ns=(stamp, stamp))  # the same size and time: the change time still tells
    assert artefacts.content_hash(path) == hashlib.sha256(b"b" * artefacts.MEMO_BYTES).hexdigest()


def test_file_that_changes_while_it_is_hashed_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "growing"
    path.write_bytes(b"a")
    digest = hashlib.file_digest

    def grow(file, name):
        path.write_bytes(b"aa")
        return digest(file, name)

    monkeypatch.setattr(hashlib, "file_digest", grow)
    with pytest.raises(ValueError, match=r"growing changed while it was being read"):
        artefacts.content_hash(path)


def test_file_changed_just_now_is_not_remembered(tmp_path, cache):
    (tmp_path / "large").write_bytes(b"a" * artefacts.MEMO_BYTES)
    artefacts.content_hash(tmp_path / "large")
    assert not (cache / "content_hash").exists()

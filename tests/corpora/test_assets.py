"""Downloads against a server on this machine that breaks, lies, ignores ranges and dies."""

import contextlib
import hashlib
import http.server
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from corpora import assets
from corpora.assets import Asset, AssetError, asset_path, fetch, recorded

DATA = random.Random(1).randbytes(3_000_000)
SIZE = len(DATA)
SHA = hashlib.sha256(DATA).hexdigest()
ROOT = Path(__file__).parents[2]


class Handler(http.server.BaseHTTPRequestHandler):
    """/range, /plain: with and without ranges; /cut: at most a third per connection; the server's fields say more."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server, kind = self.server, self.path.split("/")[1]
        server.requests.append((self.path, self.headers.get("Range"), self.headers.get("If-Range")))
        if kind == "missing":
            return self.send_error(404)
        if kind == "moved":
            self.send_response(302)
            self.send_header("Location", "/range/file")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        data, start = server.data, 0
        asked = self.headers.get("Range")
        same = self.headers.get("If-Range") in (None, server.etag)
        if asked and kind != "plain" and same:
            start = int(asked.removeprefix("bytes=").rstrip("-"))
            if start >= len(data):
                self.send_response(416)
                self.send_header("Content-Length", "0")
                return self.end_headers()
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        else:
            self.send_response(200)
        if server.etag:
            self.send_header("ETag", server.etag)
        self.send_header("X-Repo-Commit", "abc")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        body = data[start:]
        if kind == "cut" or kind == "slow":
            body = body[: server.cut]
        with contextlib.suppress(ConnectionError):
            for i in range(0, len(body), 100_000):
                self.wfile.write(body[i : i + 100_000])
                server.sent += len(body[i : i + 100_000])
                if kind == "slow":
                    time.sleep(0.05)
        if len(body) < len(data) - start:
            self.close_connection = True

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    for name in assets.OFFLINE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(assets, "PAUSE_S", 0.0)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.data, server.etag, server.requests, server.sent, server.cut = DATA, '"one"', [], 0, 1_000_000
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def asset(server, *kinds, sha256=SHA, size=SIZE):
    return Asset("set/file.bin", tuple(f"{server.url}/{kind}/file" for kind in kinds), sha256, size, "a page", "MIT")


def test_downloads_once_and_records_what_came(server):
    path = fetch(asset(server, "range"))
    assert path == asset_path(asset(server, "range"))
    assert path.read_bytes() == DATA
    assert fetch(asset(server, "range")) == path
    assert len(server.requests) == 1
    entry = recorded(asset(server, "range"))
    assert (entry["sha256"], entry["size"], entry["commit"]) == (SHA, len(DATA), "abc")
    assert (entry["source"], entry["licence"]) == ("a page", "MIT")
    assert sorted(p.name for p in path.parent.iterdir()) == [".file.bin.lock", "file.bin", "file.bin.json"]


def test_a_redirect_is_followed(server):
    assert fetch(asset(server, "moved")).read_bytes() == DATA


def test_a_broken_download_goes_on_where_it_broke(server):
    assert fetch(asset(server, "cut")).read_bytes() == DATA
    assert [(r[1], r[2]) for r in server.requests] == [
        (None, None),
        ("bytes=1000000-", '"one"'),
        ("bytes=2000000-", '"one"'),
    ]
    assert server.sent == len(DATA)


def test_a_file_that_changed_meanwhile_is_begun_again(server, monkeypatch):
    server.cut = 0
    first = asset(server, "cut", sha256=None, size=None)
    with pytest.raises(AssetError, match="truncated download, got 0 of 3000000"):
        fetch(first)
    server.cut = 1_000_000
    other = random.Random(2).randbytes(3_000_000)
    real = assets._copy

    def change(*args):
        real(*args)
        server.data, server.etag = other, '"two"'

    monkeypatch.setattr(assets, "_copy", change)
    assert fetch(first).read_bytes() == other


def test_a_server_without_ranges_is_read_from_the_start(server):
    part = asset_path(asset(server, "plain")).with_name(".file.bin.part")
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 10)
    assert fetch(asset(server, "plain")).read_bytes() == DATA
    assert server.requests[0][1] == "bytes=10-"


def test_a_truncated_download_is_one_line_and_kept(server):
    server.cut = 0
    part = asset_path(asset(server, "cut")).with_name(".file.bin.part")
    part.parent.mkdir(parents=True)
    part.write_bytes(DATA[:500])
    with pytest.raises(
        AssetError, match=r"truncated download, got 500 of 3000000 bytes \(start again to resume\)"
    ) as e:
        fetch(asset(server, "cut"))
    assert "\n" not in str(e.value)
    assert len(server.requests) == assets.ATTEMPTS
    assert part.read_bytes() == DATA[:500]
    assert fetch(asset(server, "range")).read_bytes() == DATA
    assert server.requests[-1][1] == "bytes=500-"


def test_wrong_bytes_are_dropped_and_the_next_mirror_is_asked(server):
    wrong = bytes(len(DATA))
    server.data = wrong
    with pytest.raises(AssetError, match=r"wrong checksum [0-9a-f]{64}, expected [0-9a-f]{64} \(a page\)"):
        fetch(asset(server, "range"))
    assert not list(asset_path(asset(server, "range")).parent.glob("*.bin"))
    assert not list(asset_path(asset(server, "range")).parent.glob(".*.part"))
    server.data = DATA
    assert fetch(asset(server, "missing", "range")).read_bytes() == DATA
    assert recorded(asset(server, "range"))["url"].endswith("/range/file")


def test_all_mirrors_are_named_when_none_has_it(server):
    with pytest.raises(
        AssetError, match=r"cannot download set/file.bin: .*missing/file: HTTP 404 .*plain/file: has 3000000"
    ):
        fetch(asset(server, "missing", "plain", size=5))
    gone = Asset("gone", ("http://127.0.0.1:9/x",))
    with pytest.raises(AssetError, match=r"cannot download gone: http://127.0.0.1:9/x: .*refused"):
        fetch(gone)
    with pytest.raises(AssetError, match="expected http or https"):
        fetch(Asset("local", ("file:///etc/hostname",)))


def test_without_a_published_checksum_the_first_one_counts(server):
    unknown = asset(server, "range", sha256=None, size=None)
    path = fetch(unknown)
    assert recorded(unknown)["sha256"] == SHA
    path.unlink()
    server.data = bytes(len(DATA))
    with pytest.raises(AssetError, match=r"wrong checksum .*seen at the first download"):
        fetch(unknown)
    server.data = DATA
    assert fetch(unknown).read_bytes() == DATA


def test_offline_and_a_file_put_there_by_hand(server, monkeypatch):
    wanted = asset(server, "range")
    for name in assets.OFFLINE_VARIABLES:
        monkeypatch.setenv(name, "1")
        with pytest.raises(AssetError, match=f"not in the cache and {name}=1 forbids downloads.*range/file at "):
            fetch(wanted)
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    path = asset_path(wanted)
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(len(DATA)))
    with pytest.raises(AssetError, match=r"wrong checksum.*remove .*file.bin"):
        fetch(wanted)
    path.write_bytes(DATA)
    assert fetch(wanted) == path
    assert server.requests == []
    path.write_bytes(DATA[:-1])
    with pytest.raises(AssetError, match="has 2999999 bytes, expected 3000000"):
        fetch(wanted)


def test_a_full_disk_is_told_before_the_download(server, monkeypatch):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(assets.shutil, "disk_usage", lambda path: usage._replace(free=2_000_000))
    with pytest.raises(AssetError, match=r"no room for set/file.bin in .*: 0.0 GiB to download, 0.0 GiB free"):
        fetch(asset(server, "range"))
    assert not asset_path(asset(server, "range")).with_name(".file.bin.part").exists()


def test_a_disk_that_fills_up_on_the_way_is_one_line(server, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(assets, "_copy", full)
    with pytest.raises(AssetError, match=r"no room for set/file\.bin"):
        fetch(asset(server, "range"))


def test_a_killed_process_is_resumed_by_the_next(server, tmp_path):
    server.cut = len(DATA)
    wanted = asset(server, "slow")
    code = (
        "import sys, json\nfrom corpora.assets import Asset, fetch\n"
        "n, u, s, z = json.loads(sys.argv[1])\nprint(fetch(Asset(n, tuple(u), s, z)))"
    )
    argument = json.dumps([wanted.name, wanted.urls, wanted.sha256, wanted.size])
    process = subprocess.Popen([sys.executable, "-c", code, argument], cwd=ROOT, env=dict(os.environ))
    part = asset_path(wanted).with_name(".file.bin.part")
    deadline = time.monotonic() + 30
    while not (part.exists() and part.stat().st_size >= 1_000_000) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    have = part.stat().st_size
    assert 1_000_000 <= have < len(DATA)
    assert fetch(wanted).read_bytes() == DATA
    assert server.requests[1:] == [("/slow/file", f"bytes={have}-", '"one"')]


def test_two_at_the_same_time_download_once(server):
    server.cut = len(DATA)
    threads = [threading.Thread(target=fetch, args=(asset(server, "slow"),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(server.requests) == 1
    assert asset_path(asset(server, "slow")).read_bytes() == DATA


@pytest.mark.parametrize("name", ["/etc/x", "../x", ""])
def test_a_name_stays_inside_the_cache(name):
    with pytest.raises(ValueError, match="expected a relative path"):
        asset_path(Asset(name, ()))

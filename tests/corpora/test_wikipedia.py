"""Files in the form of DPR's psgs_w100.tsv."""

import csv
import gzip
import hashlib
import http.server
import shutil
import threading

import pytest

from corpora import assets, stored, wikipedia
from corpora.assets import Asset, asset_path
from corpora.base import Corpus
from corpora.lines import InputError
from corpora.memory import MemoryCorpus
from corpora.types import Passage
from corpora.wikipedia import Wikipedia, read_dpr_tsv

# Texts made for this test in the file's manner: quoted texts, quotes doubled inside, titles quoted where they need it.
LINES = (
    "id\ttext\ttitle\n"
    '1\t"Amber Wells (or ; ""Ahmbr"") is a town, a river and a song. It was founded in"\tAmber Wells\n'
    '2\t"1703. ""The Well"" is its paper; the motto says ""dig deeper"""\t"""The Well"" (paper)"\n'
    "3\tplain text without any quotes, and a stray \" in the middle of it\tCafé O'Neill\n"
    '4\t"""Quoted"" from its first word to its ""last"""\tAmber\\Wells\n'
    '5\t""\tEmpty\n'
)
PASSAGES = [
    Passage("1", 'Amber Wells (or ; "Ahmbr") is a town, a river and a song. It was founded in', "Amber Wells"),
    Passage("2", '1703. "The Well" is its paper; the motto says "dig deeper"', '"The Well" (paper)'),
    Passage("3", 'plain text without any quotes, and a stray " in the middle of it', "Café O'Neill"),
    Passage("4", '"Quoted" from its first word to its "last"', "Amber\\Wells"),
    Passage("5", "", "Empty"),
]


def write(path, text=LINES):
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["psgs_w100.tsv", "psgs_w100.tsv.gz"])
def test_a_file_is_read_as_dpr_reads_it(tmp_path, name):
    corpus = Wikipedia(write(tmp_path / name))
    assert "about" in corpus.pending()
    assert list(corpus) == PASSAGES
    assert corpus.pending() is None
    assert isinstance(corpus, Corpus)
    assert corpus.fingerprint == MemoryCorpus(PASSAGES).fingerprint
    assert corpus.get(["4"]) == [PASSAGES[3]]
    # DPR's own reading: csv.reader over the text file, columns 0, 1 and 2, the header's row left out
    rows = list(csv.reader(LINES.splitlines(keepends=True), delimiter="\t"))[1:]
    assert [(p.passage_id, p.text, p.title) for p in corpus] == [tuple(row) for row in rows]


def test_windows_line_ends_and_a_long_text(tmp_path):
    text = "word " * 100_000
    path = write(tmp_path / "x.tsv", f'id\ttext\ttitle\r\n7\t"{text}"\tLong\r\n')
    assert list(read_dpr_tsv(path)) == [Passage("7", text, "Long")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\ttext\ttitle\n", r"x.tsv:1: found .*, expected the header id, text, title: is it DPR's"),
        (LINES + "6\tno title\n", r"x.tsv:7: found 2 columns, expected id, text, title separated by tabs"),
        (LINES + '6\t"never closed\ttitle\n7\ta\tb\n', r"x.tsv:7: found a quoted field that does not end on its line"),
        (LINES + "6 7\ta\tb\n", r"x.tsv:7: found id = '6 7', expected an id without white space"),
        (LINES + "\n", r"x.tsv:7: found 0 columns"),
        (
            LINES + "3\ta\tb\n",
            r"x.tsv: passage identifier '3' is on lines 3 and 6 \(blank lines not counted\) \(nor is the header\)",
        ),
        ("id\ttext\ttitle\n", r"x.tsv: the corpus is empty"),
        ("", r"x.tsv: found an empty file"),
    ],
)
def test_errors_name_file_and_line(tmp_path, text, message):
    with pytest.raises(InputError, match=message) as error:
        len(Wikipedia(write(tmp_path / "x.tsv", text)))
    assert "\n" not in str(error.value)


def test_a_damaged_gzip_and_a_missing_file_are_one_line(tmp_path):
    path = write(tmp_path / "x.tsv.gz")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"x\.tsv\.gz:\d+: found damaged gzip data"):
        len(Wikipedia(path))
    with pytest.raises(InputError, match="no such file: name DPR's"):
        Wikipedia(tmp_path / "absent").pending()


def test_parts_are_wikipedia(tmp_path):
    corpus = Wikipedia(write(tmp_path / "x.tsv"))
    part = corpus.part(0, 1)
    assert isinstance(part, Wikipedia)
    assert list(part) == PASSAGES
    assert part.span == corpus.span


def test_the_plan_of_the_real_file_without_a_network(monkeypatch):
    plan = Wikipedia().pending()
    assert plan.startswith("download https://dl.fbaipublicfiles.com/dpr/wikipedia_split/psgs_w100.tsv.gz (4.4 GiB)")
    assert "21015324 passages" in plan
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(stored.shutil, "disk_usage", lambda path: usage._replace(free=1 << 40))
    monkeypatch.setattr(stored, "memory_available", lambda: 1 << 40)
    with pytest.raises(ValueError, match="HF_HUB_OFFLINE=1 forbids downloads"):
        len(Wikipedia())


def test_too_small_a_disk_or_memory_is_refused_before_anything_is_done(monkeypatch):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(stored.shutil, "disk_usage", lambda path: usage._replace(free=1 << 30))
    with pytest.raises(ValueError, match=r"needs 18\.1 GiB of disk in .*, 1\.0 GiB are free: make room") as error:
        len(Wikipedia())
    assert "\n" not in str(error.value)
    monkeypatch.setattr(stored.shutil, "disk_usage", lambda path: usage._replace(free=1 << 40))
    monkeypatch.setattr(stored, "memory_available", lambda: 1 << 30)
    with pytest.raises(ValueError, match=r"needs 1\.5 GiB of memory, 1\.0 GiB are available"):
        len(Wikipedia())


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


def test_the_official_file_is_downloaded_checked_and_counted(tmp_path, monkeypatch):
    """The same way as the real file goes, with a small one on a server of this machine in its place."""
    for name in assets.OFFLINE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "served"
    folder.mkdir()
    data = write(folder / "psgs_w100.tsv.gz").read_bytes()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), lambda *args: Quiet(*args, directory=str(folder)))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/psgs_w100.tsv.gz"
    small = Asset("wikipedia/psgs_w100.tsv.gz", (url,), hashlib.sha256(data).hexdigest(), len(data), "here")
    monkeypatch.setattr(wikipedia, "PSGS_W100", small)
    monkeypatch.setattr(wikipedia, "PASSAGES", 6)
    assert "download" in Wikipedia().pending()
    Wikipedia().prefetch()
    assert asset_path(small).read_bytes() == data
    assert "download" not in Wikipedia().pending(), "fetched, and no store built yet"
    with pytest.raises(InputError, match="found 5 passages, expected 6: is it another edition"):
        len(Wikipedia())
    monkeypatch.setattr(wikipedia, "PASSAGES", 5)
    assert list(Wikipedia()) == PASSAGES
    server.shutdown()
    server.server_close()
    asset_path(small).unlink()  # the store is enough
    assert Wikipedia().pending() is None
    assert list(Wikipedia()) == PASSAGES

"""Plans: what indexing costs is told before anything is downloaded or encoded, and queries share passes."""

from __future__ import annotations

import pytest

from benchmarks import pipeline
from benchmarks.run import main
from corpora.types import Query

FAKE = "encoder=tests.retrievers.fake_encoder:FakeEncoder"


def lines(capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, str]:
    assert main(["--task", "demo", "--dry-run", *flags]) == 0
    shown = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    return dict(shown)


def test_encoding_is_planned_for_a_corpus_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    plan = lines(capsys, "--corpus", "wikipedia", "--retriever", "dense", "--retriever-args", FAKE)
    assert plan["corpus"].startswith("to do  download")
    # 21,015,324 / 83 / 3,600 = 70.33 hours; x 16 x 2 bytes = 0.63 GiB
    assert "encode 21,015,324 passages, 0.63 GiB in fp16 (16 dimensions): about 70.33 GPU hours" in plan["index"]


def test_encoding_is_planned_until_it_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--retriever", "dense", "--retriever-args", FAKE)
    main(["--task", "demo", "--retriever", "bm25", "--until", "index"])
    assert "encode 432 passages" in lines(capsys, *flags)["index"]
    main(["--task", "demo", *flags, "--until", "index"])
    assert "index" not in lines(capsys, *flags)


def test_bm25_has_no_costs_to_tell(capsys: pytest.CaptureFixture[str]) -> None:
    assert "index" not in lines(capsys, "--corpus", "wikipedia", "--retriever", "bm25")


class Counts:
    """Writes down how many queries it gets at a time."""

    def __init__(self, one_pass: bool = False) -> None:
        self.one_pass = one_pass

    def index(self, corpus: object) -> Counts:
        return self

    def search(self, queries: list[Query], k: int) -> list[tuple[()]]:
        SEEN.append(len(queries))
        return [() for _ in queries]


SEEN: list[int] = []


@pytest.mark.parametrize("one_pass, expected", [("false", [5, 5, 5, 5, 1]), ("true", [21])])
def test_one_pass_retrievers_get_all_queries_at_once(
    monkeypatch: pytest.MonkeyPatch, one_pass: str, expected: list[int]
) -> None:
    SEEN.clear()
    monkeypatch.setattr(pipeline, "QUERIES_AT_ONCE", 5)
    main(["--task", "demo", "--retriever", f"{__name__}:Counts", "--retriever-args", f"one_pass={one_pass}"])
    assert expected == SEEN

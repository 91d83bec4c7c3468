"""Real collections: Perspectrum, and the TREC 2013 diversity runs against NIST's own numbers."""

from __future__ import annotations

import csv

import pytest

pytestmark = pytest.mark.data
FOUR = ("MRecall@5", "Precision@5", "MRecall@10", "Precision@10")


@pytest.fixture
def perspectrum(cli, data, tmp_path):
    """BM25 on Perspectrum, with its run exported."""
    run = tmp_path / "run.jsonl"
    options = ["--task", data / "perspectrum", "--split", "all", "--retriever", "bm25", "--k", 5, 10]
    outcome = cli(*options, "--json", "--export", run, tmp_path / "run.trec")
    assert outcome.code == 0, outcome.err
    return outcome


def test_bm25_on_perspectrum_gives_the_numbers_of_an_independent_computation(perspectrum):
    # Computed apart from this project with bm25s' defaults, English stop words and no stemming.
    expected = {"MRecall@5": 27.03, "Precision@5": 48.11, "MRecall@10": 28.38, "Precision@10": 37.03}
    assert {name: round(100 * perspectrum.mean(name), 2) for name in FOUR} == expected
    assert perspectrum.scores["scores"]["MRecall@5"]["n"] == 222


def test_the_same_scores_follow_from_the_run_file_and_from_its_berds_export(cli, data, perspectrum, tmp_path):
    for name in ("run.trec", "run.jsonl"):
        again = cli("--task", data / "perspectrum", "--split", "all", "--run", tmp_path / name, "--json")
        assert again.code == 0, again.err
        assert again.scores["scores"] == perspectrum.scores["scores"]


def test_a_berds_file_without_ids_is_matched_by_title_and_text(cli, data, perspectrum, tmp_path):
    import json

    lines = []
    for line in (tmp_path / "run.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        for passage in record["ctxs"]:
            for key in ("id", "docid", "passage_id"):
                passage.pop(key, None)
        lines.append(json.dumps(record))
    path = tmp_path / "without-ids.jsonl"
    path.write_text("\n".join(lines) + "\n")
    again = cli("--task", data / "perspectrum", "--split", "all", "--run", path, "--json")
    assert again.code == 0, again.err
    for name in FOUR:
        # Some passages stand in the corpus under several ids; the twin that was judged is taken, so that a score can
        # only rise, and by little.
        assert 0 <= again.mean(name) - perspectrum.mean(name) < 0.01, name


@pytest.mark.parametrize("kind", ["random", "biased", "oracle"])
def test_trec_2013_runs_are_scored_as_ndeval_does(cli, data, kind):
    folder = data / "trec-web-2013"
    rows = list(csv.DictReader((folder / f"ndeval.{kind}.csv").open()))
    topics = [row for row in rows if row["topic"].isdigit()]
    ours = {
        **{f"{a}@{k}": f"{b}@{k}" for k in (5, 10, 20) for a, b in [
            ("ERR_IA", "ERR-IA"), ("nERR_IA", "nERR-IA"), ("alpha_DCG", "alpha-DCG"), ("alpha_nDCG", "alpha-nDCG"),
            ("P_IA", "P-IA"), ("StRecall", "strec"),
        ]},
        "NRBP": "NRBP", "nNRBP": "nNRBP", "AP_IA": "MAP-IA",
    }  # fmt: skip
    qrels, run = folder / "qrels.web.201-250.ndeval.txt", folder / f"run.{kind}.txt.gz"
    options = ["--perspectives", "relevant", "--depth", 1000, "--metrics", *ours, "--json"]
    outcome = cli("--qrels", qrels, "--run", run, *options)
    assert outcome.code == 0, outcome.err
    assert outcome.scores["questions"]["n"] == len(topics) == 50
    for name, theirs in ours.items():
        mean = sum(float(row[theirs]) for row in topics) / len(topics)
        assert outcome.mean(name) == pytest.approx(mean, abs=1e-6), name

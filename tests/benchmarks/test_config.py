"""The configuration is the one source of flags and of what identifies a run."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks.config import RunConfig, identity_fields, parse


def test_every_field_is_a_flag(capsys):
    with pytest.raises(SystemExit) as done:
        parse(["--help"])
    assert done.value.code == 0
    text = capsys.readouterr().out
    for field in dataclasses.fields(RunConfig):
        assert f"--{field.name.replace('_', '-')}" in text


def test_no_flag_means_the_defaults():
    assert parse([]) == RunConfig()
    assert RunConfig().cutoffs == (5, 10)
    assert RunConfig(depth=7).cutoffs == (5,)
    assert RunConfig(depth=3).cutoffs == (3,)
    assert RunConfig(k=(20, 1)).cutoffs == (1, 20)


def test_flags_set_their_fields():
    config = parse(["--k", "1", "20", "--retriever-args", "k1=0.9", "b=0.4", "--dry-run", "--metrics", "MRecall@5"])
    assert config.k == (1, 20)
    assert config.retriever_args == ("k1=0.9", "b=0.4")
    assert config.dry_run
    assert config.metrics == ("MRecall@5",)


def test_flags_may_not_be_abbreviated():
    with pytest.raises(ValueError, match="--retr"):
        parse(["--retr", "bm25"])


def test_what_only_says_how_to_run_is_no_identity():
    how = {
        "k",
        "labelled_pairs",
        "metrics",
        "until",
        "shard",
        "cache",
        "output",
        "export",
        "overwrite",
        "prefetch",
        "tuned_anyway",
        "with_duplicates",
        "dry_run",
        "list",
        "json",
    }
    assert {field.name for field in dataclasses.fields(RunConfig)} - set(identity_fields()) == how


@pytest.mark.parametrize("shard, part", [("1/1", (0, 1)), ("1/4", (0, 4)), ("4/4", (3, 4))])
def test_shards_are_counted_from_one(shard, part):
    assert RunConfig(until="search", shard=shard).part() == part


@pytest.mark.parametrize("shard", ["0/4", "5/4", "1", "1/", "/4", "a/b", "-1/4", "1/4/4"])
def test_a_shard_of_another_form_is_refused(shard):
    with pytest.raises(ValueError, match="expected i/n"):
        RunConfig(until="search", shard=shard)

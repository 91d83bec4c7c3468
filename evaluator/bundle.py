"""Bundles: judgements as one Parquet file, for another machine's store, and as TREC subtopic qrels.

A bundle has the columns ``key`` (16 bytes), ``question_id``, ``perspective_id``, ``passage_id`` (missing where not
known), ``status``, ``probability``, ``answer`` and ``cost_usd``. A key that stands for several pairs has several rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from corpora.artefacts import atomic_file
from evaluator.judgements import STATUSES, JudgementStore

IDS = ("question_id", "perspective_id", "passage_id")
BUNDLE = pa.schema(
    [
        pa.field("key", pa.binary(16), nullable=False),
        *(pa.field(name, pa.string()) for name in IDS),
        pa.field("status", pa.string(), nullable=False),
        pa.field("probability", pa.float64()),
        pa.field("answer", pa.string()),
        pa.field("cost_usd", pa.float64()),
    ]
)
_LABELS = pa.schema([*(BUNDLE.field(name) for name in IDS), ("status", pa.string()), ("probability", pa.float64())])
_ROWS = 65_536


def parse_flags(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Returns the flags of ``python -m evaluator.judgements``; exits with code 2 where they are wrong."""
    where = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    where.add_argument(
        "--store", type=Path, metavar="FOLDER", help="the store itself (default: judgements in the cache)"
    )
    where.add_argument("--cache", type=Path, metavar="FOLDER", help="the cache that the store is in, as for the runs")
    parser = argparse.ArgumentParser(
        prog="python -m evaluator.judgements", description="Move and check judgements.", parents=[where]
    )
    commands = parser.add_subparsers(dest="command", required=True)
    export = commands.add_parser("export", help="write a bundle that another machine can merge", parents=[where])
    export.add_argument("--output", type=Path, required=True, metavar="BUNDLE.parquet")
    export.add_argument(
        "--labels",
        type=Path,
        nargs="+",
        action="extend",
        default=[],
        metavar="labels.parquet",
        help="only the judgements of these results, with their ids (default: the whole store)",
    )
    export.add_argument("--qrels", type=Path, metavar="FILE", help="also write TREC subtopic qrels of the labels")
    export.add_argument("--threshold", type=float, default=0.5, help="least probability of a 1 in the qrels")
    merge = commands.add_parser("merge", help="put bundles into the store", parents=[where])
    merge.add_argument("bundles", type=Path, nargs="+", metavar="BUNDLE.parquet")
    commands.add_parser("verify", help="check the hashes of all segments", parents=[where])
    flags = parser.parse_args(arguments)
    cache = getattr(flags, "cache", None)
    flags.store = getattr(flags, "store", None if cache is None else cache / "judgements")
    return flags


def export(
    store: JudgementStore, output: Path, labels: Sequence[Path] = (), qrels: Path | None = None, threshold: float = 0.5
) -> str:
    """Writes a bundle, and returns a line that says what is in it.

    Args:
        store: Where the judgements are.
        output: The bundle.
        labels: ``labels.parquet`` of runs: only their judgements, with their ids; default: everything in the store.
        qrels: TREC subtopic qrels of these labels: question, subtopic, passage, and 1 where the probability is at least
            ``threshold``, else 0; pairs without a readable answer are left out.
        threshold: In [0, 1].
    """
    if qrels is not None and not labels:
        raise ValueError("--qrels needs --labels: the store itself knows no question or passage ids")
    if output.resolve() in {path.resolve() for path in labels}:
        raise ValueError(f"--output {output}: it is one of the labels that are read: choose another name")
    if not 0 <= threshold <= 1:
        raise ValueError(f"--threshold {threshold}: expected a number from 0 to 1")
    if labels:
        rows, lines = _read_labels(labels), None
        if qrels is not None:
            lines = _qrels_lines(rows, threshold)
        keyed = rows.filter(rows.column("key").is_valid()).select(["key", *IDS])
        keyed = keyed.group_by(keyed.column_names, use_threads=False).aggregate([])
    else:
        keys = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(16), len(store), [None, pa.py_buffer(store.keys().tobytes())]
        )
        keyed, lines = pa.table({"key": keys, **{name: pa.nulls(len(keys), pa.string()) for name in IDS}}), None
    n_rows, n_holes = _write_bundle(store, output, keyed)
    message = f"{output}: {n_rows} rows"
    if labels:
        message += f"; {n_holes} labels whose key is not in the store; {len(rows) - len(keyed)} without a key, or again"
    if qrels is not None and lines is not None:
        with atomic_file(qrels) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(lines)
        message += f"; {qrels}: {len(lines)} lines"
    return message


def merge(store: JudgementStore, bundles: Sequence[Path]) -> str:
    """Publishes the bundles' judgements that the store lacks or has otherwise, and returns a line with the counts."""
    n_rows = n_new = 0
    try:
        for path in bundles:
            for table in _batches(path, BUNDLE):
                n_rows += len(table)
                n_new += _publish_new(store, path, table)
    finally:
        store.segments.compact()
    return f"{n_rows} rows read, {n_new} judgements new or other in {store.folder}"


def _publish_new(store: JudgementStore, path: Path, table: pa.Table) -> int:
    keys = _key_array(table.column("key"))
    _check_values(path, table)
    store.refresh()
    found, probability, status = store.lookup(keys)
    # A judgement that differs from ours is published too: every reader then takes the same one of both.
    theirs = pc.fill_null(table.column("probability"), np.nan).to_numpy(zero_copy_only=False)
    codes = pc.index_in(table.column("status"), value_set=pa.array(STATUSES)).to_numpy(zero_copy_only=False)
    same = found & (status == codes) & ((probability == theirs) | (np.isnan(probability) & np.isnan(theirs)))
    _, first = np.unique(keys, axis=0, return_index=True)
    rows = pa.array(first[~same[first]])
    table, keys = table.take(rows), keys[rows.to_numpy()]
    if not len(table):
        return 0
    codes = pc.index_in(table.column("status"), value_set=pa.array(STATUSES)).cast(pa.int8())
    columns = {"status": codes, "answer": pc.fill_null(table.column("answer"), "")}
    store.segments.publish(keys, columns | {name: table.column(name) for name in ("probability", "cost_usd")})
    return len(table)


def _check_values(path: Path, table: pa.Table) -> None:
    status, probability = table.column("status"), table.column("probability")
    known = pc.is_in(status, value_set=pa.array(STATUSES))
    matches = pc.equal(pc.equal(status, "unparsed"), probability.is_null())
    inside = pc.fill_null(pc.and_(pc.greater_equal(probability, 0.0), pc.less_equal(probability, 1.0)), True)
    good = pc.fill_null(pc.and_(pc.and_(known, matches), inside), False)
    n_bad = len(table) - (pc.sum(good).as_py() or 0)
    if n_bad:
        example = table.filter(pc.invert(good)).slice(0, 1).select(["status", "probability"]).to_pylist()[0]
        raise ValueError(
            f"{path}: {n_bad} rows are no judgements, such as {example}: expected a status of "
            f"{' or '.join(STATUSES)} and a probability in [0, 1], missing exactly when unparsed"
        )


def _write_bundle(store: JudgementStore, output: Path, keyed: pa.Table) -> tuple[int, int]:
    n_rows = 0
    with atomic_file(output) as temporary, pq.ParquetWriter(temporary, BUNDLE, compression="zstd") as writer:
        for start in range(0, len(keyed), _ROWS):
            part = keyed.slice(start, _ROWS)
            found, judgements = store.table(_key_array(part.column("key")))
            part = part.filter(pa.array(found))
            status = pa.array(STATUSES).take(judgements.column("status"))
            columns = {name: part.column(name) for name in ("key", *IDS)} | {"status": status}
            columns |= {name: judgements.column(name) for name in ("probability", "answer", "cost_usd")}
            writer.write_table(pa.table([columns[name] for name in BUNDLE.names], schema=BUNDLE))
            n_rows += len(part)
    return n_rows, len(keyed) - n_rows


def _read_labels(paths: Sequence[Path]) -> pa.Table:
    tables = []
    for path in paths:
        tables += list(_batches(path, pa.schema([*_LABELS, ("key", pa.binary(16))])))
    return pa.concat_tables(tables) if tables else pa.schema([*_LABELS, ("key", pa.binary(16))]).empty_table()


def _qrels_lines(rows: pa.Table, threshold: float) -> list[str]:
    judged = rows.filter(pc.and_(pc.equal(rows.column("status"), "ok"), rows.column("probability").is_valid()))
    groups = judged.group_by(list(IDS), use_threads=False).aggregate([("probability", "min"), ("probability", "max")])
    n_apart = pc.sum(pc.not_equal(groups.column("probability_min"), groups.column("probability_max"))).as_py() or 0
    if n_apart:
        raise ValueError(f"the labels give {n_apart} pairs two probabilities: export one judge's labels at a time")
    groups = groups.sort_by([(name, "ascending") for name in IDS])
    triples = list(zip(*(groups.column(name).to_pylist() for name in IDS), strict=True))
    if broken := next((name for triple in triples for name in triple if not name or len(name.split()) != 1), None):
        raise ValueError(f"id {broken!r} is empty or has white space, which a qrels file cannot hold")
    relevant = pc.greater_equal(groups.column("probability_max"), threshold).to_pylist()
    return [f"{' '.join(triple)} {int(value)}\n" for triple, value in zip(triples, relevant, strict=True)]


def _batches(path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yields a Parquet file's rows in parts, with these columns in these types."""
    try:
        with pq.ParquetFile(path) as file:
            absent = [name for name in schema.names if name not in file.schema_arrow.names]
            if absent:
                raise ValueError(f"no column {', '.join(absent)}; it has {', '.join(file.schema_arrow.names)}")
            for batch in file.iter_batches(_ROWS, columns=schema.names):
                table = pa.Table.from_batches([batch]).select(schema.names).cast(schema)
                for field in schema:
                    if not field.nullable and table.column(field.name).null_count:
                        raise ValueError(f"column {field.name} has missing values")
                yield table
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ValueError(f"{path}: {str(error).splitlines()[0]}") from error


def _key_array(column: pa.ChunkedArray) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(column.to_pylist()), np.uint8).reshape(-1, 16)

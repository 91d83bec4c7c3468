"""Records of a segment as Arrow arrays: conversion, digests, and the bytes of a segment file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from corpora._index import halves

KEY = pa.field("key", pa.binary(16), nullable=False)
DIGEST = pa.field("digest", pa.uint64(), nullable=False)
SUPERSEDES = b"supersedes"


def file_schema(schema: pa.Schema) -> pa.Schema:
    """Returns the schema of a segment file: the key, the record's digest, then the given columns."""
    for field in schema:
        if not (_is_fixed(field.type) or _is_text(field.type)):
            raise ValueError(
                f"column {field.name!r} is {field.type}: segments hold numbers, texts, bytes and fixed-size lists"
            )
        if field.name in {"key", "digest", "high", "low", "place"}:
            raise ValueError(f"column {field.name!r}: this name is the segments' own, choose another")
    return pa.schema([KEY, DIGEST, *schema])


def to_batch(keys: NDArray[np.uint8], columns: Mapping[str, Any], schema: pa.Schema) -> pa.RecordBatch:
    """Returns keys, uint8 (n, 16), and columns as a batch of ``file_schema(schema)``."""
    if set(columns) != set(schema.names):
        raise ValueError(f"got the columns {sorted(columns)}, expected {sorted(schema.names)}")
    arrays = [_to_array(columns[field.name], field) for field in schema]
    for field, array in zip(schema, arrays, strict=True):
        if len(array) != len(keys):
            raise ValueError(f"column {field.name!r} has {len(array)} values for {len(keys)} keys")
        if array.null_count and not field.nullable:
            raise ValueError(f"column {field.name!r} must not have missing values, got {array.null_count}")
    key = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(keys), [None, pa.py_buffer(keys.tobytes())])
    digest = pa.array(record_digests(arrays, len(keys)))
    return pa.record_batch([key, digest, *arrays], schema=file_schema(schema))


def record_digests(arrays: Sequence[pa.Array], n: int) -> NDArray[np.uint64]:
    """Returns one number per record, uint64 (n,), that depends on its values only, not on how they are stored."""
    fixed = [_fixed_bytes(array) for array in arrays if _is_fixed(array.type)]
    rows = np.concatenate(fixed, axis=1) if fixed else np.zeros((n, 0), np.uint8)
    width, data = rows.shape[1], memoryview(rows.tobytes())
    texts = [array.to_pylist() for array in arrays if not _is_fixed(array.type)]
    out = bytearray()
    for i in range(n):
        digest = hashlib.blake2b(data[i * width : (i + 1) * width], digest_size=8)
        for column in texts:
            value = column[i]
            if value is None:
                digest.update(b"-")
                continue
            value = value.encode() if isinstance(value, str) else value
            digest.update(b"%d:" % len(value))
            digest.update(value)
        out += digest.digest()
    return np.frombuffer(bytes(out), "<u8").astype(np.uint64)


def key_bytes(batch: pa.RecordBatch) -> NDArray[np.uint8]:
    """Returns the key column, uint8 (n, 16), without a copy."""
    column = batch.column("key")
    flat = np.frombuffer(column.buffers()[1], np.uint8, count=16 * len(column), offset=16 * column.offset)
    return flat.reshape(-1, 16)


def index_columns(batch: pa.RecordBatch, number: int, names: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """Returns copies of what an index holds (views would keep the whole file in memory); the segment has a number."""
    high, low = halves(key_bytes(batch))
    place = (np.uint64(number) << np.uint64(32)) + np.arange(batch.num_rows, dtype=np.uint64)
    columns = {"high": high, "low": low, "digest": numbers(batch.column("digest")).copy(), "place": place}
    return columns | {name: numbers(batch.column(name)).copy() for name in names}


def numbers(array: pa.Array) -> NDArray[Any]:
    """Returns a numeric column as an array; missing values are NaN."""
    result: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return result


def serialise(batch: pa.RecordBatch, supersedes: Iterable[str] = ()) -> bytes:
    """Returns the bytes of a segment file, with the names of the segments that it replaces."""
    metadata = {SUPERSEDES: json.dumps(sorted(supersedes)).encode()}
    schema = batch.schema.with_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(batch.cast(schema) if batch.schema != schema else batch.replace_schema_metadata(metadata))
    result: bytes = sink.getvalue().to_pybytes()
    return result


def parse(data: bytes, expected: pa.Schema) -> tuple[pa.RecordBatch, frozenset[str]]:
    """Returns a segment file's records and the names of the segments that it replaces; ValueError if it is none."""
    reader = pa.ipc.open_file(pa.py_buffer(data))
    if not reader.schema.equals(expected, check_metadata=False) or reader.num_record_batches != 1:
        raise ValueError(f"its columns are {reader.schema.names} (or of other types), not {expected.names}")
    metadata = reader.schema.metadata or {}
    return reader.get_batch(0), frozenset(json.loads(metadata.get(SUPERSEDES, b"[]")))


def decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the batch with its dictionaries replaced by values: each segment has dictionaries of its own."""
    columns = [column.dictionary_decode() if _is_dictionary(column) else column for column in batch.columns]
    return pa.record_batch(columns, names=batch.schema.names)


def concatenate(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Returns one batch of several that have this schema."""
    columns = []
    for i, field in enumerate(schema):
        column = pa.chunked_array([batch.column(i) for batch in batches], type=field.type)
        columns.append(column.unify_dictionaries().combine_chunks())
    return pa.record_batch(columns, schema=schema)


def _is_dictionary(array: pa.Array) -> bool:
    return bool(pa.types.is_dictionary(array.type))


def _is_fixed(kind: pa.DataType) -> bool:
    if pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in (*tests, pa.types.is_fixed_size_binary))


def _to_array(values: Any, field: pa.Field) -> pa.Array:
    kind = field.type
    if isinstance(values, np.ndarray) and values.ndim == 2 and pa.types.is_fixed_size_list(kind):
        if values.shape[1] != kind.list_size:
            raise ValueError(f"column {field.name!r} has width {values.shape[1]}, expected {kind.list_size}")
        flat = pa.array(np.ascontiguousarray(values).ravel(), type=kind.value_type)
        return pa.FixedSizeListArray.from_arrays(flat, type=kind)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        return values if values.type == kind else values.cast(kind)
    return pa.array(values, type=kind)


def _fixed_bytes(array: pa.Array) -> NDArray[np.uint8]:
    """Returns uint8 (n, width): the values' bytes, little endian, then one byte per record: is there a value."""
    n = len(array)
    valid = np.asarray(pc.is_valid(array).to_numpy(zero_copy_only=False), dtype=np.uint8).reshape(n, 1)
    if pa.types.is_fixed_size_list(array.type):
        width = array.type.list_size
        inner = array.values.slice(array.offset * width, n * width)
        values = numbers(inner).reshape(n, width)
    else:
        values = numbers(pc.fill_null(array, False if pa.types.is_boolean(array.type) else 0)).reshape(n, 1)
    little = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
    rows = little.view(np.uint8).reshape(n, values.shape[1] * values.itemsize) * valid
    return np.concatenate([rows, valid], axis=1)

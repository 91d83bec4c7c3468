"""Measures the judgement store: ``python tests/speed/judgements.py [millions] [folder]``.

Makes a store of 15 million judgements as finished and killed runs leave it (merged segments of 64 k judgements, and
4,000 blocks of 256), then loads it in a fresh process and reports seconds, peak memory and look-ups per second.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from corpora._record import file_schema
from corpora._segment_files import SegmentFiles
from evaluator.judgements import SCHEMA, JudgementStore
from evaluator.types import Judgement

BLOCKS, BLOCK, MERGED = 4_000, 256, 65_536


def write(store: SegmentFiles, keys: np.ndarray, rng: np.random.Generator) -> None:
    """Publishes a segment; the digests are random here, because making 15 million of them is not what is measured."""
    n = len(keys)
    yes = rng.random(n)
    columns = [
        pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), n, [None, pa.py_buffer(keys.tobytes())]),
        pa.array(rng.integers(0, 2**63, n, dtype=np.uint64)),
        pa.array((yes < 0.01).astype(np.int8)),
        pa.array(yes, mask=yes < 0.01),
        pa.DictionaryArray.from_arrays((yes < 0.5).astype(np.int32), pa.array(["Yes", "No"])),
        pa.array(np.full(n, 1e-5)),
    ]
    store._write(pa.record_batch(columns, schema=file_schema(SCHEMA)))


def make(folder: Path, n: int) -> None:
    rng = np.random.default_rng(0)
    store = SegmentFiles(folder, SCHEMA)
    sizes = [BLOCK] * min(BLOCKS, n // (2 * BLOCK))
    sizes += [MERGED] * ((n - sum(sizes)) // MERGED)
    sizes += [n - sum(sizes)] if n > sum(sizes) else []
    for size in sizes:
        write(store, rng.integers(0, 256, (size, 16), dtype=np.uint8), rng)


def measure(folder: Path) -> None:
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    store = JudgementStore(folder)
    start = time.perf_counter()
    n = len(store)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"load: {n:,} judgements in {seconds:.1f} s, peak {peak / 2**10:.0f} MiB (of these {base / 2**10:.0f} before)"
    )
    rng = np.random.default_rng(1)
    keys = store.keys()[rng.integers(0, n, 1_000_000)]
    keys[::2] ^= 0x5A  # every second key is not there
    start = time.perf_counter()
    found, _, _ = store.lookup(keys)
    print(f"lookup: {len(keys) / (time.perf_counter() - start):,.0f} keys/s in memory, {found.mean():.2f} found")
    start = time.perf_counter()
    store.get_many(keys[:100_000])
    print(f"get_many: {100_000 / (time.perf_counter() - start):,.0f} keys/s with answers from disk")
    with store.writer() as writer:
        for _ in range(512):
            writer.add(rng.bytes(16), Judgement("ok", 0.5, "Yes", 0.0))
    start = time.perf_counter()
    store.refresh()
    print(f"refresh: {time.perf_counter() - start:.2f} s after 512 new judgements")
    print(f"peak at the end {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10:.0f} MiB")


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(Path(sys.argv[2]))
        sys.exit()
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as made:
        began = time.perf_counter()
        make(Path(made), int(float(sys.argv[1] if len(sys.argv) > 1 else 15) * 1e6))
        files = list(Path(made).iterdir())
        size = sum(file.stat().st_size for file in files)
        print(f"made {len(files)} segments, {size / 1e6:.0f} MB, in {time.perf_counter() - began:.0f} s")
        subprocess.run([sys.executable, __file__, "measure", made], check=True)

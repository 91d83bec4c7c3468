"""Exact maximum inner product search, streaming over vectors on disk in the memory of one block.

All queries take one pass. Each block of fixed rows gives its best k + 32 rows in fp32 (FAISS on a CPU, torch on a
GPU); the best of these over all blocks are scored again by one canonical dot product in float64, which depends on the
pair alone, and ties are broken by passage identifier. Rounding in fp32 is bounded by d * 2^-24 * |q| * |p|: candidates
that cannot be among the best k by that bound are left out; where a passage beyond the k + 32 could be (many near-ties),
a second pass looks at every passage in reach. So the rankings are those of float64, whatever the shards, blocks,
batches, threads and devices.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from corpora.types import Hit, Ranking
from lm.base import QueryVectors
from retrievers.merge import best_first
from retrievers.vectors import Ids, Vectors

MARGIN = 32
"""Candidates beyond k that are scored again."""
BLOCK_FLOATS = 1 << 24
"""Numbers per block: 64 MiB in fp32, which FAISS multiplies faster than larger ones."""

_PAIRS = 256  # at a time: their vectors stay in the processor's cache
_WIDE_ROWS = 4096
_TORCH_QUERIES = 4096
Best = tuple[NDArray[np.float32], NDArray[np.int64]]
Block = tuple[int, NDArray[np.floating]]


def search(vectors: Vectors, queries: QueryVectors, k: int, ids: Ids, device: str = "cpu") -> list[Ranking]:
    """The k passages with the highest dot products per query, best first, ties by identifier.

    A query with several vectors scores a passage by the best of them.

    Args:
        vectors: What is searched.
        queries: All of them: they share one pass over the vectors.
        k: How many hits at most.
        ids: Rows of the whole -> passage identifiers.
        device: ``cpu``, or a device of torch, for example ``cuda``.

    Raises:
        ValueError: Queries of another dimension, or a query vector that is not finite.
    """
    n = int(queries.query_index[-1]) + 1 if len(queries.query_index) else 0
    check_queries(queries, vectors.dimension if len(vectors) else queries.vectors.shape[1])
    if k < 1 or not n or not len(vectors):
        return [() for _ in range(n)]
    scores, rows, norm = candidates(vectors, queries.vectors, min(k + MARGIN, len(vectors)), device)
    if scores.shape[1] == len(vectors):
        return ranked(vectors, queries, rows, k, ids)
    lengths = np.linalg.norm(queries.vectors.astype(np.float64), axis=1)
    error = lengths * norm * vectors.dimension * 2.0**-24 * 1.01 + 1e-37
    reach = scores[:, k - 1].astype(np.float64) - 2 * error  # k passages are better for sure than what is below it
    rankings = ranked(vectors, queries, np.where(scores >= reach[:, None], rows, -1), k, ids)
    unsure = np.unique(queries.query_index[scores[:, -1] >= reach])
    if len(unsure):
        wide = search_within_reach(vectors, queries, unsure, reach, k, ids)
        rankings = [wide.get(i, ranking) for i, ranking in enumerate(rankings)]
    return rankings


def block_rows(dimension: int) -> int:
    """Rows per block: a function of the dimension alone."""
    return max(1, BLOCK_FLOATS // dimension // 4096) * 4096


def check_queries(queries: QueryVectors, dimension: int) -> None:
    """A ValueError where query vectors have another dimension or are not finite."""
    if queries.vectors.ndim != 2 or queries.vectors.shape[1] != dimension:
        raise ValueError(
            f"query vectors have the shape {queries.vectors.shape}, expected (v, {dimension}): was the index made "
            "with another encoder?"
        )
    bad = np.flatnonzero(~np.isfinite(queries.vectors).all(axis=1))
    if len(bad):
        raise ValueError(f"the encoder gave NaN or infinite numbers for query {int(queries.query_index[bad[0]]) + 1}")


def candidates(
    vectors: Vectors, queries: NDArray[np.float32], m: int, device: str = "cpu"
) -> tuple[NDArray[np.float32], NDArray[np.int64], float]:
    """The best m rows per query vector by fp32 scores: scores (v, m) descending, rows (v, m), the longest vector."""
    norm, known = 0.0, vectors.max_norm

    def measured() -> Iterator[Block]:
        nonlocal norm
        if known is not None and device == "cpu" and vectors.mapped:
            yield from vectors.pieces()  # FAISS goes through mapped fp32 numbers in small blocks of its own
            return
        for start, block in vectors.blocks(block_rows(vectors.dimension)):
            if known is None:
                norm = max(norm, _longest(block))
            yield start, block

    queries = np.ascontiguousarray(queries, dtype=np.float32)
    found = _on_cpu(measured(), queries, m) if device == "cpu" else _on_torch(measured(), queries, m, device)
    scores, rows = next(found)
    for more_scores, more_rows in found:
        scores, rows = np.concatenate([scores, more_scores], axis=1), np.concatenate([rows, more_rows], axis=1)
        if scores.shape[1] > m:
            chosen = np.argpartition(scores, -m, axis=1)[:, -m:]
            scores, rows = np.take_along_axis(scores, chosen, axis=1), np.take_along_axis(rows, chosen, axis=1)
    order = np.argsort(-scores, axis=1, kind="stable")
    return (
        np.take_along_axis(scores, order, axis=1),
        np.take_along_axis(rows, order, axis=1),
        norm if known is None else known,
    )


def _longest(block: NDArray[np.floating]) -> float:
    """At least the length of the longest vector of a block."""
    squares = (np.einsum("ij,ij->i", part, part) for part in _float32(block))
    return float(np.sqrt(max(float(each.max()) for each in squares))) * 1.001


def _float32(block: NDArray[np.floating]) -> Iterator[NDArray[np.float32]]:
    for start in range(0, len(block), _WIDE_ROWS):
        yield np.ascontiguousarray(block[start : start + _WIDE_ROWS], dtype=np.float32)


def _on_cpu(blocks: Iterable[Block], queries: NDArray[np.float32], m: int) -> Iterator[Best]:
    buffer = np.empty((0, queries.shape[1]), dtype=np.float32)
    for start, block in blocks:
        if block.dtype == np.float32 and block.flags.c_contiguous:
            values = block  # mapped: nothing is copied
        else:
            if len(buffer) < len(block):
                buffer = np.empty(block.shape, dtype=np.float32)
            buffer[: len(block)] = block
            values = buffer[: len(block)]
        scores, rows = faiss.knn(queries, values, min(m, len(values)), metric=faiss.METRIC_INNER_PRODUCT)
        yield scores, rows + start


def _on_torch(blocks: Iterable[Block], queries: NDArray[np.float32], m: int, device: str) -> Iterator[Best]:
    """While the device multiplies one block, the next is read and copied to it, on a stream of its own."""
    import torch  # not needed on a CPU

    if torch.get_float32_matmul_precision() != "highest":
        raise ValueError("exact search needs full fp32 products: torch.set_float32_matmul_precision('highest')")
    on_device = torch.from_numpy(queries).to(device)
    cuda: Any = torch.cuda  # its streams have no types
    parts = [on_device[i : i + _TORCH_QUERIES] for i in range(0, len(queries), _TORCH_QUERIES)]
    copies = cuda.Stream(device) if torch.device(device).type == "cuda" else None

    def copied(block: NDArray[np.floating]) -> torch.Tensor:
        host = torch.from_numpy(np.array(block))
        if copies is None:
            return host.to(device)
        with cuda.stream(copies):
            values = host.pin_memory().to(device, non_blocking=True)
        copies.synchronize()  # in the reader's thread: the device goes on with the block before
        return values

    def top(start: int, values: torch.Tensor) -> Best:
        wide = values.float().T
        best = [torch.topk(part @ wide, min(m, wide.shape[1]), dim=1) for part in parts]
        scores, rows = torch.cat([each.values for each in best]), torch.cat([each.indices for each in best])
        return scores.cpu().numpy(), rows.cpu().numpy() + start

    with ThreadPoolExecutor(1) as reader:  # reads and copies the next block
        pending: tuple[int, Future[torch.Tensor]] | None = None
        for start, block in blocks:
            following = (start, reader.submit(copied, block))
            if pending is not None:
                yield top(pending[0], pending[1].result())
            pending = following
        if pending is not None:
            yield top(pending[0], pending[1].result())


def canonical(
    vectors: Vectors, queries: QueryVectors, query: NDArray[np.int64], rows: NDArray[np.int64]
) -> NDArray[np.float64]:
    """float64 (p,): the score of each pair of a query and a row, a function of the pair alone.

    Products of fp32 numbers are exact in float64; NumPy sums each row pairwise in an order that the dimension fixes.
    """
    counts = np.bincount(queries.query_index)
    first = np.cumsum(counts) - counts
    out = np.empty(len(rows), dtype=np.float64)
    order = np.argsort(rows, kind="stable")  # read the disk in its own order
    step = max(1, _PAIRS // int(counts.max()))

    def score(at: int) -> None:
        pairs = order[at : at + step]
        n = counts[query[pairs]]
        begins = np.cumsum(n) - n
        which = np.repeat(first[query[pairs]] - begins, n) + np.arange(int(n.sum()))
        products = vectors.take(rows[pairs])
        products = np.repeat(products, n, axis=0) if len(which) > len(pairs) else products
        products *= queries.vectors[which]
        out[pairs] = np.maximum.reduceat(products.sum(axis=1), begins)

    with ThreadPoolExecutor(faiss.omp_get_max_threads()) as pool:  # NumPy works outside of Python's lock
        for _ in pool.map(score, range(0, len(order), step)):
            pass
    return out


def ranked(vectors: Vectors, queries: QueryVectors, rows: NDArray[np.int64], k: int, ids: Ids) -> list[Ranking]:
    """Rankings of the candidates of each query vector (v, m), by canonical scores; rows of -1 are left out."""
    n = int(queries.query_index[-1]) + 1
    query = np.repeat(np.asarray(queries.query_index, dtype=np.int64), rows.shape[1])
    flat = rows.ravel()
    if len(queries.query_index) > n:  # the vectors of one query share candidates
        both = np.unique(np.stack([query, flat]), axis=1)
        query, flat = both[0], both[1]
    query, flat = query[flat >= 0], flat[flat >= 0]
    scores = canonical(vectors, queries, query, flat)
    ends = np.searchsorted(query, np.arange(n + 1))
    return [_best(scores[a:b], flat[a:b], k, ids) for a, b in itertools.pairwise(ends)]


def _best(scores: NDArray[np.float64], rows: NDArray[np.int64], k: int, ids: Ids) -> Ranking:
    """The k best; identifiers are looked up only where they may be needed."""
    if len(rows) > k:
        near = scores >= np.partition(scores, len(rows) - k)[len(rows) - k]
        scores, rows = scores[near], rows[near]
    order = np.argsort(-scores)  # the sort by identifier then finds little to do
    best = sorted(zip((-scores[order]).tolist(), ids(rows[order].tolist()), strict=True))[:k]
    return tuple(Hit(passage_id, -negative) for negative, passage_id in best)


def search_within_reach(
    vectors: Vectors, queries: QueryVectors, unsure: NDArray[np.int64], reach: NDArray[np.float64], k: int, ids: Ids
) -> dict[int, Ranking]:
    """The rankings of the queries ``unsure``, from every passage whose fp32 score reaches a vector's threshold.

    Near-ties can be many (a corpus full of one text): the best k are kept block by block.
    """
    chosen = np.isin(queries.query_index, unsure)
    q, limit, query = queries.vectors[chosen], reach[chosen][:, None], queries.query_index[chosen]
    found: dict[int, Ranking] = {int(i): () for i in unsure}
    for start, block in vectors.blocks(_WIDE_ROWS):
        vector, row = np.nonzero(q @ np.asarray(block, dtype=np.float32).T >= limit)
        if not len(row):
            continue
        pairs = np.unique(np.stack([query[vector], row + start]), axis=1)
        scores = canonical(vectors, queries, pairs[0], pairs[1])
        for i in np.unique(pairs[0]):
            mine, best = pairs[0] == i, found[int(i)]
            if len(best) == k:
                mine &= scores >= best[-1].score
            found[int(i)] = best_first((*best, *_best(scores[mine], pairs[1][mine], k, ids)), k)
    return found


def search_device(device: str | None) -> str:
    """Where to search: the device that was asked for, else ``cuda`` where torch has it, else ``cpu``."""
    if device is not None:
        return device.partition(",")[0]
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"

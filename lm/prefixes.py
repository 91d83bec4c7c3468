"""What prompts have in common is computed once: a plan in token ids, and the attention mask that carries it out.

A row of a batch is a tree: ``shared`` tokens, then the rests of several prompts one behind the other, each of which
sees what is shared and itself. What all prompts begin with is not in the rows at all, but in a key-value cache.

    begin + shared + rest 1          begin | shared  rest 1  rest 2          one row instead of two
    begin + shared + rest 2

The idea is that of tree attention (Miao and others, 2023, https://arxiv.org/abs/2305.09781) and of prefix caching.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

Ids = Sequence[int]

ROW_TOKENS = 1536
"""Attention grows with the square of a row: longer trees are cut into several rows, which repeat what is shared."""
MIN_BEGIN = 16
"""A common beginning shorter than this is not worth a cache."""
MIN_SHARED = 8
"""Prompts that share less than this besides it stay apart."""


@dataclass(slots=True)
class Tree:
    """A row: prompts that share a beginning.

    Attributes:
        shared: Their common tokens, after those that all prompts begin with.
        rests: What follows in each prompt; at least one token.
        positions: Which prompt each of them is.
    """

    shared: Ids
    rests: list[Ids]
    positions: list[int]

    @property
    def length(self) -> int:
        """Tokens of the row."""
        return len(self.shared) + sum(map(len, self.rests))


def plan(prompts: Sequence[Ids], chosen: Sequence[int]) -> tuple[Ids, list[Tree]]:
    """The tokens that all chosen prompts begin with (perhaps none), and the rows.

    Args:
        prompts: Token ids, none of them empty.
        chosen: Positions of the prompts that are to be planned.
    """
    order = sorted(chosen, key=lambda position: list(prompts[position]))  # what shares most stands side by side
    begin = 0
    if len(order) > 1:  # of sorted sequences, first and last share what all share
        begin = _common(prompts[order[0]], prompts[order[-1]], min(len(prompts[i]) for i in order) - 1)
        begin = begin if begin >= MIN_BEGIN else 0
    trees = [tree for group, shared in _groups(prompts, order, begin) for tree in _rows(prompts, group, begin, shared)]
    return (prompts[order[0]][:begin] if order else ()), trees


def _groups(prompts: Sequence[Ids], order: Sequence[int], begin: int) -> Iterator[tuple[list[int], int]]:
    """Neighbours, together where that makes fewer tokens, and how many tokens these have in common."""
    group: list[int] = []
    shared = 0
    for position in order:
        ids = prompts[position]
        if group:
            common = _common(prompts[group[-1]], ids, min(shared, len(ids) - 1))
            alone, together = (len(group) - 1) * (shared - begin), len(group) * (common - begin)
            if together > alone and common - begin >= MIN_SHARED:
                group.append(position)
                shared = common
                continue
            yield group, shared if len(group) > 1 else begin
        group, shared = [position], len(ids) - 1
    if group:
        yield group, shared if len(group) > 1 else begin


def _rows(prompts: Sequence[Ids], group: Sequence[int], begin: int, shared: int) -> Iterator[Tree]:
    tree: Tree | None = None
    for position in group:
        rest = prompts[position][shared:]
        if tree is not None and tree.length + len(rest) > ROW_TOKENS:
            yield tree
            tree = None
        if tree is None:
            tree = Tree(prompts[position][begin:shared], [], [])
        tree.rests.append(rest)
        tree.positions.append(position)
    if tree is not None:
        yield tree


def _common(a: Ids, b: Ids, limit: int) -> int:
    """How many tokens both begin with, at most ``limit``."""
    low, high = 0, max(0, min(limit, len(a), len(b)))
    while low < high:  # slices compare in C: faster than token by token
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a[low:middle] == b[low:middle] else (low, middle - 1)
    return low


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows as tensors, padded on the right.

    Attributes:
        input_ids: int64 (n, length).
        position_ids: int64 (n, length).
        mask: bool (n, 1, length, begin + length): which tokens each token sees; None where plain causal order is
            right, because no row has a second prompt and nothing is cached.
        rows: int64 (m,): the row of each prompt's last token.
        columns: int64 (m,): its place there.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    mask: torch.Tensor | None
    rows: torch.Tensor
    columns: torch.Tensor


def make_batch(trees: Sequence[Tree], begin: int, device: torch.device) -> Batch:
    """The rows as tensors.

    Args:
        trees: At least one.
        begin: How many tokens all of them have in the cache.
        device: Where the tensors are wanted.
    """
    longest = max(tree.length for tree in trees)
    ids = torch.zeros((3, len(trees), longest), dtype=torch.int64)
    ids[2] = -1  # the branch of padding, which nothing else sees
    rows, columns = [], []
    for row, tree in enumerate(trees):
        tokens, places, branches = list(tree.shared), [*range(begin, begin + len(tree.shared))], [0] * len(tree.shared)
        for branch, rest in enumerate(tree.rests, 1):
            start = begin + len(tree.shared)
            tokens += rest
            places += range(start, start + len(rest))
            branches += [branch] * len(rest)
            rows.append(row)
            columns.append(len(tokens) - 1)
        ids[:, row, : len(tokens)] = torch.tensor([tokens, places, branches])
    ids = ids.to(device)
    plain = begin == 0 and all(len(tree.rests) == 1 for tree in trees)
    mask = None if plain else _mask(ids[2], begin)
    return Batch(ids[0], ids[1], mask, torch.tensor(rows, device=device), torch.tensor(columns, device=device))


def _mask(branch: torch.Tensor, begin: int) -> torch.Tensor:
    """A token sees the cache, what is shared, and its own branch, as far as they are not behind it."""
    n, length = branch.shape
    sees = (branch[:, None, :] == 0) | (branch[:, None, :] == branch[:, :, None])
    sees &= torch.ones((length, length), dtype=torch.bool, device=branch.device).tril()
    cached = torch.ones((n, length, begin), dtype=torch.bool, device=branch.device)
    return torch.cat([cached, sees], dim=2)[:, None]

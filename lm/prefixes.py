"""What prompts have in common is found in their token ids, so that it is computed once.

begin + shared + rest 1       begin, once for all prompts; shared, once for all prompts of a passage, say;
begin + shared + rest 2       and each rest
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Ids = Sequence[int]

MIN_BEGIN = 16
"""A beginning of all prompts that is shorter than this is not kept apart."""
MIN_SHARED = 16
"""Prompts that share less than this besides it are computed one by one."""
MOST_MEMBERS = 256
"""Prompts of a group."""


@dataclass(frozen=True, slots=True)
class Group:
    """Prompts that share their first tokens.

    Attributes:
        shared: These tokens, without those that all prompts begin with; empty for a prompt that is alone.
        rests: What follows in each prompt; at least one token.
        positions: Which prompt each of them is.
    """

    shared: Ids
    rests: tuple[Ids, ...]
    positions: tuple[int, ...]

    @property
    def length(self) -> int:
        """Tokens to compute."""
        return len(self.shared) + sum(map(len, self.rests))


def alone(prompts: Sequence[Ids], positions: Sequence[int]) -> list[Group]:
    """Groups of one prompt each, nothing shared."""
    return [Group((), (prompts[i],), (i,)) for i in positions]


def plan(prompts: Sequence[Ids], positions: Sequence[int], most: int) -> tuple[Ids, list[Group]]:
    """The tokens that all prompts begin with (perhaps none), and the groups.

    Args:
        prompts: Token ids, none of them empty.
        positions: Which of them are to be planned.
        most: Tokens of a group; one that has more is cut, and each part repeats what is shared.
    """
    if not positions:
        return (), []
    order = sorted(positions, key=lambda i: list(prompts[i]))  # those that share most stand side by side
    first, last = prompts[order[0]], prompts[order[-1]]
    begin = 0
    if len(order) > 1:  # what first and last share, all share
        begin = _common(first, last, min(len(prompts[i]) for i in order) - 1)
        begin = begin if begin >= MIN_BEGIN else 0
    groups = []
    for members, shared in _neighbours(prompts, order, begin):
        for part in _parts(prompts, members, begin, shared, most):
            rests = tuple(prompts[i][shared:] for i in part)
            groups.append(Group(first[:0] if shared == begin else prompts[part[0]][begin:shared], rests, tuple(part)))
    return first[:begin], groups


def _neighbours(prompts: Sequence[Ids], order: Sequence[int], begin: int) -> Iterator[tuple[list[int], int]]:
    """Members of each group and how many tokens they have in common, so that the fewest tokens are left to compute."""
    common = [0] * (len(order) + 1)  # with the one before; the ends share nothing
    for place in range(1, len(order)):
        a, b = prompts[order[place - 1]], prompts[order[place]]
        common[place] = _common(a, b, min(len(a), len(b)) - 1)
    saved, starts, least = [0] * (len(order) + 1), [0] * (len(order) + 1), [begin] * (len(order) + 1)
    for stop in range(1, len(order) + 1):  # the best partition of those before ``stop``, by its last group
        saved[stop], starts[stop], shared = saved[stop - 1], stop - 1, 1 << 62
        for start in range(stop - 2, max(-1, stop - 1 - MOST_MEMBERS), -1):
            shared = min(shared, common[start + 1])
            if shared - begin < MIN_SHARED:
                break
            if (gain := saved[start] + (stop - 1 - start) * (shared - begin)) > saved[stop]:
                saved[stop], starts[stop], least[stop] = gain, start, shared
    stop = len(order)
    while stop:
        yield list(order[starts[stop] : stop]), least[stop]
        stop = starts[stop]


def _parts(prompts: Sequence[Ids], members: list[int], begin: int, shared: int, most: int) -> Iterator[list[int]]:
    part: list[int] = []
    length = shared - begin
    for position in members:
        rest = len(prompts[position]) - shared
        if part and length + rest > most:
            yield part
            part, length = [], shared - begin
        part.append(position)
        length += rest
    yield part


def _common(a: Ids, b: Ids, limit: int) -> int:
    """How many tokens both begin with, at most ``limit``."""
    low, high = 0, max(0, min(limit, len(a), len(b)))
    while low < high:  # slices compare in C: faster than token by token
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a[low:middle] == b[low:middle] else (low, middle - 1)
    return low

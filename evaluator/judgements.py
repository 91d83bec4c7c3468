"""The judgement store: what a judge once answered is never asked again.

A judgement is kept under a hash of the judge's fingerprint and the complete rendered input, so that a text shared by
many questions or runs is judged once. On disk it is a segment store (corpora/segments.py); the command line moves
judgements between machines:

    python -m evaluator.judgements export --output BUNDLE.parquet [--labels labels.parquet ...] [--qrels FILE]
    python -m evaluator.judgements merge BUNDLE.parquet ...
    python -m evaluator.judgements verify
"""

from __future__ import annotations

import hashlib
import operator
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from corpora.artefacts import cache_root
from corpora.segments import Keys, Report, Segments
from evaluator.judges.base import Judge
from evaluator.types import Judgement, Pair

STATUSES: tuple[Literal["ok"], Literal["unparsed"]] = ("ok", "unparsed")
"""Status by its number on disk and in ``JudgementStore.lookup``."""
MISSING = -1
"""The status number of a key that has no judgement."""
BLOCK = 256
"""Judgements per published segment: what a kill can lose."""
BLOCK_S = 10.0
"""A block that is older than this is published with the next judgement."""
SCHEMA = pa.schema(
    [
        pa.field("status", pa.int8(), nullable=False),
        pa.field("probability", pa.float64()),
        pa.field("answer", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("cost_usd", pa.float64()),
    ]
)
_CHUNK = 65_536


def judgement_key(judge_fingerprint: str, rendered: str) -> bytes:
    """Returns the 16 bytes under which the judge's answer to this complete input is kept."""
    fingerprint = judge_fingerprint.encode()
    digest = hashlib.blake2b(b"%d:" % len(fingerprint), digest_size=16)  # the length tells where the input begins
    digest.update(fingerprint)
    digest.update(rendered.encode("utf-8", "surrogatepass"))
    return digest.digest()


def check_judgement(judgement: Judgement) -> None:
    """Raises ValueError unless the probability is in [0, 1] and, exactly for unparsed answers, None."""
    status, probability = judgement.status, judgement.probability
    if status not in STATUSES:
        raise ValueError(f"status {status!r}, expected one of {', '.join(STATUSES)}")
    if (probability is None) != (status == "unparsed"):
        raise ValueError(f"probability {probability} with status {status!r}: it is None exactly when unparsed")
    if probability is not None and not 0 <= probability <= 1:
        raise ValueError(f"probability {probability}, expected a number in [0, 1]")


class JudgementStore:
    """Judgements by key, shared by any number of processes; read on first use.

    Args:
        folder: Default: ``judgements`` in the cache.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = cache_root() / "judgements" if folder is None else Path(folder)
        self.segments = Segments(self.folder, SCHEMA, resident=("status", "probability"))
        self._loaded = False

    def refresh(self) -> None:
        """Takes up what this and other processes have published since; cheap where there is nothing new."""
        self.segments.refresh()
        self._loaded = True

    def __len__(self) -> int:
        self._load()
        return len(self.segments)

    def keys(self) -> NDArray[np.uint8]:
        """Returns all keys in ascending order, uint8 (n, 16)."""
        self._load()
        return self.segments.keys()

    def lookup(self, keys: Keys) -> tuple[NDArray[np.bool_], NDArray[np.float64], NDArray[np.int8]]:
        """Looks up many keys at once, in memory.

        Args:
            keys: uint8 (n, 16) or n byte strings.

        Returns:
            Which keys have a judgement, bool (n,); probabilities, float64 (n,), NaN where unparsed or not there;
            statuses, int8 (n,): numbers into ``STATUSES``, -1 where not there.
        """
        self._load()
        found, columns = self.segments.lookup(keys, ("status", "probability"))
        probability = np.where(found, columns["probability"], np.nan)
        return found, probability, np.where(found, columns["status"], MISSING).astype(np.int8)

    def table(self, keys: Keys) -> tuple[NDArray[np.bool_], pa.Table]:
        """Returns which keys have a judgement, bool (n,), and all columns of these, in their order."""
        self._load()
        return self.segments.get(keys)

    def get_many(self, keys: Keys) -> list[Judgement | None]:
        """Returns the whole judgements, answers included, None where there is none."""
        found, table = self.table(keys)
        result: list[Judgement | None] = [None] * len(found)
        columns = [table.column(name).to_pylist() for name in SCHEMA.names]
        for i, (status, *rest) in zip(np.flatnonzero(found).tolist(), zip(*columns, strict=True), strict=True):
            result[i] = Judgement(STATUSES[status], *rest)
        return result

    def writer(self) -> JudgementWriter:
        """Returns a context manager that publishes what is added, also when it ends by an exception."""
        return JudgementWriter(self.segments)

    def verify(self) -> Report:
        """Reads everything anew, and reports counts and damaged files."""
        self._loaded = True
        return self.segments.verify()

    def _load(self) -> None:
        if not self._loaded:
            self.refresh()


class JudgementWriter:
    """Publishes every 256 judgements or 10 seconds, and the rest at the end; then merges its own small segments."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._keys: list[bytes] = []
        self._judgements: list[Judgement] = []
        self._since = 0.0

    def __enter__(self) -> JudgementWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.publish()
        self._segments.compact()

    def add(self, key: bytes, judgement: Judgement) -> None:
        """Takes one judgement; on disk at the latest when the block is full or the writer ends."""
        check_judgement(judgement)
        if not self._keys:
            self._since = time.monotonic()
        self._keys.append(key)
        self._judgements.append(judgement)
        if len(self._keys) >= BLOCK or time.monotonic() - self._since >= BLOCK_S:
            self.publish()

    def publish(self) -> None:
        """Writes what was added since the last time."""
        if not self._keys:
            return
        columns = {
            "status": [STATUSES.index(judgement.status) for judgement in self._judgements],
            "probability": [judgement.probability for judgement in self._judgements],
            # A model may emit half a surrogate pair, which no file can hold.
            "answer": [judgement.answer.encode("utf-8", "replace").decode() for judgement in self._judgements],
            "cost_usd": [judgement.cost_usd for judgement in self._judgements],
        }
        self._segments.publish(self._keys, columns)
        self._keys, self._judgements = [], []


@dataclass(slots=True)
class Counts:
    """How the answers came about, added up over all calls that got this record.

    Attributes:
        needed: Pairs asked for.
        reused: Of these, pairs found in the store.
        judged: Answers by the judge; the rest of ``needed`` shared the input of another pair.
        cost_usd: What these answers cost, as far as the judge says.
        ahead: Answers that turned out not to be needed, where judging goes on in rounds (evaluator/judging.py).
    """

    needed: int = 0
    reused: int = 0
    judged: int = 0
    cost_usd: float = 0.0
    ahead: int = 0


def stream(
    judge: Judge, fingerprint: str, pairs: Sequence[Pair], store: JudgementStore, counts: Counts | None = None
) -> Iterator[tuple[int, Judgement]]:
    """Yields (position in ``pairs``, judgement), each position once: first what is stored, then as the judge answers.

    Answers are published while they come in; an interrupted call loses nothing that it has yielded, once the iterator
    is closed.

    Args:
        judge: Asked once per input that the store does not have.
        fingerprint: The judge's fingerprint.
        pairs: What to judge.
        store: Refreshed at the beginning.
        counts: Increased while the iterator runs.

    Raises:
        ValueError: The judge broke its protocol; what it answered well has been published.
    """
    counts = Counts() if counts is None else counts
    counts.needed += len(pairs)
    store.refresh()
    missing: dict[bytes, list[int]] = {}
    for start in range(0, len(pairs), _CHUNK):
        positions = range(start, min(start + _CHUNK, len(pairs)))
        keys = [judgement_key(fingerprint, judge.render(pairs[i])) for i in positions]
        for i, key, judgement in zip(positions, keys, store.get_many(keys), strict=True):
            if judgement is None:
                missing.setdefault(key, []).append(i)
            else:
                counts.reused += 1
                yield i, judgement
    if missing:
        yield from _ask(judge, fingerprint, pairs, missing, store, counts)


def _ask(
    judge: Judge,
    fingerprint: str,
    pairs: Sequence[Pair],
    missing: dict[bytes, list[int]],
    store: JudgementStore,
    counts: Counts,
) -> Iterator[tuple[int, Judgement]]:
    name = f"judge {type(judge).__name__} ({fingerprint})"
    keys = list(missing)
    open_ = np.ones(len(keys), np.bool_)
    with store.writer() as writer:
        for answered, judgement in judge.judge([pairs[missing[key][0]] for key in keys]):
            try:
                i = operator.index(answered)
                if not 0 <= i < len(keys):
                    raise ValueError(f"expected a position from 0 to {len(keys) - 1}")
                if not open_[i]:
                    raise ValueError("this position was answered before")
                check_judgement(judgement)
            except (TypeError, ValueError, AttributeError) as error:
                raise ValueError(f"{name} answered position {answered!r} wrongly: {error}") from error
            open_[i] = False
            writer.add(keys[i], judgement)
            counts.judged += 1
            counts.cost_usd += judgement.cost_usd or 0.0
            for position in missing[keys[i]]:
                yield position, judgement
    if open_.any():
        raise ValueError(f"{name} left {open_.sum()} of {len(keys)} pairs unanswered: it must answer each once")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit code: 1 where ``verify`` finds damage, 2 for a user's mistake."""
    from evaluator import bundle  # it needs this module

    flags = bundle.parse_flags(arguments)
    store = JudgementStore(flags.store)
    try:
        if flags.command == "export" and not flags.labels and not store.folder.is_dir():
            raise ValueError(f"there is no store at {store.folder}: name another by --store or --cache")
        if flags.command == "verify":
            return _print_report(store)
        if flags.command == "merge":
            print(bundle.merge(store, flags.bundles))
        else:
            print(bundle.export(store, flags.output, flags.labels, flags.qrels, flags.threshold))
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _print_report(store: JudgementStore) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the same is printed below
        report = store.verify()
    print(f"folder          {store.folder}")
    print(f"segments        {report.segments}")
    print(f"judgements      {report.records - report.duplicates}")
    print(f"duplicates      {report.duplicates}")
    print(f"damaged files   {len(report.damaged)}")
    for name, reason in sorted(report.damaged.items()):
        print(f"  {name}: {reason}")
    return 1 if report.damaged else 0


if __name__ == "__main__":
    sys.exit(main())

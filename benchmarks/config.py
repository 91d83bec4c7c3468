"""One frozen RunConfig: the source of the command line's flags, of a sweep's cells and of the stamp in the results.

Light on purpose: ``--help`` must answer at once, so nothing heavy is imported here.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

from simple_parsing import ArgumentParser, DashVariant, field

DEEPEST = 1_000_000
DESCRIPTION = """Benchmark a retriever for the diversity of perspectives in its top passages.

With no arguments: BM25 on the built-in demo collection. Score a run file of your own against a collection with
--task FOLDER --run FILE, or against TREC subtopic qrels alone with --qrels FILE --run FILE."""


def _flag(default: object, help: str, metavar: str = "", *, identity: bool = True) -> Any:
    """A field with its help; ``identity`` says whether it is part of what identifies a run."""
    how: dict[str, Any] = {"action": "store_true"} if default is False else {"metavar": metavar} if metavar else {}
    if isinstance(default, tuple):
        how |= {"nargs": "+", "required": False}
    elif default is None:
        how["nargs"] = None  # a flag without its value is a mistake
    return field(default=default, help=help, metadata={"identity": identity}, **how)


@dataclass(frozen=True)
class RunConfig:
    """What one run of the benchmark is asked to do; every field is a flag of the same name."""

    # Fields with identity=False say how or how far to run, never what the numbers mean: they are neither hashed into
    # the name of the result's folder nor stored in scores.json.

    task: str | None = _flag(None, "questions: a name or a folder (default: those of --corpus, or demo)", "NAME|FOLDER")
    task_args: tuple[str, ...] = _flag((), "key=value arguments of the task", "KEY=VALUE")
    split: str | None = _flag(None, "questions of this split, or 'all' (default: test if there is one)", "NAME")
    corpus: str | None = _flag(
        None, "passages: a name, a BEIR corpus.jsonl or its folder (default: --task's)", "NAME|PATH"
    )
    corpus_args: tuple[str, ...] = _flag((), "key=value arguments of the corpus", "KEY=VALUE")
    query: Literal["question", "supporting", "opposing"] = _flag(
        "question", "what is sent to the retriever; the stances restrict the run to questions that have both"
    )
    merge: Literal["round_robin", "rrf", "max"] = _flag(
        "round_robin", "how the rankings of several queries of a question become one"
    )
    retriever: str = _flag("bm25", "a name or module:Class", "NAME")
    retriever_args: tuple[str, ...] = _flag((), "key=value arguments of the retriever", "KEY=VALUE")
    run: str | None = _flag(None, "score this run file (TREC, BERDS JSONL, DPR JSON) instead of searching", "FILE")
    expander: str | None = _flag(None, "writes further queries: a name or module:Class (default: none)", "NAME")
    expander_args: tuple[str, ...] = _flag((), "key=value arguments of the expander", "KEY=VALUE")
    expand_for: Literal["search", "aspects", "both"] = _flag(
        "search", "what the expander's queries are for: searching, rerankers' aspects, or both"
    )
    with_duplicates: bool = _flag(
        False,
        "also show the scores of the expander's rankings merged with duplicates, as the code of BERDS does; for "
        "comparison, the run holds each passage once",
        identity=False,
    )
    depth: int = _flag(100, "passages kept per question", "N")
    reranker: tuple[str, ...] = _flag((), "names or module:Class, one after the other (default: none)", "NAME")
    reranker_args: tuple[str, ...] = _flag(
        (), "key=value arguments of the reranker; of several, name.key=value", "KEY=VALUE"
    )
    tuned: str | None = _flag(None, "take the arguments that benchmarks.tune chose and wrote to this file", "FILE")
    tuned_anyway: bool = _flag(
        False, "evaluate even on questions that --tuned was chosen on; the result says so", identity=False
    )
    judge: str | None = _flag(
        None, "'gold' (the qrels), a name or module:Class (default: gold, if there are qrels)", "NAME"
    )
    judge_args: tuple[str, ...] = _flag((), "key=value arguments of the judge", "KEY=VALUE")
    qrels: str | None = _flag(
        None, "TREC subtopic qrels: gold labels, and the questions too where no task is given", "FILE"
    )
    threshold: float = _flag(0.5, "a passage supports a perspective at this probability or above", "P")
    perspectives: Literal["gold", "relevant"] = _flag(
        "gold", "count all gold perspectives of a question (BERDS), or only those with a relevant passage (ndeval)"
    )
    stored_only: bool = _flag(False, "judge nothing: take the judgements that are stored, and count the holes")
    labelled_pairs: str | None = _flag(
        None,
        "pairs that people labelled (.csv, .tsv, .jsonl): also print scores without the judge's errors",
        "FILE",
        identity=False,
    )
    limit: int | None = _flag(
        None,
        "only the first so many questions (rerankers that weigh questions against each other, such as mmr, "
        "still get all of them)",
        "N",
    )
    seed: int = _flag(0, "seed of the bootstrap intervals", "N")
    k: tuple[int, ...] = _flag(
        (), "cut-offs of the default metrics (default: 5 10, as far as --depth goes)", "K", identity=False
    )
    metrics: tuple[str, ...] = _flag(
        (), "metrics by name, such as MRecall@5 alpha_nDCG@10 (default: a set made from --k)", "METRIC", identity=False
    )
    until: Literal["expand", "index", "search", "rerank", "judge", "score"] = _flag(
        "score", "stop after this stage", identity=False
    )
    shard: str | None = _flag(
        None, "do only part i/n (1/4 ... 4/4) of the stage that --until names", "I/N", identity=False
    )
    cache: str | None = _flag(
        None,
        "folder of stores, indexes, rankings, judgements "
        "(default: $RETRIEVAL_DIVERSITY_CACHE, else ~/.cache/retrieval_diversity)",
        "FOLDER",
        identity=False,
    )
    output: str = _flag("results", "folder of the results", "FOLDER", identity=False)
    export: tuple[str, ...] = _flag(
        (), "write the final run here too: .jsonl BERDS, .json DPR, else TREC; .gz compresses", "FILE", identity=False
    )
    overwrite: bool = _flag(
        False, "make the result's files anew, with the judgements that are stored by now", identity=False
    )
    prefetch: bool = _flag(False, "download everything, run nothing", identity=False)
    dry_run: bool = _flag(False, "show what would be done, what is done, what it costs", identity=False)
    list: bool = _flag(False, "list all plug-ins and metrics", identity=False)
    json: bool = _flag(False, "print scores.json and nothing else", identity=False)

    def __post_init__(self) -> None:
        """Check what can be checked without looking at any file."""
        if isinstance(self.reranker, str):
            object.__setattr__(self, "reranker", (self.reranker,))
        for problem, wrong in (
            (f"--depth {self.depth}: give 1 to {DEEPEST}", not 1 <= self.depth <= DEEPEST),
            ("--reranker-args without --reranker", bool(self.reranker_args and not self.reranker)),
            ("--tuned without --reranker", bool(self.tuned and not self.reranker)),
            ("--until rerank: no --reranker is given", self.until == "rerank" and not self.reranker),
            (
                "--expander-args and --expand-for need --expander",
                self.expander is None and bool(self.expander_args or self.expand_for != "search"),
            ),
            (
                "--with-duplicates compares how an expander's rankings are merged: it needs --expander for search, "
                "--merge round_robin, no --reranker, and the scores (no --until)",
                self.with_duplicates
                and (
                    self.expander is None
                    or self.expand_for == "aspects"
                    or self.merge != "round_robin"
                    or bool(self.reranker)
                    or self.until != "score"
                ),
            ),
            (
                "--expander writes queries for questions: leave out --query",
                self.expander is not None and self.query != "question",
            ),
            ("--until expand: no --expander is given", self.until == "expand" and self.expander is None),
            (
                "--until expand --shard: an expander gets all queries at once: leave out --shard",
                self.until == "expand" and self.shard is not None,
            ),
            (
                "--run gives the ranking already: an --expander is then for --expand-for aspects only",
                bool(self.run and self.expander and self.expand_for != "aspects"),
            ),
            (
                f"--until {self.until}: --run gives the ranking already",
                bool(self.run and self.until in ("index", "search")),
            ),
            (
                f"--labelled-pairs corrects scores: leave out --until {self.until}",
                bool(self.labelled_pairs and self.until != "score"),
            ),
            (f"--limit {self.limit}: give 1 or more", self.limit is not None and self.limit < 1),
            (f"--k {min(self.k, default=1)}: a cut-off is 1 or more", min(self.k, default=1) < 1),
            (
                f"--k {max(self.k, default=1)} exceeds --depth {self.depth}: raise --depth or lower --k",
                not self.metrics and max(self.k, default=1) > self.depth,
            ),
            (f"--threshold {self.threshold}: give a probability above 0, up to 1", not 0 < self.threshold <= 1),
            (
                "--run and --retriever exclude each other: a run file is already retrieved",
                bool(self.run and self.retriever != "bm25"),
            ),
            (
                f"--export needs the whole run: leave out --until {self.until}",
                bool(self.export and self.until != "score"),
            ),
            (
                "--run and --retriever-args exclude each other: a run file is already retrieved",
                bool(self.run and self.retriever_args),
            ),
            (
                f"--shard {self.shard} needs --until index, search, rerank or judge: scores are made of the whole",
                self.shard is not None and self.until == "score",
            ),
        ):
            if wrong:
                raise ValueError(problem)
        self.part()

    @property
    def cutoffs(self) -> tuple[int, ...]:
        """The cut-offs of the default metrics, ascending."""
        return tuple(sorted(set(self.k or [k for k in (5, 10) if k <= self.depth] or [self.depth])))

    def part(self) -> tuple[int, int] | None:
        """(i, n) of ``--shard``, i counted from 0; None without it.

        Raises:
            ValueError: Not of the form i/n with 1 <= i <= n.
        """
        if self.shard is None:
            return None
        first, slash, last = self.shard.partition("/")
        if not (slash and first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last)):
            raise ValueError(f"--shard {self.shard}: expected i/n with 1 <= i <= n, for example 1/4 ... 4/4")
        return int(first) - 1, int(last)


class _Help(argparse.RawDescriptionHelpFormatter):
    """Shows a default where there is one and the help does not name it."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=110)

    def _get_help_string(self, action: argparse.Action) -> str:
        shown = " ".join(map(str, action.default)) if isinstance(action.default, tuple) else action.default
        telling = shown not in (None, "", False, argparse.SUPPRESS) and "default" not in (action.help or "")
        return (action.help or "") + (f" (default: {shown})" if telling else "")

    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        return action.dest.rpartition(".")[2].upper()


class _Parser(ArgumentParser):
    """Reports a mistake in one line, without the usage text before it."""

    def format_help(self) -> str:
        for group in self._action_groups:
            if group.title and group.title.startswith(RunConfig.__name__):
                group.title, group.description = "what to run, and how", None
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see --help)")


def parse(arguments: Sequence[str] | None = None) -> RunConfig:
    """The configuration that a command line asks for.

    Raises:
        ValueError: The command line is wrong; the message is one line.
    """
    parser = _Parser(
        prog="python -m benchmarks.run",
        description=DESCRIPTION,
        formatter_class=_Help,
        add_option_string_dash_variants=DashVariant.DASH,
        allow_abbrev=False,
    )
    parser.add_arguments(RunConfig, dest="config")
    config = parser.parse_args(arguments).config
    if not isinstance(config, RunConfig):
        raise TypeError(f"the parser returned {type(config).__name__}")
    return config


class Flags(argparse.ArgumentParser):
    """The parser of another command: the same flags as a run's where it has them, and mistakes in one line."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(prog=prog, description=description, formatter_class=_Help, allow_abbrev=False)

    def add_run_flags(self, names: Sequence[str], **helps: str) -> None:
        """Adds these flags of ``RunConfig``; one that is not given is absent from what the parser returns.

        Args:
            names: Of the fields.
            helps: Name -> help where that of the run does not fit.
        """
        hints, known = get_type_hints(RunConfig), {each.name: each for each in fields(RunConfig)}
        for name in names:
            how = {key: value for key, value in known[name].metadata["custom_args"].items() if key != "required"}
            how["help"] = helps.get(name, how["help"])
            kinds = [kind for kind in get_args(hints[name]) or (hints[name],) if kind not in (type(None), Ellipsis)]
            if get_origin(hints[name]) is Literal:
                how["choices"] = kinds
            elif kinds[0] is not bool:
                how["type"] = kinds[0]
            self.add_argument(f"--{name.replace('_', '-')}", default=argparse.SUPPRESS, **how)

    def error(self, message: str) -> NoReturn:
        """Raises a ValueError."""
        raise ValueError(f"{message} (see --help)")


def identity_fields() -> tuple[str, ...]:
    """Names of the fields that identify a run."""
    return tuple(f.name for f in fields(RunConfig) if f.metadata["identity"])


def existing(path: str, flag: str) -> Path:
    """The path of a flag, checked.

    Raises:
        ValueError: Nothing is there.
    """
    found = Path(path).expanduser()
    if not found.exists():
        raise ValueError(f"{flag} {path}: there is no such file or folder")
    if not (found.is_file() or found.is_dir()):
        raise ValueError(f"{flag} {path}: it is no regular file: write it to one first, because it is read twice")
    return found

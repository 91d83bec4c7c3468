"""The table of metrics, and names such as ``alpha_nDCG(alpha=0.5)@10`` turned into metrics.

A name is a title, parameters in brackets where they differ from their defaults (or to make them explicit), and a
cut-off: ``MRecall@5``, ``NRBP(alpha=0.8,beta=0.5)``. Case does not matter when a name is read, and ``-`` may stand for
``_``.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable

from evaluator.coverage import (
    Both,
    CoverageDepth,
    Covered,
    Judged,
    MRecall,
    Neither,
    OnlyOpposing,
    OnlySupporting,
    OracleMRecall,
    Precision,
    Redundancy,
    StRecall,
)
from evaluator.metric import Labels, Metric, Stances, drop_unsupported, supported
from evaluator.ndeval import NNRBP, NRBP, PIA, AlphaDCG, AlphaNDCG, ApIA, ErrIA, NErrIA

__all__ = ["METRICS", "Labels", "Metric", "Stances", "drop_unsupported", "parse", "parse_all", "supported"]

METRICS: dict[str, type[Metric]] = {
    metric.title: metric
    for metric in (
        MRecall,
        Precision,
        StRecall,
        Covered,
        CoverageDepth,
        OracleMRecall,
        Redundancy,
        Judged,
        OnlySupporting,
        OnlyOpposing,
        Both,
        Neither,
        AlphaDCG,
        AlphaNDCG,
        ErrIA,
        NErrIA,
        NRBP,
        NNRBP,
        ApIA,
        PIA,
    )
}

_NAME = re.compile(r"\s*(?P<title>[A-Za-z][\w-]*)\s*(?:\((?P<parameters>[^()]*)\))?\s*(?:@\s*(?P<k>\d{1,9}))?\s*")


def parse(name: str) -> Metric:
    """The metric of a name.

    Args:
        name: For example ``MRecall@5``.

    Raises:
        ValueError: In one line, where the name is none, with close matches and the list of metrics.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!r} is no metric: expected TITLE@k or TITLE(parameter=value)@k, as in MRecall@5")
    metric = _find(match["title"])
    parameters = _parameters(name, metric, match["parameters"])
    k = None if match["k"] is None else int(match["k"])
    # What a metric refuses comes as ValueError from its constructor.
    return metric(k, given=tuple(parameters), **parameters)


def parse_all(names: Iterable[str]) -> tuple[Metric, ...]:
    """The metrics of several names, each once, sorted by title, parameters and cut-off.

    Args:
        names: Where two names mean the same metric, the shorter one is kept.

    Raises:
        ValueError: With all wrong names at once.
    """
    found: dict[Metric, Metric] = {}
    wrong: list[str] = []
    for name in names:
        try:
            metric = parse(name)
        except ValueError as error:
            wrong.append(str(error))
        else:
            found[metric] = min(metric, found.get(metric, metric), key=lambda each: (len(each.name), each.name))
    if wrong:
        raise ValueError("; ".join(wrong))
    return tuple(sorted(found.values(), key=lambda each: (each.title, each.name.partition("@")[0], each.k or 0)))


def _plain(text: str) -> str:
    return text.lower().replace("-", "_")


def _find(title: str) -> type[Metric]:
    known = {_plain(each): metric for each, metric in METRICS.items()}
    if _plain(title) in known:
        return known[_plain(title)]
    close = difflib.get_close_matches(_plain(title), known, n=3)
    hint = f" Did you mean {' or '.join(known[each].title for each in close)}?" if close else ""
    raise ValueError(f"unknown metric {title!r}.{hint} Metrics: {', '.join(METRICS)}")


def _parameters(name: str, metric: type[Metric], text: str | None) -> dict[str, float]:
    """The parameters in the brackets, in the order of the metric's definition."""
    defaults = metric.parameters()
    given: dict[str, float] = {}
    for part in text.split(",") if text is not None else ():
        key, _, value = (each.strip() for each in part.partition("="))
        key = key.lower()
        if key not in defaults:
            valid = ", ".join(defaults) or "none"
            raise ValueError(f"{name!r}: unknown parameter {key!r}; parameters of {metric.title}: {valid}")
        if key in given:
            raise ValueError(f"{name!r}: {key} is given twice")
        try:
            given[key] = type(defaults[key])(value)
        except ValueError:
            given[key] = math.nan
        if not math.isfinite(given[key]):
            raise ValueError(f"{name!r}: {key} must be a number, as in {key}={defaults[key]}")
    return {key: given[key] for key in defaults if key in given}

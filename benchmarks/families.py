"""Whether an expander is of the model family that wrote the gold perspectives, and so may say what they say."""

from __future__ import annotations

from benchmarks.experiment import Experiment
from lm.families import family_named, family_of


def same_family(experiment: Experiment) -> dict[str, object] | None:
    """The family, the groups and the number of questions whose gold perspectives it wrote; None where there are none.

    The expander's family is its ``family``, else what its ``identity`` or the name of its ``model`` tells; that of the
    gold perspectives is known where the task says so (``gold_families``). What is not known is not marked.
    """
    family = expander_family(experiment.expander)
    gold: dict[str, str] = getattr(experiment.task, "gold_families", {})
    groups = {group for group, wrote in gold.items() if family is not None and family_named(wrote) == family}
    questions = [question for question in experiment.scored if question.group in groups]
    if not questions:
        return None
    return {"family": family, "groups": sorted({each.group for each in questions}), "questions": len(questions)}


def expander_family(expander: object) -> str | None:
    """The family of the language model that writes; None where it is unknown."""
    given = getattr(expander, "family", None)
    if isinstance(given, str) and given.strip():
        return family_named(given)
    names = (str(getattr(expander, name, None) or "") for name in ("identity", "model"))
    return next((family for family in map(family_of, names) if family is not None), None)

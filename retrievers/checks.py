"""Conformance checks for retrievers: call ``check_retriever`` from your own tests.

    from retrievers.checks import check_retriever

    def test_my_retriever():
        check_retriever(MyRetriever)

A retriever that breaks a promise of ``retrievers.base`` raises a CheckError of one line: which promise, and how.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Sequence

from corpora.checks import CheckError, arguments_of, check_kept_arguments
from corpora.memory import MemoryCorpus
from corpora.types import Hit, Passage, Query, Ranking
from retrievers.base import Retriever

__all__ = ["PASSAGES", "QUERIES", "CheckError", "check_retriever"]

Make = Callable[[], Retriever]

_TWIN = "A carbon tax makes polluters pay for the damage."
PASSAGES = (
    *(Passage(f"twin-{i}", _TWIN) for i in (7, 2, 9, 4, 0, 5)),
    Passage("tax-1", "A carbon tax is a burden for poor families who drive to work.", "Carbon tax"),
    Passage("tax-2", "Money from the tax can be paid back to families.", "Carbon tax"),
    Passage("school", "School uniforms hide differences between rich and poor pupils."),
    Passage("uniform", "Uniforms take away the freedom of pupils to dress as they like.", "School uniforms"),
    Passage("vote", "Young people should vote, because they live longest with the result."),
    Passage("émigré", "Ein Tempolimit auf Autobahnen rettet Leben; 速度限制可以挽救生命。 Ограничение скорости 🚗"),
    Passage("empty", ""),
    *(Passage(f"twin-{i}", _TWIN) for i in (1, 8, 3, 6)),
)
"""The corpus of the checks: ten passages with one text, titles, several scripts, and one without text."""

QUERIES = (
    Query("q1", "q1", "Should polluters pay a carbon tax?"),
    Query("q2", "q2", "Should pupils wear school uniforms?"),
    Query("q3", "q3", "Should young people vote?"),
    Query("q4", "q4", "Rettet ein Tempolimit Leben? 速度限制 скорости 🚗"),
    Query("q5", "q5", ""),
    Query("q6", "q6", "zzzzqqqq ?!"),
    Query("q7", "q7", "tax"),
)
"""The queries of the checks: the fifth is empty, and no passage has a word of the sixth."""


def check_retriever(retriever: Retriever | Make, *, reads_text: bool = True) -> None:
    """Check a retriever against every promise that ``retrievers.base`` asks for.

    Args:
        retriever: A class or function that makes one without arguments, or an instance, which is copied by its
            constructor's arguments. Several are made, and each indexes a few corpora of at most 17 passages.
        reads_text: False for retrievers that answer by question and not by text (a run file): the checks that ask
            other queries or other corpora are left out. Such a run should be about ``PASSAGES`` and ``QUERIES``.

    Raises:
        CheckError: The first promise that is broken.
    """
    make = _maker(retriever)
    name = getattr(retriever, "__name__", type(retriever).__name__)
    for check in (*FORM_CHECKS, *(TEXT_CHECKS if reads_text else ())):
        try:
            check(make)
        except CheckError as error:
            raise CheckError(f"{name} fails {check.__name__}: {error}") from None
        except Exception as error:
            raise CheckError(f"{name} fails {check.__name__}: it raises {type(error).__name__}: {error}") from error


def check_constructor(make: Make) -> None:
    """The constructor keeps its arguments under their own names, and nothing else happens in it."""
    check_kept_arguments(make())


def check_form(make: Make) -> None:
    """One ranking per query: at most k hits, known passages, none twice, finite scores, best first, ties by id."""
    index = make().index(MemoryCorpus(PASSAGES))
    for k in (1, 5, len(PASSAGES), 1000):
        _search(index, QUERIES, k, PASSAGES)
    if index.search([], 5):
        raise CheckError("no queries got rankings")


def check_prefix(make: Make) -> None:
    """A smaller k gives the beginning of the ranking that a larger k gives."""
    index = make().index(MemoryCorpus(PASSAGES))
    whole = _search(index, QUERIES, 1000, PASSAGES)
    for k in (1, 2, 5):
        _compare(_search(index, QUERIES, k, PASSAGES), [ranking[:k] for ranking in whole], f"k={k} and k=1000")


def check_repeatable(make: Make) -> None:
    """The same rankings from a second search, a second index, and a second retriever."""
    corpus, retriever = MemoryCorpus(PASSAGES), make()
    index = retriever.index(corpus)
    first = _search(index, QUERIES, 8, PASSAGES)
    _compare(_search(index, QUERIES, 8, PASSAGES), first, "a second search")
    _compare(_search(retriever.index(corpus), QUERIES, 8, PASSAGES), first, "a second index of the same corpus")
    _compare(_search(make().index(corpus), QUERIES, 8, PASSAGES), first, "a second retriever")


def check_other_corpus(make: Make) -> None:
    """An index stays what it is when the same retriever indexes another corpus."""
    retriever = make()
    index = retriever.index(MemoryCorpus(PASSAGES))
    first = _search(index, QUERIES, 8, PASSAGES)
    retriever.index(MemoryCorpus(PASSAGES[:8]))
    _compare(_search(index, QUERIES, 8, PASSAGES), first, "the first index, after another corpus was indexed")


def check_batch(make: Make) -> None:
    """A query's ranking is at its own place, and depends neither on the other queries nor on their order."""
    index = make().index(MemoryCorpus(PASSAGES))
    whole = _search(index, QUERIES, 8, PASSAGES)
    single = [_search(index, [query], 8, PASSAGES)[0] for query in QUERIES]
    _compare(whole, single, "all queries at once and one by one")
    _compare(_search(index, QUERIES[::-1], 8, PASSAGES)[::-1], whole, "another order of the queries")


def check_ties(make: Make) -> None:
    """Passages with one text get one score and stand in the order of their identifiers, at the cut too."""
    twins = [passage for passage in PASSAGES if passage.text == _TWIN]
    index = make().index(MemoryCorpus([*twins, PASSAGES[8]]))
    other = PASSAGES[8].passage_id
    whole = [hit for hit in _search(index, QUERIES[:1], 1000, [*twins, PASSAGES[8]])[0] if hit.passage_id != other]
    if whole and not math.isclose(whole[0].score, whole[-1].score, rel_tol=1e-4, abs_tol=1e-6):
        raise CheckError(f"one text has the scores {whole[0].score!r} and {whole[-1].score!r}")
    if len({hit.score for hit in whole}) == 1:
        expected = sorted(hit.passage_id for hit in whole)[:4]
        found = [hit.passage_id for hit in _search(index, QUERIES[:1], 4, [*twins, PASSAGES[8]])[0]]
        if found != expected and other not in found:
            raise CheckError(f"of equal passages, k=4 gives {found}, expected the first by identifier {expected}")


def check_query_text(make: Make) -> None:
    """Only a query's text counts: its identifiers and its origin change nothing."""
    index = make().index(MemoryCorpus(PASSAGES))
    renamed = [Query(f"x{i}", "other", query.text, "expansion:3") for i, query in enumerate(QUERIES)]
    whole = _search(index, QUERIES, 8, PASSAGES)
    _compare(_search(index, renamed, 8, PASSAGES), whole, "other query_id, question_id and origin")


def check_small_corpora(make: Make) -> None:
    """A corpus of one passage, and one whose passages have no text, can be searched."""
    for passages in ([PASSAGES[0]], [PASSAGES[12]], [Passage("a", ""), Passage("b", " "), Passage("c", "?!")]):
        index = make().index(MemoryCorpus(passages))
        for k in (1, 5):
            _search(index, QUERIES, k, passages)


def check_local_scores(make: Make) -> None:
    """Who declares ``local_scores`` finds the same in parts of a corpus, merged, as in the whole."""
    retriever = make()
    if not getattr(retriever, "local_scores", False):
        return
    corpus = MemoryCorpus(PASSAGES, block_rows=5)
    whole = _search(retriever.index(corpus), QUERIES, 8, PASSAGES)
    parts = [_search(retriever.index(corpus.part(i, 3)), QUERIES, 8, tuple(corpus.part(i, 3))) for i in range(3)]
    found = [itertools.chain(*rankings) for rankings in zip(*parts, strict=True)]
    merged = [tuple(sorted(hits, key=lambda hit: (-hit.score, hit.passage_id))[:8]) for hits in found]
    _compare(merged, whole, "three parts merged (local_scores is declared)")


FORM_CHECKS: tuple[Callable[[Make], None], ...] = (
    check_constructor,
    check_form,
    check_prefix,
    check_repeatable,
    check_batch,
)
TEXT_CHECKS: tuple[Callable[[Make], None], ...] = (
    check_other_corpus,
    check_ties,
    check_query_text,
    check_small_corpora,
    check_local_scores,
)


def _maker(retriever: Retriever | Make) -> Make:
    if inspect.isclass(retriever) or not hasattr(retriever, "index"):
        return retriever  # type: ignore[return-value]
    cls: Callable[..., Retriever] = type(retriever)
    return lambda: cls(**arguments_of(retriever))


def _search(index: object, queries: Sequence[Query], k: int, passages: Iterable[Passage]) -> list[Ranking]:
    """Search, and check the form of what comes back."""
    rankings = list(index.search(queries, k))  # type: ignore[attr-defined]
    if len(rankings) != len(queries):
        raise CheckError(f"{len(queries)} queries got {len(rankings)} rankings: give one each, in the same order")
    known = {passage.passage_id for passage in passages}
    for query, ranking in zip(queries, rankings, strict=True):
        problem = _problem(ranking, k, known)
        if problem:
            raise CheckError(f"query {query.text!r}, k={k}, {len(known)} passages: {problem}")
    return rankings


def _problem(ranking: Ranking, k: int, known: set[str]) -> str | None:
    """What is wrong with one ranking."""
    odd = [hit for hit in ranking if not isinstance(hit, Hit)]
    if odd:
        return f"found {odd[0]!r}, expected a Hit"
    ids = [hit.passage_id for hit in ranking]
    unknown = [passage_id for passage_id in ids if passage_id not in known]
    repeated = [passage_id for i, passage_id in enumerate(ids) if passage_id in ids[:i]]
    bad = [h for h in ranking if not isinstance(h.score, float) or not math.isfinite(h.score)]
    if unknown:
        return f"passage {unknown[0]!r} is not in the corpus"
    if repeated:
        return f"passage {repeated[0]!r} is there twice"
    if len(ranking) > k:
        return f"{len(ranking)} hits, expected at most {k}"
    if bad:
        return f"passage {bad[0].passage_id!r} has the score {bad[0].score!r}, expected a finite float"
    for better, worse in itertools.pairwise(ranking):
        if better.score < worse.score:
            return f"score {better.score!r} stands before {worse.score!r}, expected the best first"
        if better.score == worse.score and better.passage_id > worse.passage_id:
            return f"{better.passage_id!r} is before {worse.passage_id!r} with an equal score: sort ties by identifier"
    return None


def _compare(found: Sequence[Ranking], expected: Sequence[Ranking], what: str) -> None:
    """Rankings are the same but for rounding: passages may change places only where their scores nearly tie."""
    for query, a, b in zip(QUERIES, found, expected, strict=True):
        alike = len(a) == len(b) and all(_near(x.score, y.score) for x, y in zip(a, b, strict=True))
        scores = {hit.passage_id: hit.score for hit in b}
        last = b[-1].score if b else 0.0
        if not alike or not all(_near(hit.score, scores.get(hit.passage_id, last)) for hit in a):
            shown = [[f"{hit.passage_id}:{hit.score:.6g}" for hit in ranking[:4]] for ranking in (a, b)]
            raise CheckError(f"{what}: query {query.text!r} gives {shown[0]} and {shown[1]}, expected the same")


def _near(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-6)

"""Negation by rule: what it says, and where it gives up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.negation import negate


@pytest.mark.parametrize(
    ("text", "negation"),
    [
        ("Abortion should be legal.", "Abortion should not be legal."),
        ("Abortion should not be legal.", "Abortion should be legal."),
        ("Zoos are cruel", "Zoos are not cruel"),
        ("Trains can be noisy.", "Trains cannot be noisy."),
        ("Farmers can’t survive", "Farmers can survive"),  # noqa: RUF001
        ("We shouldn't ban books.", "We should ban books."),
        ("Tests don't help pupils.", "Tests do help pupils."),
        ("A tax leads to unrest.", "A tax does not lead to unrest."),
        ("It relies on luck.", "It does not rely on luck."),
        ("He teaches badly.", "He does not teach badly."),
        ("It has increased crime.", "It has not increased crime."),
        ("Yes, it should be allowed.", "It should not be allowed."),
        ("No, women must never decide.", "Women must decide."),
        ("People who are poor should be helped.", "People who are poor should not be helped."),
        ("If taxes are low, shops will open.", "If taxes are low, shops will not open."),
        ("The main causes are clear.", "The main causes are not clear."),
        ("What will be to come is good.", "What will be to come is not good."),
    ],
)
def test_negations(text, negation):
    assert negate(text) == negation


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Yes.",
        "No",
        "Danger of censorship.",
        "Should abortion be legal?",
        "Some people should be helped.",  # "some should not" may be true as well
        "It may be cruel.",
        "It is not only cruel.",
        "It can only help.",
        "It is not true that it is not cruel.",
        "Nobody should be poor.",
        "It should be banned. It is cruel.",
        "It is cruel; it is dear.",
        "The study proves the tax is bad.",
        "should be banned",
        "They seem to have gained weight.",
    ],
)
def test_it_gives_up_rather_than_guess(text):
    assert negate(text) is None


WORDS = st.sampled_from(["taxes", "help", "poor", "people", "very", "good,", "the", "state", "(now)"])


@given(
    st.lists(WORDS, min_size=1, max_size=4),
    st.sampled_from(["should", "must", "will", "would", "can", "could", "is", "are", "were"]),
    st.lists(WORDS, min_size=1, max_size=5),
)
def test_twice_negated_is_what_it_was(before, auxiliary, after):
    text = " ".join([*before, auxiliary, *after])
    once = negate(text)
    assert (once is None) == before[-1].endswith(",")  # nothing stands between the comma and the auxiliary
    if once is not None:
        assert once != text
        assert negate(once) == text


@given(st.text())
def test_any_text_is_taken(text):
    negation = negate(text)
    assert negation is None or negation != text

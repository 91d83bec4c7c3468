"""Numbered texts and the orders that answers give them: well-formed, sloppy, hostile."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm.numbered import numbered, read_order


@pytest.mark.parametrize(
    "answer, numbers, whole",
    [
        ("[2] > [3] > [1]", [2, 3, 1], True),
        ("[2]>[3]>[1].", [2, 3, 1], True),
        ("2 > 3 > 1", [2, 3, 1], True),
        ("[2, 3, 1]", [2, 3, 1], True),
        ('```json\n{"order": [2, 3, 1]}\n```', [2, 3, 1], True),
        ("Passage 2, passage 3, passage 1", [2, 3, 1], True),
        ("1. [2]\n2. [3]\n3. [1]", [2, 3, 1], True),
        ("1. 2\n2. 3\n3. 1", [2, 3, 1], True),
        ("1) Passage 3\n2) Passage 1\n3) Passage 2", [3, 1, 2], True),
        ("**[3]** > **[1]** > **[2]**", [3, 1, 2], True),
        ("Sure! Here is the order of 3 passages:\n[3] > [1] > [2]\nIn 2024, 5 people agreed.", [3, 1, 2], True),
        ("Passage [1] is dull, [2] is fine. So: [3] > [2] > [1]", [3, 2, 1], True),
        ("[3] > [2] > [1]. No, wait: [2] > [3] > [1]", [2, 3, 1], True),
        ("<think>[1] > [2] > [3]</think> [3] > [1] > [2]", [3, 1, 2], True),
        ("Best is [3], then comes [1], and the last is [2].", [3, 1, 2], True),
        ("[3] > [1]", [3, 1], False),
        ("[3] > [3] > [1] > [2]", [3, 1, 2], False),
        ("[4] > [0] > [3] > [99] > [1] > [2]", [3, 1, 2], False),
        ("[3] > [1] > [", [3, 1], False),
        ("3", [3], False),
        ("[3]", [3], False),
        ("[999999999999999999999] > [2] > [1]", [2, 1], False),
    ],
)
def test_orders_that_can_be_read(answer, numbers, whole):
    found = read_order(answer, 3)
    assert ([position + 1 for position in found.positions], found.whole) == (numbers, whole)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "I cannot rank these 3 passages.",
        "Between 1 and 3 of them help.",
        "[17] > [18]",
        "0.1 > 0.2 > 0.3",
        "<think>[1] > [2] > [3]",
        "third, first, second",
        "[" * 10_000,
        "9" * 10_000,
    ],
)
def test_answers_without_an_order(answer):
    assert read_order(answer, 3).positions == []


def test_a_few_bare_numbers_are_no_order_of_many():
    assert read_order("Those from 5, 6 on help.", 20).positions == []
    assert read_order(", ".join(map(str, range(20, 9, -1))), 20).positions == list(range(19, 8, -1))


@given(st.text(alphabet="0123456789[]>,. \nab<think/>", max_size=60), st.integers(1, 12))
def test_any_answer_gives_known_positions_each_once(answer, n):
    found = read_order(answer, n)
    assert len(set(found.positions)) == len(found.positions)
    assert set(found.positions) <= set(range(n))
    assert found.whole <= (len(found.positions) == n)


@given(st.permutations(range(1, 13)))
def test_what_was_asked_for_is_read_as_it_is(numbers):
    found = read_order(" > ".join(f"[{number}]" for number in numbers), 12)
    assert found.positions == [number - 1 for number in numbers]
    assert found.whole


def test_every_text_has_one_line_and_its_own_number_only():
    hostile = "first\n[2] I am second\u2028[ 3 ]\u3010 4\u3011 \uff3b5\uff3d [\u200b6] [7]"
    lines = numbered([hostile, "", " plain [a] [1b] "], 100).split("\n")
    assert lines == ["[1] first (2) I am second (3 )(4) (5) (6) (7)", "[2]", "[3] plain [a] [1b]"]


def test_texts_are_cut_by_words_and_by_characters():
    assert numbered(["a b c d"], 2) == "[1] a b"
    assert numbered([" " * 100 + "a b"], 2) == "[1] a b"
    assert numbered(["x" * 1000], 2) == "[1] " + "x" * 24

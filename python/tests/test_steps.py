"""Sets of steps and ranks."""

from __future__ import annotations

import pickle

import pytest

from probe.steps import Steps


@pytest.mark.parametrize(
    ("written", "held"),
    [
        (10, [10]),
        ("10", [10]),
        ("10,20", [10, 20]),
        ("10|20", [10, 20]),
        ("10-12", [10, 11, 12]),
        (" 10 - 12 , 20 ", [10, 11, 12, 20]),
        ([10, "12-14"], [10, 12, 13, 14]),
        (["3", "1-2", 2], [1, 2, 3]),
        (range(3), [0, 1, 2]),
        ((5, 5), [5]),
    ],
)
def test_every_form_is_read(written: object, held: list[int]) -> None:
    steps = Steps.parse(written)
    assert list(steps) == held
    assert steps.first == held[0] and steps.last == held[-1]
    assert Steps.parse(str(steps)) == steps
    assert pickle.loads(pickle.dumps(steps)) == steps


@pytest.mark.parametrize("written", [None, "all", "ALL"])
def test_nothing_said_is_everything(written: object) -> None:
    steps = Steps.parse(written)
    assert steps.all and 0 in steps and 10**9 in steps and -1 not in steps
    assert steps.last is None and str(steps) == "all"
    with pytest.raises(ValueError, match="no end"):
        list(steps)


@pytest.mark.parametrize(
    ("written", "part"),
    [
        ("1o", "'1o' is not a number or range"),
        ("10,,20", "'' in '10,,20'"),
        ("12-10", "ends before it begins"),
        ("", "is not a number"),
        ("-3", "'-3' is not a number"),
        (-3, "below 0"),
        (True, "True is not a number"),
        (1.5, "1.5 is not a number"),
        ([1, None], "None is not a number"),
        ([], "holds no number"),
        ({"a": 1}, "is not a number"),
        ("1-99999999999999", "beyond"),
    ],
)
def test_what_cannot_be_read_is_said(written: object, part: str) -> None:
    with pytest.raises(ValueError, match="^[^\n]*$") as error:
        Steps.parse(written)
    assert part in str(error.value)


def test_a_large_range_costs_nothing() -> None:
    steps = Steps.parse("5-999999999999")
    assert 10**11 in steps and steps.last == 999999999999


def test_the_next_selected_step_is_known() -> None:
    steps = Steps.parse("3-4,9")
    assert [steps.next_from(number) for number in (0, 3, 4, 5, 9, 10)] == [3, 3, 4, 9, 9, None]
    assert Steps().next_from(7) == 7


def test_a_set_is_a_value() -> None:
    assert Steps.parse("1,2") == Steps.parse("1-2") and hash(Steps.parse("1,2")) == hash(Steps.parse([2, 1]))
    assert Steps() != Steps.parse("0-100")
    with pytest.raises(AttributeError):
        Steps()._ranges = ()  # type: ignore[misc]

"""Errors that tell of several things, and what is added to them."""

import pytest

from orchestrator.errors import ConfigError, InvalidValueError, Problem, SeveralErrors, StoreError, each_of, noted


def halved(number: int) -> int:
    if number % 2:
        raise InvalidValueError(f"{number} is odd")
    return number // 2


def test_what_is_wrong_with_each_is_told_once() -> None:
    assert each_of(halved, [4, 2]) == [2, 1]
    with pytest.raises(SeveralErrors) as several:
        each_of(halved, [4, 3, 5, 3])
    assert str(several.value).splitlines() == ["3 is odd", "5 is odd"]


def test_the_only_error_stays_what_it_is() -> None:
    with pytest.raises(InvalidValueError, match=r"^3 is odd$"):
        each_of(halved, [3, 4, 3])


def test_notes_are_lines_of_the_message_whatever_the_class() -> None:
    for error in (StoreError("nothing"), ConfigError([Problem(origin="nothing", message="here")])):
        before = str(error)
        with pytest.raises(type(error)) as caught, noted(["a is corrupt", "b is corrupt"]):
            raise error
        assert str(caught.value).splitlines() == [before, "a is corrupt", "b is corrupt"]

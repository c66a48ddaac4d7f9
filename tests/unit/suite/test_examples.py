"""How many examples a run draws."""

import pytest

from tests.unit.examples import VARIABLE, at_most, count


@pytest.mark.parametrize(
    ("most", "environment", "expected"),
    [
        (60, {}, 15),
        (3, {}, 3),
        (6, {}, 4),
        (60, {VARIABLE: ""}, 15),
        (60, {VARIABLE: "1"}, 60),
        (3, {VARIABLE: "5"}, 15),
    ],
)
def test_a_run_draws_a_share_of_what_a_test_is_worth(most, environment, expected):
    """A quarter of them, but four if there are as many; the variable says what share, or how many times more."""
    assert count(most, environment) == expected
    assert at_most(most).deadline is None

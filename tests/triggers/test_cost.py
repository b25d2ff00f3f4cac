"""Costs of triggers. The targets hold on a quiet core; here a shared machine is given some room."""

from __future__ import annotations

import pytest

from duly.bench.scenarios.triggers import figures as measure

COMPILE_US, NEXT_US, COHORT_HIT_US, WORST_US = 200, 10, 1, 5_000
ROOM_IN_CI = 5


def figures() -> dict[str, float]:
    return {name: float(value) for name, value in measure().items() if name != "worst_input"}


def test_the_cost_is_within_reach_of_its_targets():
    found = figures()
    assert found["compile_us_median"] < COMPILE_US * ROOM_IN_CI
    assert found["next_us_median"] < NEXT_US * ROOM_IN_CI
    assert found["cohort_hit_us"] < COHORT_HIT_US * ROOM_IN_CI
    assert found["worst_us"] < WORST_US * ROOM_IN_CI


@pytest.mark.proof
def test_the_cost_is_within_its_targets():
    found = figures()
    assert found["compile_us_max"] < COMPILE_US
    assert found["next_us_median"] < NEXT_US
    assert found["cohort_hit_us"] < COHORT_HIT_US
    assert found["worst_us"] < WORST_US

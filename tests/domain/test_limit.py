"""Limits as a worker knows them: what has become narrower since it last looked."""

import msgspec

from duly.domain.limits.limit import StandingLimits
from duly.domain.limits.pause import Scope
from tests.builders import a_run


def covered(now: dict[Scope, int], before: dict[Scope, int], **changes) -> bool:
    run = msgspec.structs.replace(a_run(), **changes)
    return StandingLimits(now).narrowed_since(StandingLimits(before)).cover(run)


def test_a_new_limit_and_a_lower_one_are_narrower():
    assert covered({Scope(): 5}, {})
    assert covered({Scope(queue="default"): 4}, {Scope(queue="default"): 5})


def test_limit_that_is_unchanged_higher_or_removed_is_not_narrower():
    assert not covered({Scope(): 5}, {Scope(): 5})
    assert not covered({Scope(): 6}, {Scope(): 5})
    assert not covered({}, {Scope(): 5})


def test_narrowed_limit_leaves_runs_outside_its_scope():
    assert not covered({Scope(tenant=2): 1}, {})
    assert covered({Scope(tenant=2): 1}, {}, tenant=2)
    assert not covered({Scope(2, "mail"): 1}, {}, tenant=2)

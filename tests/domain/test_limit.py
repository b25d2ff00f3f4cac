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


def test_one_that_stands_is_higher_or_is_gone_is_not():
    assert not covered({Scope(): 5}, {Scope(): 5})
    assert not covered({Scope(): 6}, {Scope(): 5})
    assert not covered({}, {Scope(): 5})


def test_what_it_does_not_cover_is_left_alone():
    assert not covered({Scope(tenant=2): 1}, {})
    assert covered({Scope(tenant=2): 1}, {}, tenant=2)
    assert not covered({Scope(2, "mail"): 1}, {}, tenant=2)

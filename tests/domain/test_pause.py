"""Holds: which runs they cover, in words and in fact."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.domain.limits.pause import EVERYTHING, SCOPE_KINDS, Pauses, Scope
from tests.worker.stories import a_run

scopes = st.builds(
    Scope, st.one_of(st.none(), st.sampled_from([1, 2])), st.one_of(st.none(), st.sampled_from(["mail", "night"]))
)


@pytest.mark.parametrize(
    ("scope", "words", "kind"),
    [
        (EVERYTHING, "everything", "everything"),
        (Scope(queue="mail"), "queue mail", "queue"),
        (Scope(tenant=7), "tenant 7", "tenant"),
        (Scope(7, "mail"), "queue mail of tenant 7", "queue_of_tenant"),
    ],
)
def test_pause_scope_has_a_description_and_a_kind(scope, words, kind):
    assert (str(scope), scope.kind) == (words, kind)
    assert kind in SCOPE_KINDS


@given(st.lists(scopes, max_size=3), st.sampled_from([1, 2]), st.sampled_from(["mail", "night"]))
def test_a_run_is_held_if_one_of_the_holds_names_nothing_else(held, tenant, queue):
    expected = any(scope.tenant in (None, tenant) and scope.queue in (None, queue) for scope in held)

    assert Pauses(held).cover(a_run(tenant=tenant, queue=queue)) is expected


@given(scopes, scopes)
def test_two_scopes_touch_if_a_run_could_belong_to_both(one, other):
    runs = [a_run(tenant=tenant, queue=queue) for tenant in (1, 2, 3) for queue in ("mail", "night", "day")]
    both = any(Pauses([one]).cover(run) and Pauses([other]).cover(run) for run in runs)

    assert one.touches(other) is other.touches(one) is both


def test_holds_are_the_same_if_they_hold_the_same():
    assert Pauses([Scope(queue="a"), Scope(2)]) == Pauses([Scope(2), Scope(queue="a"), Scope(2)])
    assert Pauses([Scope(2)]) != Pauses([Scope(queue="2")])
    assert not Pauses()
    assert Pauses([EVERYTHING])

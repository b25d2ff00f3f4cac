"""The declaration of a schedule that is in force, for every case there is."""

from datetime import UTC, datetime
from uuid import UUID

import msgspec
import pytest

from duly.domain.jobs.declaration import REMOVED, Declarations, Standing, Step, decide, digests_by_name, entry
from duly.domain.jobs.job import Recurring

OLD, NEW, NEWEST = b"old", b"new", b"newest"
AT = datetime(2026, 11, 2, 9, tzinfo=UTC)
JOB = Standing(UUID(int=1), "app:nightly", "code", "app:app", "active", None, 1, NEW, (OLD, NEW))


def standing(**changes):
    return msgspec.structs.replace(JOB, **changes)


def test_declared_job_that_does_not_exist_is_created():
    assert decide(NEW, None, {NEW}) is Step.CREATE
    assert decide(None, None, set()) is Step.LEAVE


def test_job_that_matches_its_declaration_stays_unchanged():
    assert decide(NEW, JOB, {NEW}) is Step.LEAVE
    assert decide(NEW, JOB, {OLD, NEW}) is Step.LEAVE


def test_unknown_declaration_takes_effect_immediately():
    assert decide(NEWEST, JOB, {NEW, NEWEST}) is Step.CHANGE


def test_an_older_one_yields_while_the_one_in_force_is_declared():
    assert decide(OLD, JOB, {OLD, NEW}) is Step.YIELD


def test_older_declaration_returns_when_the_current_declaration_disappears():
    assert decide(OLD, JOB, {OLD}) is Step.CHANGE


def test_rollback_restores_the_most_recent_older_declaration():
    three = standing(definition=NEWEST, definitions=(OLD, NEW, NEWEST))

    assert decide(OLD, three, {OLD, NEW}) is Step.YIELD
    assert decide(NEW, three, {OLD, NEW}) is Step.CHANGE


def test_job_created_over_the_api_is_not_changed_by_a_declaration():
    assert decide(NEW, standing(owner="api"), {NEW}) is Step.CONFLICT
    assert decide(None, standing(owner="api"), set()) is Step.LEAVE


def test_undeclared_job_is_removed_a_single_time():
    assert decide(None, JOB, {OLD}) is Step.LEAVE
    assert decide(None, JOB, set()) is Step.REMOVE
    assert decide(None, standing(removed_at=AT), set()) is Step.LEAVE


@pytest.mark.parametrize("state", ["paused", "active"])
def test_removed_job_is_restored_when_it_is_declared_again(state):
    assert decide(NEW, standing(state=state, pause_reason=REMOVED, removed_at=AT), {NEW}) is Step.RESTORE


def test_a_removal_cut_short_is_taken_back_too():
    assert decide(NEW, standing(state="paused", pause_reason=REMOVED), {NEW}) is Step.RESTORE


def test_a_persons_pause_is_left():
    assert decide(NEW, standing(state="paused", pause_reason="paused on request"), {NEW}) is Step.LEAVE


def test_completed_job_stays_completed_until_a_new_declaration():
    over = standing(state="completed")

    assert decide(NEW, over, {NEW}) is Step.LEAVE
    assert decide(OLD, over, {OLD, NEW}) is Step.YIELD
    assert decide(NEWEST, over, {NEWEST}) is Step.CREATE
    assert decide(OLD, over, {OLD}) is Step.CREATE
    assert decide(None, over, set()) is Step.LEAVE


def test_declarations_of_workers_are_indexed_by_tenant_and_name():
    job = Recurring("nightly", "{}", "default", 5, {"trigger": {}}, "a/b:c|d")
    shown = [
        *Declarations(1, "app:app", [job]).entries(),
        entry(1, "x", OLD),
        entry(1, "x", NEW),
        entry(2, "x", NEWEST),
    ]

    assert digests_by_name(shown, 1) == {"a/b:c|d": {job.digest()}, "x": {OLD, NEW}}

"""API keys: what they look like, what they are good for, and that they are not seen."""

import pickle
from datetime import timedelta

import msgspec
import pytest

from duly.clock import Rng
from duly.domain.errors import InvalidOption
from duly.domain.tenancy.api_key import ApiKey, Scope, Secret, implied_by, new_key, parse, read_scopes, written
from tests.clock import START

SECRET = Secret("a" * 39)


def a_key(**changes) -> ApiKey:
    """Give a key that is good for reading."""
    key = ApiKey(
        key_id="abcdefghij",
        tenant=1,
        tenant_name="default",
        tenant_state="active",
        tenant_rate=None,
        name="ours",
        secret_hash=SECRET.digest(),
        scopes=frozenset({Scope.JOBS_READ}),
        rate=None,
        created_at=START,
        expires_at=None,
        revoked_at=None,
        last_used_at=None,
    )
    return msgspec.structs.replace(key, **changes)


def test_a_key_that_was_drawn_can_be_read_again():
    key_id, secret = new_key(Rng().secret)

    assert parse(written(key_id, secret).reveal()) == (key_id, secret)


def test_no_two_keys_are_alike():
    rng = Rng()

    drawn = [new_key(rng.secret) for _ in range(1000)]

    assert len({key_id for key_id, _ in drawn}) == len({secret.reveal() for _, secret in drawn}) == 1000


def test_a_secret_holds_192_bits():
    assert len(new_key(bytes)[1].reveal()) * 5 >= 192


@pytest.mark.parametrize(
    "text",
    [
        "",
        "duly__",
        "duly_abcdefghij",
        "duly_abcdefghij_",
        f"duly_abcdefghij_{'a' * 38}",
        f"duly_abcdefghij_{'a' * 40}",
        f"duly_abcdefghi_{'a' * 39}",
        f"duly_abcdefghij_{'A' * 39}",
        f"duly_abcdefghij_{'1' * 39}",
        f" duly_abcdefghij_{'a' * 39}",
        f"duly_abcdefghij_{'a' * 39}\n",
        f"Duly_abcdefghij_{'a' * 39}",
    ],
)
def test_text_that_is_not_an_api_key_parses_to_none(text):
    assert parse(text) is None


def test_a_key_is_opened_by_its_own_secret_alone():
    assert a_key().is_opened_by(Secret("a" * 39))
    assert not a_key().is_opened_by(Secret("a" * 38 + "b"))
    assert not a_key().is_opened_by(Secret(""))


def test_a_key_is_usable_until_it_expires_or_is_revoked():
    soon = timedelta(seconds=1)

    assert a_key().is_usable(START)
    assert a_key(expires_at=START + soon).is_usable(START)
    assert not a_key(expires_at=START).is_usable(START)
    assert not a_key(revoked_at=START).is_usable(START - soon)


ALL = set(Scope)


@pytest.mark.parametrize(
    ("scope", "good_for"),
    [
        (Scope.JOBS_READ, {Scope.JOBS_READ}),
        (Scope.JOBS_WRITE, {Scope.JOBS_READ, Scope.JOBS_WRITE}),
        (Scope.JOBS_TRIGGER, {Scope.JOBS_TRIGGER}),
        (Scope.WORKER, {Scope.WORKER}),
        (Scope.ADMIN, ALL),
    ],
)
def test_scope_allows_the_scopes_it_implies(scope, good_for):
    key = a_key(scopes=frozenset({scope}))

    assert implied_by([scope]) == good_for
    assert {wanted for wanted in ALL if key.allows(wanted)} == good_for


def test_scopes_are_read_and_unknown_ones_are_named():
    assert read_scopes(["worker", "jobs:read"]) == {Scope.WORKER, Scope.JOBS_READ}
    with pytest.raises(InvalidOption, match="scope 'jobs:delete' is none of jobs:read, jobs:write"):
        read_scopes(["jobs:delete"])
    with pytest.raises(InvalidOption, match="a key needs a scope"):
        read_scopes([])


class TestSecret:
    def test_secret_is_masked_in_every_text_form(self):
        secret = Secret("canary")

        shown = [
            str(secret),
            repr(secret),
            f"{secret}",
            f"{secret!r:>5}",
            str({"key": secret}),
            str([secret]),
        ]

        assert not any("canary" in text for text in shown)
        assert str(secret) == "***"

    def test_secret_cannot_be_serialized(self):
        with pytest.raises(TypeError):
            pickle.dumps(Secret("canary"))
        with pytest.raises(TypeError):
            msgspec.json.encode(Secret("canary"))

    def test_secret_equals_only_the_same_secret(self):
        assert Secret("a") == Secret("a")
        assert Secret("a") != Secret("b")
        assert Secret("a") != "a"

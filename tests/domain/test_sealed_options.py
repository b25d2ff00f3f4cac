"""Secrets among options are sealed where they stand, bound to where they go, and open there alone."""

from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest

from duly.domain.errors import InvalidOption
from duly.domain.runs.callbacks import Callback, Callbacks
from duly.domain.runs.options import NO_OPTIONS, options_of, plain_of, read_plain
from duly.domain.targets.masking import HIDDEN, masked, masked_url
from duly.domain.targets.target import Command, Container, Webhook
from duly.domain.tenancy.sealed_options import open_target, reseal_options, seal_options
from duly.domain.tenancy.sealing import CannotOpen, Keyring, is_sealed

OLD, NEW = bytes(32), bytes(range(32))
RING = Keyring({"old": OLD})
URL = "https://receiver.example/orders?customer=7"
SECRET = Webhook(URL, headers={"Authorization": "Bearer x", "Accept": "text/plain"})
IN_QUERY = Webhook("https://receiver.example/in?customer=7&token=abc&sig=def;code=%20k", headers={"X-Api-Key": "k"})
RSYNC = ("/usr/bin/rsync", "-a", "from", "to")
PROGRAM = Command(RSYNC, {"TOKEN": "x", "DATABASE_URL": "postgres://a:b@c/d", "LANG": "C"}, network=True)


def sealed(target: Any, standing: Any = None, ring: Keyring | None = RING, tenant: int = 1) -> Any:
    kept = NO_OPTIONS if standing is None else options_of(target=standing)
    return seal_options(options_of(target=target), tenant, lambda: ring, kept).policy.target


def opened(target: Any, ring: Keyring | None = RING, tenant: int = 1) -> Any:
    return open_target(target, tenant, lambda: ring)


@pytest.mark.parametrize("target", [SECRET, IN_QUERY, PROGRAM, Container("a", ("b",), {"API_KEY": "k"})])
def test_sealed_target_opens_only_in_its_own_tenant(target):
    kept = sealed(target)

    assert opened(kept) == target
    assert masked(kept) == masked(target), "shown alike, sealed or not"
    assert sealed(target) == kept, "the same is sealed the same"
    assert sealed(kept) == kept, "what is sealed is not sealed again"
    with pytest.raises(CannotOpen):
        opened(kept, tenant=2)
    with pytest.raises(InvalidOption, match="no key to seal it with; create one: `duly secrets new-key"):
        sealed(target, ring=None)


def test_stored_options_contain_no_secret_in_clear_text():
    clear = options_of(target=IN_QUERY, callbacks=Callbacks(Callback(URL + "&key=ghi")))
    kept = seal_options(clear, 1, lambda: RING)
    shown: Any = kept.policy.target
    callbacks: Any = kept.metadata.callbacks

    assert not [secret for secret in ("abc", "def", "%20k", "'k'", "ghi") if secret in str(plain_of(kept))]
    assert shown.url == "https://receiver.example/in?customer=7&token=***&sig=***;code=***"
    assert callbacks.end.url == URL + "&key=***"
    assert is_sealed(callbacks.end.sealed_url)
    told = Webhook(callbacks.end.url, sealed_url=callbacks.end.sealed_url)
    assert opened(told).url == URL + "&key=ghi", "a callback becomes a webhook of its own"


def test_options_without_secrets_stay_unchanged_without_a_key():
    options = options_of(target=Webhook(URL, headers={"Accept": "a"}), callbacks=Callbacks(Callback(job="b")))

    assert seal_options(options, 1, lambda: None) is options
    assert seal_options(NO_OPTIONS, 1, lambda: None) is NO_OPTIONS
    assert masked_url("https://a.example/?q=1&empty_token=") == "https://a.example/?q=1&empty_token="


def test_a_sealed_value_does_not_open_elsewhere():
    header = sealed(SECRET).headers["Authorization"]
    for other in (
        Webhook("https://attacker.example/", headers={"Authorization": header}),
        Webhook(URL, headers={"X-Auth": header}),
    ):
        with pytest.raises(CannotOpen):
            opened(other)
    kept = sealed(PROGRAM)
    for other in (
        msgspec.structs.replace(kept, argv=("/usr/bin/env",)),
        msgspec.structs.replace(kept, environment={**kept.environment, "ENDPOINT": "https://evil"}),
        msgspec.structs.replace(kept, environment={"TOKEN": kept.environment["TOKEN"], "LANG": "C"}),
        msgspec.structs.replace(kept, network=False),
    ):
        with pytest.raises(CannotOpen):
            opened(other)


def test_a_text_that_only_looks_sealed_is_sealed_as_any_other():
    forged = Webhook(URL, headers={"X-Token": f"sealed:old:{'A' * 60}", "Accept": f"sealed:other:{'A' * 60}"})

    kept = sealed(forged)

    assert opened(kept) == forged
    assert reseal_options(msgspec.to_builtins({"target": kept}), 1, Keyring({"new": NEW, "old": OLD}))
    with pytest.raises(InvalidOption, match="no key to seal it with"):
        sealed(forged, ring=None)


def test_unchanged_secret_preserves_its_sealed_form():
    both = Keyring({"new": NEW, "old": OLD})
    standing = sealed(IN_QUERY)

    assert sealed(IN_QUERY, standing, both) == standing
    assert sealed(masked(IN_QUERY), standing, both) == standing
    changed = sealed(msgspec.structs.replace(IN_QUERY, url=IN_QUERY.url.replace("abc", "abd")), standing, both)
    assert changed.sealed_url.startswith("sealed:new:")
    assert changed.headers == standing.headers, "only what is another value is sealed anew"


def test_resealing_leaves_nothing_under_another_key():
    both = Keyring({"new": NEW, "old": OLD})
    node: Any = {"name": "n", "handler": "@webhook", "options": {"target": msgspec.to_builtins(IN_QUERY)}}
    workflow = {"type": "workflow", "name": "w", "nodes": [node], "callbacks": {"failure": {"url": URL + "&key=a"}}}
    for options in (
        {"target": msgspec.to_builtins(IN_QUERY), "callbacks": {"end": {"url": URL + "&key=a"}}},
        {"target": msgspec.to_builtins(PROGRAM)},
        {"target": workflow},
    ):
        kept = plain_of(seal_options(read_plain(options), 1, lambda: RING))

        assert reseal_options(kept, 1, both)
        assert "sealed:old:" not in str(kept)
        assert "sealed:new:" in str(kept)
        assert not reseal_options(kept, 1, both), "there is nothing left to do"
    assert opened(msgspec.convert(node["options"]["target"], Webhook)) == IN_QUERY


def test_masked_secret_that_is_sent_back_preserves_its_value():
    standing = sealed(SECRET)
    moved = msgspec.structs.replace(masked(SECRET), method="PUT", retry=(404,))

    assert opened(sealed(moved, standing)).headers == SECRET.headers
    lower = Webhook(URL, headers={"authorization": HIDDEN})
    assert opened(sealed(lower, standing)).headers == {"authorization": "Bearer x"}
    assert sealed(Webhook(URL, headers={"Accept": HIDDEN})).headers == {"Accept": HIDDEN}, "no secret's name"
    kept = sealed(Container("a", environment={"KEY": "k"}))
    assert sealed(Container("a", environment={"KEY": HIDDEN}), kept) == kept
    beside = Command(RSYNC, {"TOKEN": HIDDEN, "DATABASE_URL": "postgres://a:b@c/d", "LANG": "C"}, network=True)
    assert opened(sealed(beside, sealed(PROGRAM))) == PROGRAM, "one is sent as it stands, and one is not shown"


@pytest.mark.parametrize(
    ("target", "standing"),
    [
        (masked(SECRET), None),
        (masked(SECRET), Webhook(URL)),
        (msgspec.structs.replace(masked(SECRET), url="https://attacker.example/"), SECRET),
        (msgspec.structs.replace(masked(SECRET), url="https://receiver.example/other"), SECRET),
        (msgspec.structs.replace(masked(SECRET), url="http://receiver.example/"), SECRET),
        (masked(IN_QUERY), None),
        (Webhook("https://attacker.example/in?token=***"), IN_QUERY),
        (Webhook("https://receiver.example/in?token=***"), IN_QUERY),
        (Command(("/usr/bin/env",), {"KEY": HIDDEN}), Command(RSYNC, {"KEY": "k"})),
        (Command((*RSYNC, "-v"), {"KEY": HIDDEN}), Command(RSYNC, {"KEY": "k"})),
        (Command(RSYNC, {"KEY": HIDDEN, "ENDPOINT": "https://evil"}), Command(RSYNC, {"KEY": "k"})),
        (Command(RSYNC, {"KEY": HIDDEN}), Command(RSYNC, {"KEY": "k", "ENDPOINT": "https://inner"})),
        (Command(RSYNC, {"KEY": HIDDEN, "A_URL": "x"}), Command(RSYNC, {"KEY": "k", "A_URL": "y"})),
        (Command(RSYNC, {"KEY": HIDDEN, "DATABASE_URL": "x"}), Command(RSYNC, {"KEY": "k", "DATABASE_URL": "y"})),
        (Command(RSYNC, {"KEY": HIDDEN}, True), Command(RSYNC, {"KEY": "k"})),
        (Container("a", environment={"KEY": HIDDEN}, network=True), Container("a", environment={"KEY": "k"})),
        (Container("b", environment={"KEY": HIDDEN}), Container("a", environment={"KEY": "k"})),
        (Command(RSYNC, {"KEY": HIDDEN}), SECRET),
    ],
)
def test_a_secret_is_not_carried_to_where_it_did_not_go(target, standing):
    with pytest.raises(InvalidOption, match=r"is \*\*\*"):
        sealed(target, None if standing is None else sealed(standing))


def test_a_query_that_is_shown_in_part_is_refused():
    with pytest.raises(InvalidOption, match=r"has a value and \*\*\* in its query") as refused:
        sealed(Webhook("https://receiver.example/in?token=***&sig=abc"), sealed(IN_QUERY))
    assert "abc" not in str(refused.value)


def test_a_shown_url_leads_where_the_whole_does():
    shown, whole = urlsplit(masked_url(IN_QUERY.url)), urlsplit(IN_QUERY.url)

    assert (shown.scheme, shown.netloc, shown.path) == (whole.scheme, whole.netloc, whole.path)
    assert [name for name, _ in parse_qsl(shown.query, separator="&")] == ["customer", "token", "sig"]
    assert masked_url("https://a.example/?to%6ben=abc") == "https://a.example/?to%6ben=***"

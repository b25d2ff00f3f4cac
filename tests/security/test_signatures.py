"""Signatures: ours and those of the reference library are the same, and nothing else passes."""

from __future__ import annotations

import ast
from base64 import b64decode, b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from duly.domain.errors import InvalidOption
from duly.domain.targets.webhook_secret import read_secret, show_secret
from duly.outbound import signing
from duly.outbound.signing import sign
from duly.webhooks import InvalidSignature, verify

SECRET, OLD, OTHER = bytes(range(32)), bytes(range(32, 64)), bytes(range(64, 96))
RUN = str(UUID(int=0x0190_0000_0000_7000_8000_0000_0000_0001))
BODY = '{"customer":7,"to":"Müller"}'.encode()
NOW = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
SOURCE = Path(signing.__file__).parents[1]


def signed(*, secrets=(SECRET,), message_id=RUN, at=NOW, body=BODY):
    timestamp = int(at.timestamp())
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign(secrets, message_id, timestamp, body),
    }


def test_own_signature_is_accepted():
    verified = verify(BODY, signed(), show_secret(SECRET), now=NOW)
    assert (verified.id, verified.at) == (RUN, NOW)


@given(body=st.text(), secret=st.binary(min_size=24, max_size=64))
def test_reference_library_accepts_our_signature(body, secret):
    headers = signed(secrets=[secret], body=body.encode(), at=datetime.now(UTC))
    Webhook(show_secret(secret)).verify(body.encode(), headers, json_parse=False)


@given(body=st.text(), secret=st.binary(min_size=24, max_size=64))
def test_signature_of_the_reference_library_is_accepted(body, secret):
    signature = Webhook(show_secret(secret)).sign("msg_1", NOW, body)
    headers = {
        "Webhook-Id": "msg_1",
        "WEBHOOK-TIMESTAMP": str(int(NOW.timestamp())),
        "webhook-signature": signature,
    }
    assert verify(body, headers, show_secret(secret), now=NOW).id == "msg_1"


def test_the_reference_library_takes_either_of_two_secrets():
    headers = signed(secrets=[SECRET, OLD], at=datetime.now(UTC))
    for secret in (SECRET, OLD):
        Webhook(show_secret(secret)).verify(BODY, headers)


def test_while_a_secret_is_rotated_both_are_taken_and_then_the_old_one_is_not():
    both = signed(secrets=[SECRET, OLD])
    assert both["webhook-signature"].count("v1,") == 2
    for known in (SECRET, OLD, [SECRET, OLD], [OTHER, OLD]):
        verify(BODY, both, known, now=NOW)
    with pytest.raises(InvalidSignature, match="no signature fits"):
        verify(BODY, signed(secrets=[SECRET]), OLD, now=NOW)
    with pytest.raises(InvalidSignature, match="no signature fits"):
        verify(BODY, signed(secrets=[OLD]), [SECRET, OTHER], now=NOW)


@pytest.mark.parametrize("place", range(len(BODY)))
def test_signature_check_refuses_a_body_with_a_changed_byte(place):
    changed = bytearray(BODY)
    changed[place] ^= 1
    with pytest.raises(InvalidSignature, match=f"webhook {RUN}: no signature fits"):
        verify(bytes(changed), signed(), SECRET, now=NOW)


@pytest.mark.parametrize("body", [BODY + b" ", BODY[:-1], b"", b" " + BODY])
def test_a_byte_more_or_less_is_refused(body):
    with pytest.raises(InvalidSignature):
        verify(body, signed(), SECRET, now=NOW)


def test_each_bit_of_the_signature_counts():
    headers = signed()
    digest = bytearray(b64decode(headers["webhook-signature"].removeprefix("v1,")))
    for place in range(len(digest) * 8):
        changed = bytearray(digest)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises(InvalidSignature):
            verify(BODY, headers | {"webhook-signature": f"v1,{b64encode(changed).decode()}"}, SECRET, now=NOW)


@pytest.mark.parametrize(
    ("seconds", "is_taken"), [(0, True), (300, True), (301, False), (-300, True), (-301, False), (-(10**9), False)]
)
def test_signature_more_than_five_minutes_old_or_ahead_is_refused(seconds, is_taken):
    headers = signed(at=NOW - timedelta(seconds=seconds))
    if is_taken:
        verify(BODY, headers, SECRET, now=NOW)
    else:
        with pytest.raises(InvalidSignature, match=r"webhook-timestamp: it is \d+ s (old|ahead)"):
            verify(BODY, headers, SECRET, now=NOW)


def test_the_window_can_be_chosen():
    verify(BODY, signed(at=NOW - timedelta(hours=1)), SECRET, tolerance="PT1H", now=NOW)
    with pytest.raises(InvalidSignature):
        verify(BODY, signed(at=NOW - timedelta(seconds=11)), SECRET, tolerance=10, now=NOW)


def test_a_fresh_timestamp_on_an_old_signature_is_refused():
    old = signed(at=NOW - timedelta(hours=1))
    with pytest.raises(InvalidSignature, match="no signature fits"):
        verify(BODY, old | {"webhook-timestamp": str(int(NOW.timestamp()))}, SECRET, now=NOW)


def test_the_id_of_another_run_is_refused():
    with pytest.raises(InvalidSignature, match="no signature fits"):
        verify(BODY, signed() | {"webhook-id": str(UUID(int=5))}, SECRET, now=NOW)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
@pytest.mark.parametrize("value", [None, ""])
def test_a_missing_header_is_named(name, value):
    headers = {key: text for key, text in signed().items() if key != name} | ({} if value is None else {name: value})
    with pytest.raises(InvalidSignature, match=f"header {name} is missing"):
        verify(BODY, headers, SECRET, now=NOW)


@pytest.mark.parametrize("timestamp", ["x", "1.5", "-1", "1e9", " 1", "１", "9" * 30, "inf", "0x10"])
def test_a_timestamp_that_is_none_is_refused(timestamp):
    with pytest.raises(InvalidSignature, match="webhook-timestamp"):
        verify(BODY, signed() | {"webhook-timestamp": timestamp}, SECRET, now=NOW)


@pytest.mark.parametrize(
    "signature", ["v1", "v1,", "v1,!!", "v1a,AAAA", "v2,AAAA", ",", " ", "v1,ÄÄÄÄ", "x" * 100_000, "v1,AA " * 10_000]
)
def test_a_signature_that_is_none_is_refused(signature):
    with pytest.raises(InvalidSignature):
        verify(BODY, signed() | {"webhook-signature": signature}, SECRET, now=NOW)


def test_a_signature_of_another_version_is_passed_over():
    headers = signed()
    headers["webhook-signature"] = f"v1a,whatever {headers['webhook-signature']} v7,AAAA"
    verify(BODY, headers, SECRET, now=NOW)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_short", "whsec_!!!!", "whsec_" + "A" * 400, []])
def test_a_secret_that_is_none_is_refused_without_being_shown(secret):
    with pytest.raises(InvalidOption, match="webhook secret") as error:
        verify(BODY, signed(), secret, now=NOW)
    assert "short" not in str(error.value)


def test_a_secret_reads_as_it_is_shown():
    for size in (24, 25, 26, 64):
        secret = bytes(range(size))
        assert read_secret(show_secret(secret)) == secret
        assert read_secret(show_secret(secret).rstrip("=")) == secret


@pytest.mark.parametrize(
    "path", [SOURCE / "outbound" / "signing.py", SOURCE / "webhooks.py"], ids=lambda path: path.name
)
def test_no_digest_is_compared_with_an_operator(path):
    """`==` on bytes ends at the first that differs, and how long it took tells where."""
    suspects = ("digest", "signature", "signed", "expected", "secret", "one", "other")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Compare) and any(
            isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for op in node.ops
        ):
            text = ast.unparse(node)
            assert not any(word in text for word in suspects), text
    assert "compare_digest" in (SOURCE / "outbound" / "signing.py").read_text()

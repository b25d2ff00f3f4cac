"""Redaction in SQL: what is written to history is what Python shows."""

import random
from typing import Any

import msgspec
import pytest

from duly.domain.errors import InvalidOption
from duly.domain.redaction import check_rules, redacted
from duly.domain.runs.outcome import Succeeded
from duly.moves.admin import tenants
from duly.store.tenancy.tenants import Limits, set_rules
from tests.builders import a_leased_run, a_worker, settled

PATHS = [
    *("$.a", "$.a.b", "$.*", "$.a.*.c", "$.list[*].a", "$.list[1]", "$.list[007]", "$.list[*][0]", "$..a", "$..a.b"),
    *(
        "$..b[*].a",
        "$.list..c",
        "$['a b']",
        "$['.a'].b",
        "$['~a']",
        "$['*']",
        "$.a-b._c",
        "$..list..a",
        "$.*.*",
        "$[0]",
    ),
]
REFUSED = [
    "",
    "a",
    "$",
    "$.",
    "$..",
    "$...a",
    "$.a b",
    "$[a]",
    "$[-1]",
    "$[1:2]",
    "$['']",
    "$['a\\'b']",
    "$.a[?(@)]",
    "$.é",
    " $.a",
]
NAMES = ["a", "b", "c", "list", "a b", ".a", "~a", "*", "a-b", "_c"]


def a_value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.choice(["object", "list", "text", "number", "null"] if depth < 4 else ["text", "number", "null"])
    if kind == "object":
        return {name: a_value(rng, depth + 1) for name in rng.sample(NAMES, rng.randrange(6))}
    if kind == "list":
        return [a_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {"text": "x", "number": 7, "null": None}[kind]


async def in_sql(database, value: Any, paths: list[str]) -> Any:
    text = await database.fetchval(
        "select duly.redacted($1::text::jsonb, to_jsonb($2::text[]))::text", msgspec.json.encode(value).decode(), paths
    )
    return msgspec.json.decode(text)


async def test_sql_and_python_redact_alike(database):
    rng = random.Random(7)
    for _ in range(300):
        value = {name: a_value(rng) for name in NAMES}
        paths = rng.sample(PATHS, rng.choice([1, 1, 3]))
        assert await in_sql(database, value, paths) == redacted(value, paths), (value, paths)


@pytest.mark.parametrize("path", [*PATHS, *REFUSED, "$." + "a" * 198, "$." + "a" * 199])
async def test_sql_and_python_accept_the_same_paths(database, path):
    try:
        check_rules([path])
        is_readable = True
    except InvalidOption:
        is_readable = False
    assert await database.fetchval("select duly.is_rule($1)", path) is is_readable


MANY = msgspec.json.encode([f"$.a{number}" for number in range(33)]).decode()


@pytest.mark.parametrize("rules", ['"$.a"', "[]", "[7]", '["a"]', '["$.a", null]', MANY])
async def test_unreadable_rules_among_options_are_refused_from_any_language(database, rules):
    options = f'{{"redact": {rules}}}'
    assert await database.fetchval("select duly.are_options($1::text::jsonb)", options) is False


async def history(database) -> tuple[Any, Any, Any]:
    row = await database.fetchrow("select payload::text, payload_stored, options->'redact' from duly.attempts")
    assert row is not None
    return row[0] and msgspec.json.decode(row[0]), row[1], row[2] and msgspec.json.decode(row[2])


async def a_run_that_ended(database, payload: str, **options: Any) -> None:
    worker_id, run = await a_leased_run(database, await a_worker(database), payload=payload, **options)
    await settled(database, worker_id, run, Succeeded())


async def test_a_run_without_rules_is_recorded_as_it_was(database):
    await a_run_that_ended(database, '{"card": "4111"}')
    assert await history(database) == ({"card": "4111"}, None, None)


async def test_the_rules_of_job_tenant_and_installation_are_all_applied_and_recorded(database):
    await set_rules(database, None, ["$..password"])
    await tenants.change_tenant(database, 1, redact=["$.card"])
    await set_rules(database, (await tenants.create_tenant(database, "other", Limits())).tenant, ["$.name"])
    await a_run_that_ended(
        database, '{"card": "4111", "pin": "12", "x": {"password": "p"}, "name": "Ada"}', redact=("$.pin",)
    )

    payload, _, rules = await history(database)
    assert payload == {
        "card": "*** ($.card)",
        "pin": "*** ($.pin)",
        "x": {"password": "*** ($..password)"},
        "name": "Ada",
    }
    assert rules == ["$.pin", "$..password", "$.card"]


async def test_a_large_payload_is_redacted_into_the_record_and_stored_nowhere_else(database):
    await a_run_that_ended(database, '{"card": "4111", "text": "' + "x" * 2_000 + '"}', redact=("$.card",))

    payload, is_stored, _ = await history(database)
    assert (payload["card"], len(payload["text"]), is_stored) == ("*** ($.card)", 2_000, None)
    assert await database.fetchval("select count(*) from duly.payloads") == 0


async def test_a_payload_too_large_for_history_is_not_kept(database):
    rng = random.Random(7)  # what is not compressed
    text = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=60_000))
    await a_run_that_ended(database, '{"card": "4111", "text": "' + text + '"}', redact=("$.card",))

    assert (await history(database))[:2] == (None, False)
    assert await database.fetchval("select count(*) from duly.payloads") == 0


async def test_rules_that_are_taken_away_apply_no_more(database):
    assert await set_rules(database, 1, ["$.card"]) is True
    assert await set_rules(database, 1, ["$.card"]) is False
    assert await set_rules(database, 1, []) is True
    assert await set_rules(database, 1, []) is False
    await a_run_that_ended(database, '{"card": "4111"}')
    assert (await history(database))[0] == {"card": "4111"}

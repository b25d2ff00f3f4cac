"""Schemathesis over the whole description, against the application on a socket: what fits is taken, what does not is refused.

Three programmes: each operation by itself with data that fits, with data that does not, and chains of operations along the links
of the description. Paths are filled half of the time with what is really there. Short here, under one seed; `-m proof` is long:
`CASES` of each operation, 300 unless the environment says otherwise. What was answered is counted and told at the end.

What counts. Every answer is one that is described: status, code, type, schema and headers (`described.faults`, which is stricter
than the checks of the tool: it does not take `default` for an answer). No answer is 5xx. Data that fits is accepted, which is:
2xx; or a refusal for what a schema cannot say, by its code (`NOT_IN_SCHEMAS`). Data that does not fit is refused with 4xx.

Checks of the tool that are off, and why:
- status_code_conformance, content_type_conformance, response_schema_conformance: `faults` does the same for each answer, by code.
- positive_data_acceptance: it knows statuses only, and 422 is both; ours knows codes.
- negative_data_rejection stays on, except for what the tool sends that HTTP makes valid on its way, which it knows itself.
- unsupported_method, ignored_auth, missing_required_header: shown by the directed tests beside this one.
- use_after_free: a job that was deleted stays readable on purpose.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import httpx
import jsonschema_rs
import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import FlakyStrategyDefinition
from hypothesis.stateful import run_state_machine_as_test
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection

from duly.api.response import EVENT_STREAM, NDJSON
from duly.api.routes import OPERATIONS
from tests.api.contract.described import BY_NAME, DOCUMENT, NAMES, faults
from tests.api.contract.yard import Yard, request_for
from tests.security.conftest import ANSWERED
from tests.security.links import linked

SEED = 20261115
# Refusals of what no schema can say: what is there, how it stands, what a word means.
NOT_IN_SCHEMAS = {
    "not_found",
    "conflict",
    "name_taken",
    "declared_in_code",
    "lease_lost",
    "attempt_over",
    "worker_expired",
    "version_changed",
    "precondition_required",
    "key_reused",
    "key_mismatch",
    "key_in_progress",
    "invalid_schedule",
    "invalid_option",
    "invalid_filter",
    "invalid_payload",
    "invalid_manifest",
    "invalid_workflow",
    "not_the_files",
    "plan_changed",
    "rate_limited",
    "quota_reached",
    "shed",
    "headers_too_large",
    "forbidden",
}
# A stream does not end by itself; and the tool writes no NDJSON: a line of it is the body of `create_job`, which is here.
FUZZED = [name for name in NAMES if BY_NAME[name].response_type not in (EVENT_STREAM, NDJSON)]
TELLS_WHAT_IS_WRONG = {"preview_trigger"}  # with 200, because that is what it is for
# Chains begin where these make something, and where lists show what was made for these.
MAKERS = ("create_job", "create_workflow", "create_destination", "create_key", "create_tenant", "register_worker")
MADE_AT = {BY_NAME[name].path: BY_NAME[name] for name in MAKERS}
SEEDED = ("read_job", "read_run", "replay_dead", "read_workflow", "read_destination", "read_backfill", "read_calendar")
SHORT, LONG = 4, int(os.environ.get("CASES", "300"))
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
# A chain goes on from what was done, so each of its steps is to fit.
CHAINED = schemathesis.openapi.from_dict(linked(DOCUMENT, OPERATIONS)).include(operation_id=FUZZED)
CHAINED.config.generation.update(modes=[GenerationMode.POSITIVE])


class World:
    """The application, a key for everything, and things that are there."""

    def __init__(self, served: Any) -> None:
        self.url = served.url
        self.api = served.run(served.front.caller())
        self.headers = {"Authorization": f"Bearer {self.api.key}"}
        self._yard = Yard(served.front.database, self.api)
        self._served = served
        self.answered = Counter[str]()

    def things(self, name: str) -> list[dict[str, str]]:
        """Make what paths of an operation can name; for some of it runs must be claimed, whatever was stopped before."""
        self._served.run(self._served.front.database.execute("delete from duly.pauses; delete from duly.limits"))
        return [self._served.run(self._yard.named(BY_NAME[name])) for _ in range(3)]

    def ask(self, case: Case) -> httpx.Response:
        """Send a case, and hold the answer to the description."""
        if case.headers and str(case.headers.get("Prefer")).startswith("wait="):
            case.headers["Prefer"] = "wait=1"  # Nobody works here, so all of it would be waited.
        return self.judge(case, case.call(base_url=self.url, headers=self.headers))

    def judge(self, case: Case, response: Any) -> httpx.Response:
        """Hold an answer to the description."""
        pairs = [(name, value) for name, values in response.headers.items() for value in values]
        answer = httpx.Response(response.status_code, headers=pairs, content=response.content)
        self.answered[f"{answer.status_code // 100}xx"] += 1
        told = f"{case.method} {response.request.url} {response.request.body!r:.600} -> {answer.status_code} {answer.text:.600}"
        assert answer.status_code < 500, f"{told}\n{self._served.log.errors[-1:]}"
        if answer.status_code == 405 or is_of_no_path(answer):  # What was put into the path led past the operation.
            return answer
        assert faults(BY_NAME[case.operation.definition.raw["operationId"]], answer) == [], told
        return answer


def is_of_no_path(answer: httpx.Response) -> bool:
    """Say whether nothing is served at the path that was asked for."""
    return answer.status_code == 404 and answer.json()["remedy"] == "/openapi.json lists every path."


@pytest.fixture(scope="module")
def whole_world(served):
    return World(served)


@pytest.fixture
def world(whole_world, record_property):
    whole_world.answered.clear()
    yield whole_world
    record_property(ANSWERED, dict(whole_world.answered))


def operation_of(name: str) -> Any:
    """Give an operation as the tool knows it."""
    return SCHEMA[BY_NAME[name].path][BY_NAME[name].method]


def few(number: int) -> Any:
    """Give the settings of a programme under its seed alone. What fails is shown as it came: to shrink it takes minutes."""
    return settings(
        max_examples=number,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


def what_fits_is_accepted(world: World, name: str, number: int) -> None:
    """Send data that fits the description."""
    things = world.things(name)
    fitting = operation_of(name).as_strategy(GenerationMode.POSITIVE, headers=world.headers)

    @seed(SEED)
    @few(number)
    @given(case=fitting, named=st.sampled_from([None, *things]))
    def programme(case: Case, named: dict[str, str] | None) -> None:
        if named is not None:
            case.path_parameters.update(named)
        answer = world.ask(case)
        if answer.is_error and answer.status_code != 405:
            code = answer.json()["code"]
            detail = answer.json()["detail"]
            # A token is opaque; the calendar ends; and 1.0 is an integer to a schema, but we read strictly.
            is_fine = (
                "page_token" in detail
                or "out of reach" in detail
                or re.search(r"expected `int\b.*`, got `float`", detail)
            )
            body = f"{case.method} {case.path_parameters} {case.query} {case.headers} {case.body!r:.800}"
            assert is_fine or code in NOT_IN_SCHEMAS, f"{body}\n-> {answer.text}"

    programme()


def is_beyond_its_patterns(case: Case) -> bool:
    """Say whether a name in the path holds letters that the tool takes for none, because they lie beyond the first 65,536."""
    return any(ord(character) > 0xFFFF for character in unquote(str(case.path_parameters.get("name", ""))))


def fits_after_all(case: Case) -> bool:
    """Say whether a body fits though the tool takes it for one that does not: it makes them without knowing `\\p`."""
    kinds = case.operation.definition.raw.get("requestBody", {}).get("content", {})
    if case.path_parameters or case.query or "application/json" not in kinds or not isinstance(case.body, dict):
        return False
    schema = {**kinds["application/json"]["schema"], "components": DOCUMENT["components"]}
    return bool(jsonschema_rs.validator_for(schema).is_valid(case.body))


def what_does_not_fit_is_refused(world: World, name: str, number: int) -> None:
    """Send data that does not fit the description."""

    @seed(SEED)
    @few(number)
    @given(case=operation_of(name).as_strategy(GenerationMode.NEGATIVE, headers=world.headers))
    def programme(case: Case) -> None:
        assume(not is_beyond_its_patterns(case) and not fits_after_all(case))
        response = case.call(base_url=world.url, headers=world.headers)
        if world.judge(case, response).status_code != 431:  # too long to be read at all, which the tool does not know
            case.validate_response(response, checks=[negative_data_rejection], headers=world.headers)

    programme()


def body_of_a_step(case: Case) -> Any:
    """Give what a step sends: where something is made, what is taken, so that the chain goes on; whole numbers as such."""
    if case.method == "POST" and case.path in MADE_AT:
        return msgspec.json.decode(request_for(MADE_AT[case.path]).content or b"{}")
    return whole(case.body)


def whole(value: Any) -> Any:
    """Write 1.0 as 1, wherever it stands."""
    if isinstance(value, dict):
        return {key: whole(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [whole(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def chains_hold(world: World, number: int, steps: int) -> None:
    """Follow the links of the description from answer to request, beginning with what is there or is made."""
    for name in SEEDED:
        world.things(name)
    broken: list[str] = []

    class Chains(CHAINED.as_state_machine()):  # type: ignore[misc]
        simplest: str | None = None

        def setup(self) -> None:
            self.has_begun = False

        def before_call(self, case: Case) -> None:
            """Begin with anything but the simplest: it is tried first under every seed, so all chains would be that one."""
            if not self.has_begun:
                told = f"{case.method} {case.path} {case.query} {case.body!r}"
                Chains.simplest = Chains.simplest or told
                assume(told != Chains.simplest)
            self.has_begun = True
            case.body = body_of_a_step(case)

        def get_call_kwargs(self, case: Case) -> dict[str, Any]:
            return {"base_url": world.url, "headers": world.headers}

        def validate_response(self, response: Any, case: Case, **_: Any) -> None:
            try:
                world.judge(case, response)
            except AssertionError as error:  # Kept, because the tool would try the chain again, and find another world.
                broken.append(str(error))

    # One at a time, because what can be drawn depends on what was answered before, and a second chain finds other answers:
    # where one has not come to its end, the tool begins a second, and may stumble over that.
    for one in range(number):
        Chains.simplest = None
        with suppress(FlakyStrategyDefinition):
            run_state_machine_as_test(seed(SEED + one)(Chains), settings=settings(few(1), stateful_step_count=steps))
    assert broken == []
    assert world.answered["2xx"] >= number, f"the chains led nowhere: {world.answered}"


def can_be_negated(name: str) -> bool:
    """Say whether an operation takes anything that could be wrong."""
    operation = operation_of(name)
    return bool(list(operation.query) or list(operation.path_parameters) or list(operation.body))


NEGATED = [name for name in FUZZED if can_be_negated(name) and name not in TELLS_WHAT_IS_WRONG]


@pytest.mark.parametrize("name", FUZZED)
def test_fuzzed_data_that_fits_is_accepted(world, name):
    what_fits_is_accepted(world, name, SHORT)


@pytest.mark.parametrize("name", NEGATED)
def test_fuzzed_data_that_does_not_fit_is_refused(world, name):
    what_does_not_fit_is_refused(world, name, SHORT)


def test_chains_of_operations_hold(world):
    chains_hold(world, 5, 6)


@pytest.mark.proof
@pytest.mark.parametrize("name", FUZZED)
def test_fuzzed_data_that_fits_is_accepted_at_length(world, name):
    what_fits_is_accepted(world, name, LONG)


@pytest.mark.proof
@pytest.mark.parametrize("name", NEGATED)
def test_fuzzed_data_that_does_not_fit_is_refused_at_length(world, name):
    what_does_not_fit_is_refused(world, name, LONG)


@pytest.mark.proof
def test_at_length_chains_of_operations_hold(world):
    chains_hold(world, LONG * 2 // 3, 20)

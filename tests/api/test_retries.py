"""Retries and expiry over HTTP: said whole, told back as said, refused with the remedy; and what workers over HTTP make of it."""

import pytest

from duly.moves.waiting import expire
from tests.api.front import A_TARGET, CALLBACKS, EVERY_HOUR
from tests.api.remote import a_job_due_now, a_remote
from tests.api.test_worker import found_run, outcomes_of, state_of
from tests.builders import an_awaited_run, history_of

POLICY = {
    "policy": "list",
    "max_attempts": 4,
    "delays": ["PT1S", 60, "PT1H"],
    "jitter": "equal",
    "max_age": "P1D",
    "rules": [
        {"error": "*Timeout", "action": "retry", "delay": "PT5M"},
        {"status": "4xx", "action": "dead"},
        {"exit": 75, "action": "snooze", "delay": 30},
    ],
}
TOLD = {
    "policy": "list",
    "max_attempts": 4,
    "base": "PT1S",
    "cap": "PT10M",
    "jitter": "equal",
    "delays": ["PT1S", "PT1M", "PT1H"],
    "max_age": "PT24H",
    "rules": [
        {"action": "retry", "error": "*Timeout", "delay": "PT5M"},
        {"action": "dead", "status": "4xx"},
        {"action": "snooze", "exit": 75, "delay": "PT30S"},
    ],
}


async def test_retry_policy_is_returned_in_full_and_accepted_unchanged(api):
    made = await api.post(
        "/v1/jobs", json={"target": A_TARGET, "schedule": EVERY_HOUR, "retry": POLICY, "expires_after": "PT30M"}
    )
    assert made.status_code == 202, made.text
    path = made.headers["location"]

    job = (await api.get(path)).json()

    assert job["retry"] == TOLD
    assert (job["expires_after"], job["expires_at"]) == ("PT30M", None)
    definition = {name: job[name] for name in ("target", "schedule", "retry", "expires_after")}
    again = await api.ask("PUT", path, json=definition, headers={"If-Match": f'"{job["version"]}"'})
    assert again.status_code == 200, again.text
    assert again.json()["retry"] == TOLD


async def test_a_one_shot_tells_when_it_expires(api, clock):
    made = await api.post("/v1/jobs", json={"target": A_TARGET, "expires_at": "2030-01-01T00:00:00Z"})

    job = (await api.get(made.headers["location"])).json()

    assert (job["expires_at"], job["expires_after"]) == ("2030-01-01T00:00:00Z", None)
    assert job["retry"] is None, "it is left to the handler"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"retry": {"policy": "list"}}, "retry policy list needs its delays"),
        ({"retry": {"delays": [1]}}, "policy list"),
        ({"retry": {"rules": [{"action": "dead"}]}}, "retry rule 1 needs exactly one of"),
        ({"retry": {"rules": [{"action": "snooze", "status": 503}]}}, "snooze without delay"),
        ({"retry": {"rules": [{"action": "dead", "status": "9xx"}]}}, "status '9xx' is none"),
        ({"retry": {"max_age": 0}}, "max_age 0.0 must be more than 0"),
        ({"expires_after": 0}, "expires_after 0.0 must be more than 0"),
        ({"schedule": EVERY_HOUR, "expires_at": "2030-01-01T00:00:00Z"}, "use expires_after"),
        (
            {
                "schedule": {"trigger": {"type": "at", "at": "2031-01-01T00:00:00Z"}},
                "expires_at": "2030-01-01T00:00:00Z",
            },
            "its due time; choose a later one",
        ),
    ],
)
async def test_retry_options_are_refused_with_a_remedy_when_invalid(api, fields, words):
    answer = await api.post("/v1/jobs", json={"target": A_TARGET, **fields})

    assert answer.status_code == 422, answer.text
    assert words in answer.text


async def test_a_field_of_another_target_is_named_as_such(api):
    answer = await api.post("/v1/jobs", json={"target": {"type": "webhook", "url": "https://a.example", "argv": ["x"]}})

    assert "is not a field of this type" in answer.text


class TestWorkersOverHttp:
    """What they say of an error is judged by the rules; what has expired they are not given."""

    @pytest.mark.parametrize(
        ("error", "state"),
        [
            ({"type": "app.OutOfStock", "message": "none"}, "dead"),
            ({"type": "Sold", "bases": ["app.OutOfStock", "Exception"]}, "dead"),
            ({"type": "Other"}, "retrying"),
        ],
    )
    async def test_rules_know_an_error_by_its_type_and_its_bases(self, api, database, error, state):
        remote = await a_remote(api)
        retry = {"rules": [{"error": "OutOfStock", "action": "dead"}]}
        run_id = await a_job_due_now(api, retry=retry)
        [run] = await remote.claim()

        assert await remote.settle(run, "failed", error=error) == "settled"

        assert await state_of(database, run_id) == state

    async def test_run_past_its_expiry_ends_when_a_worker_claims(self, api, database, clock):
        remote = await a_remote(api)
        late = await a_job_due_now(api, expires_after="PT5S")
        in_time = await a_job_due_now(api)
        await clock.advance(6)
        await remote.renew()

        lent = await remote.claim()

        assert [run["run_id"] for run in lent] == [in_time]
        assert (await state_of(database, late), await outcomes_of(database, late)) == ("expired", ["skipped"])
        assert "expired at" in (await found_run(database, late))["reason"]

    async def test_claim_of_only_expired_runs_is_empty_and_the_next_claim_succeeds(self, api, database, clock):
        remote = await a_remote(api)
        await a_job_due_now(api, expires_after="PT5S")
        await clock.advance(6)
        await remote.renew()

        assert await remote.claim() == []
        in_time = await a_job_due_now(api)
        assert [run["run_id"] for run in await remote.claim()] == [in_time]
        assert await expire(database) == 0

    async def test_retry_after_is_capped_at_a_day(self, api, database, clock):
        remote = await a_remote(api)
        run_id = await a_job_due_now(api)
        [run] = await remote.claim()

        await remote.settle(run, "failed", retry_after="P400D")

        assert ((await found_run(database, run_id))["due_at"] - clock.at).days == 1


@pytest.mark.parametrize(
    "body",
    [
        {"outcome": "succeeded", "reason": "no"},
        {"outcome": "succeeded", "retry": False},
        {"outcome": "succeeded", "retry_after": 5},
        {"outcome": "failed", "result": {"rows": 1}},
        {"outcome": "failed", "retry": False, "retry_after": 5},
    ],
)
async def test_a_receiver_that_contradicts_itself_is_refused(front, database, body):
    run = await an_awaited_run(database)

    answer = await front.nobody().post(f"/v1/callbacks/{CALLBACKS.make(run.run_id, run.fence)}", json=body)

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_option")
    assert "leave" in answer.json()["detail"]
    assert await history_of(database, run.run_id) == []

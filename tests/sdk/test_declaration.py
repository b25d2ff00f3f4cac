"""A handler with a schedule of its own: what is declared, and what is refused where it is written."""

from typing import Any

import pytest

from duly import App, InvalidArguments, InvalidOption, InvalidSchedule, Retry, Run
from duly.triggers import TriggerError

HERE = __name__


@pytest.fixture
def app():
    return App()


def the_job(app):
    [job] = app.declarations("shop:app").jobs
    return job


def test_declared_schedule_is_named_by_module_and_function(app):
    @app.handler(cron="0 2 * * *", tz="Europe/Paris", jitter="PT5M", name="cleaning", queue="night", priority=7)
    def nightly() -> None: ...

    job = the_job(app)
    assert (job.name, job.owner, job.source) == (f"{HERE}:nightly", "code", "shop:app")
    assert (job.handler, job.queue, job.priority, job.payload) == ("cleaning", "night", 7, "{}")
    assert job.schedule == {
        "trigger": {"type": "cron", "expr": "0 2 * * *", "tz": "Europe/Paris"},
        "jitter": {"max": "PT5M"},
    }


def test_scheduled_handler_remains_a_handler_and_a_function(app):
    @app.handler(every="PT1H", payload={"days": 7})
    def clean_up(run: Run, days: int) -> int:
        return days

    assert clean_up.name == "clean_up"
    assert app["clean_up"] is clean_up
    assert the_job(app).payload == '{"days":7}'


def test_a_handler_without_a_schedule_declares_nothing(app):
    @app.handler
    def plain() -> None: ...

    assert app.declarations("shop:app").jobs == []


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"queue": "other"},
        {"priority": 1},
        {"retry": Retry(max_attempts=2)},
        {"timeout": "PT1M"},
        {"payload": {"days": 8}},
        {"overlap": "queue"},
    ],
)
def test_definition_digest_covers_every_decorator_option(change):
    def nightly(days: int = 7) -> None: ...

    def digest(**more: Any) -> Any:
        app = App()
        app.handler(cron="0 2 * * *", **more)(nightly)
        return the_job(app).digest()

    assert digest() == digest() != digest(**change)


@pytest.mark.parametrize(
    ("when", "error", "words"),
    [
        ({"cron": "60 2 * * *"}, TriggerError, rf"the schedule of {HERE}:nightly: .*minute 60 is outside 0–59"),
        ({"cron": "0 2 * * *", "tz": "Mars/Olympus"}, TriggerError, "Mars/Olympus"),
        ({"when": "every banana"}, TriggerError, 'stopped at "banana"'),
        ({"cron": "0 2 * * *", "overlap": "queueue"}, TriggerError, "overlap.policy 'queueue' is unknown"),
        ({"cron": "0 2 * * *", "every": "PT1H"}, InvalidOption, "every= and cron= are both triggers"),
        ({"jitter": "PT5M"}, InvalidOption, "jitter= belongs to a schedule"),
        ({"payload": {"days": 7}}, InvalidOption, "payload= belongs to a schedule"),
        ({"every": 0}, InvalidSchedule, "shorter than one second"),
        ({"when": "tomorrow at 9am"}, InvalidOption, f"the schedule of {HERE}:nightly fires once"),
        ({"cron": "0 2 * * *", "payload": {"weeks": 7}}, InvalidArguments, "unexpected keyword argument 'weeks'"),
        ({"cron": "0 2 * * *", "payload": {"days": "7"}}, InvalidArguments, "argument days is '7'"),
    ],
)
def test_invalid_declaration_is_refused_and_leaves_nothing(app, when, error, words):
    def nightly(days: int = 7) -> None: ...

    with pytest.raises(error, match=words):
        app.handler(**when)(nightly)

    assert len(app.registry) == 0
    assert app.declarations("shop:app").jobs == []


def test_arguments_without_a_default_must_be_given(app):
    with pytest.raises(InvalidArguments, match=r"missing a required argument: 'customer'.* payload=\{…\}"):

        @app.handler(cron="0 2 * * *")
        def report(customer: int) -> None: ...


def test_two_functions_of_one_name_cannot_both_declare(app):
    @app.handler(cron="0 2 * * *")
    def nightly() -> None: ...

    with pytest.raises(InvalidOption, match=f"two schedules are called '{HERE}:nightly'"):
        app.handler(cron="0 3 * * *", name="other")(nightly.registered.function)
    assert "other" not in app.registry


LATER = """
from __future__ import annotations
import msgspec
from duly import App

app = App()

@app.handler(cron="0 2 * * *", payload={"order": {"number": 7}})
def ship(order: Order) -> None: ...

class Order(msgspec.Struct):
    number: int
"""


def test_arguments_of_a_type_defined_later_are_checked_at_startup():
    module: dict[str, Any] = {"__name__": "later"}
    exec(LATER, module)

    assert the_job(module["app"]).payload == '{"order":{"number":7}}'

"""Two apps that offer one handler name on one queue are found; processes of one app are not two apps."""

import pytest

from duly.domain.diagnosis.apps import Clash, Offer, check_app_name, clashes
from duly.domain.errors import InvalidOption


def offer(worker: str, app: str | None, handlers: tuple[str, ...] = ("shared",), queues=("default",)) -> Offer:
    return Offer(worker, app, queues, handlers)


def test_a_handler_of_two_apps_on_one_queue_is_found_with_who_offers_it():
    found = clashes(
        [
            offer("a.1", "a:app", ("shared", "own", "other")),
            offer("a.2", "a:app", ("shared", "own")),
            offer("b.1", "b:app", ("shared", "other"), ("mail", "default")),
        ]
    )

    assert found == [Clash("default", ("other", "shared"), ("a:app", "b:app"), ("a.1", "a.2", "b.1"))]


@pytest.mark.parametrize(
    "second",
    [
        offer("a.2", "a:app"),
        offer("a.2", "a:app", ("shared", "new in this version")),
        offer("b.1", "b:app", ("another",)),
        offer("b.1", "b:app", queues=("mail",)),
        offer("over http", None),
        offer("b.1", "b", ("b:shared",)),
    ],
    ids=["scaled out", "the next version", "another handler", "another queue", "no app", "a name of its own"],
)
def test_what_reaches_the_app_it_is_meant_for_is_no_clash(second):
    assert clashes([offer("a.1", "a:app"), second]) == []


def test_targets_that_every_worker_has_are_no_clash():
    assert clashes([offer(app, app, ("@webhook", "@workflow")) for app in ("a:app", "b:app")]) == []


@pytest.mark.parametrize("name", ["", "a:b", "@a", "a\nb", "x" * 1_000])
def test_what_is_no_name_of_an_app_is_refused(name):
    with pytest.raises(InvalidOption):
        check_app_name(name)

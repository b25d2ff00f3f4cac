"""Two apps that offer one handler name on one queue are found; processes of one app are not two apps."""

import pytest

from duly.domain.diagnosis.apps import Clash, Offer, check_app_name, clashes
from duly.domain.errors import InvalidOption


def offer(worker: str, app: str | None, handlers: tuple[str, ...] = ("shared",), queues=("default",)) -> Offer:
    return Offer(worker, app, queues, handlers)


def test_handler_clash_names_both_apps_and_their_workers():
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
def test_offers_with_a_single_matching_app_do_not_clash(second):
    assert clashes([offer("a.1", "a:app"), second]) == []


def test_targets_that_every_worker_has_are_no_clash():
    assert clashes([offer(app, app, ("@webhook", "@workflow")) for app in ("a:app", "b:app")]) == []


@pytest.mark.parametrize("name", ["", "a:b", "@a", "a\nb", "x" * 1_000])
def test_invalid_app_name_is_refused(name):
    with pytest.raises(InvalidOption):
        check_app_name(name)

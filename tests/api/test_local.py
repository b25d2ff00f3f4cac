"""The targets that a local caller may submit: any program, and no address that is refused to others."""

from typing import cast

import pytest

from duly.api.auth.local import AnyProgram
from duly.domain.errors import InvalidOption
from duly.domain.targets.target import Command, Container, Target, Webhook, WorkflowTarget

INSIDE = "https://10.0.0.1/"


def refuse(url):
    raise InvalidOption(f"{url} is not called")


ALLOWED = AnyProgram(check_call=refuse)


@pytest.mark.parametrize("target", [None, Command(("/usr/bin/rsync",), {"LANG": "C"}), Container("busybox")])
def test_any_program_passes(target):
    ALLOWED.check(target)


@pytest.mark.parametrize(
    "target",
    [
        Webhook(INSIDE),
        WorkflowTarget("nightly", ({"options": {"target": {"type": "webhook", "url": INSIDE}}},)),
    ],
    ids=["webhook", "node"],
)
def test_an_address_is_checked(target):
    with pytest.raises(InvalidOption, match="is not called"):
        ALLOWED.check(target)


def test_a_target_of_an_unknown_kind_does_not_pass():
    with pytest.raises(AssertionError):
        ALLOWED.check(cast(Target, object()))

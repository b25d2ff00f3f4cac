"""Containers whose worker is gone are found and removed; those of others are left alone."""

import asyncio
import os
import signal
import sys

import pytest

from duly.log import Log
from duly.worker.targets.orphans import OWNER_LABEL, Orphans, Owner, started_of
from tests.worker.targets.engine import IMAGE, OPTIONS, ask, names

HERE = Owner("machine", "boot", "4026531836", 100, 5_000)


def alive(started: int | None):
    """See a process 100 that was started then, and no other."""
    return lambda pid: started if pid == 100 else None


@pytest.mark.parametrize(
    ("owner", "is_gone"),
    [
        (Owner("machine", "boot", "4026531836", 100, 5_000), False),
        (Owner("machine", "boot", "4026531836", 100, 4_999), True),  # the number was given to another process since
        (Owner("machine", "boot", "4026531836", 101, 5_000), True),
        (Owner("machine", "boot", "4026539999", 101, 5_000), False),  # in a namespace that cannot be seen from here
        (Owner("machine", "earlier", "4026539999", 101, 5_000), True),  # before the machine was started again
        (Owner("other", "boot", "4026531836", 101, 5_000), False),
        (Owner("other", "earlier", "4026531836", 101, 5_000), False),
    ],
)
def test_container_owner_counts_as_lost_only_when_that_is_certain(owner, is_gone):
    assert owner.has_ended(HERE, alive(5_000)) is is_gone


def test_an_owner_can_be_written_and_read():
    here = Owner.here()

    assert Owner.read(str(here)) == here
    assert here.pid == os.getpid()
    assert not here.has_ended(here, started_of)


@pytest.mark.parametrize("label", ["", "a/b", "a/b/c/d/e", "a/b/c/1/2/3", "machine"])
def test_foreign_label_names_no_container_owner(label):
    assert Owner.read(label) is None


def test_unused_process_id_has_no_start_time():
    assert started_of(2**22 + 1) is None


@pytest.fixture
def left(engine):
    """Leave a container behind, with a label or without."""

    def leave(name: str, label: str | None) -> None:
        labels = [] if label is None else [f"--label={OWNER_LABEL}={label}"]
        words = ["--detach", "--network=none", f"--name={name}", *labels, *OPTIONS, "--stop-timeout=0"]
        ask(engine, "run", *words, IMAGE, "/bin/sleep", "1000")

    yield leave
    ask(engine, "rm", "--all", "--force")


async def test_only_the_containers_of_the_dead_and_our_own_unwatched_ones_are_removed(engine, left):
    here = Owner.here()
    dead = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    dead_owner = Owner(here.machine, here.boot, here.namespace, dead.pid, started_of(dead.pid) or 1)
    await dead.wait()
    living = await asyncio.create_subprocess_exec("/bin/sleep", "1000")
    living_owner = Owner(here.machine, here.boot, here.namespace, living.pid, started_of(living.pid) or 0)
    for name, label in {
        "of-the-dead": str(dead_owner),
        "of-the-living": str(living_owner),
        "elsewhere": str(Owner("another-machine", "boot", "1", 1, 1)),
        "not-ours": None,
        "strange": "who/knows",
        "watched": str(here),
        "unwatched": str(here),
    }.items():
        left(name, label)

    removed = await Orphans(engine, here, lambda: {"watched"}, log=Log("test")).step()
    living.send_signal(signal.SIGKILL)
    await living.wait()

    assert sorted(removed) == ["of-the-dead", "unwatched"]
    assert sorted(names(engine)) == ["elsewhere", "not-ours", "of-the-living", "strange", "watched"]

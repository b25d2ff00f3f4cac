"""`duly cells`: an operator adds cells, places and moves tenants, drains a cell, and verifies all of them."""

import json

import pytest

from duly.domain.tenancy.sealing import new_key_line
from tests.builders import RNG
from tests.cli.processes import inside
from tests.conftest import copy


@pytest.fixture(scope="module")
def migrated(postgres, template):
    """The names of two migrated databases."""
    names = ["cells_one", "cells_two"]
    for name in names:
        copy(postgres, name, template)
    yield [postgres.url(name) for name in names]
    for name in names:
        postgres.drop_database(name)


@pytest.fixture
def duly(migrated, tmp_path):
    """Run one command on the database of the directory."""
    (tmp_path / "keyring").write_text(new_key_line(RNG.secret).reveal())
    settings = {"DULY_SECRETS_KEY": str(tmp_path / "keyring")}
    return lambda *arguments: inside(*arguments, "--database-url", migrated[0], cwd=tmp_path, **settings)


def done(answer):
    """Give what a command wrote that succeeded."""
    assert answer.returncode == 0, answer
    return json.loads(answer.stdout)


def refused(answer, *words):
    """See that a command refused in one sentence."""
    assert answer.returncode in (1, 4), answer
    assert len(answer.stderr.splitlines()) == 1
    assert all(word in answer.stderr for word in words), answer.stderr


def test_a_tenant_is_placed_moved_and_drained(duly, migrated):
    refused(duly("cells", "add", "two", migrated[1]), "duly cells add NAME")
    assert done(duly("cells", "add", "one", "--region", "eu", "--json"))["number"] == 0
    assert done(duly("cells", "add", "two", migrated[1], "--region", "eu", "--json"))["number"] == 1
    assert done(duly("cells", "add", "two", migrated[1], "--json"))["region"] == "eu", "again, it changes nothing"

    assert done(duly("cells", "place", "acme", "--cell", "one", "--json"))["cell"] == "one"
    refused(duly("cells", "place", "acme", "--cell", "two"), "duly cells move acme")
    refused(duly("cells", "place", "late", "--region", "us"), "no active cell in region 'us'")
    refused(duly("cells", "move", "acme", "three"), "no cell 'three'; there are one, two")
    refused(duly("cells", "move", "nobody", "two"), "no tenant 'nobody'")

    moved = done(duly("cells", "move", "acme", "two", "--json"))
    assert (moved["from_cell"], moved["to_cell"], moved["epoch"]) == ("one", "two", 2)
    assert "nothing came late" in duly("cells", "move", "acme", "two").stdout
    assert [(row["tenant"], row["cell"]) for row in done(duly("cells", "tenants", "--json"))] == [("acme", "two")]
    assert [row["tenants"] for row in done(duly("cells", "--json"))] == [0, 1]

    refused(duly("cells", "remove", "two"), "duly cells drain two")
    assert [row["to_cell"] for row in done(duly("cells", "drain", "two", "--json"))] == ["one"]
    refused(duly("cells", "place", "late", "--cell", "two"), "drained")
    assert done(duly("cells", "verify", "--json")) == []
    assert duly("verify").returncode == 0
    assert done(duly("cells", "remove", "two", "--json")) == {"name": "two"}
    assert [row["name"] for row in done(duly("cells", "list", "--json"))] == ["one"]


def test_passwords_of_addresses_are_not_shown(duly, migrated):
    url = migrated[1].replace("postgresql:///", "postgresql://somebody:secret@/")
    answer = duly("cells", "add", "two", url)

    assert "secret" not in answer.stdout + answer.stderr

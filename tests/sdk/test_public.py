"""The public names: thin, and cheap until it is used."""

import subprocess
import sys

import pytest

import duly


def test_every_public_name_is_there():
    assert {name: getattr(duly, name) for name in duly.__all__}.keys() == set(dir(duly))


def test_an_unknown_name_is_an_ordinary_error():
    with pytest.raises(AttributeError, match="module 'duly' has no attribute 'Appp'"):
        duly.Appp  # type: ignore[attr-defined]  # noqa: B018


def test_importing_duly_loads_nothing_else():
    code = "import sys; before = set(sys.modules); import duly; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "['duly']"


@pytest.mark.parametrize("name", [name for name in duly.__all__ if name[0].isupper()])
def test_public_object_has_a_docstring(name):
    assert getattr(duly, name).__doc__

"""A `duly up` that tests share, as in the tests of single commands."""

from tests.cli.conftest import project, up

__all__ = ["project", "up"]

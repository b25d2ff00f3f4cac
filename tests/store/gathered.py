"""The tests of other files, to be run again on another server."""

import inspect
from types import ModuleType


def gathered_from(*modules: ModuleType) -> dict[str, object]:
    """Give the tests of these files, each name ending with that of its file, which says what it is about."""
    return {
        f"{name}_{module.__name__.rpartition('.test_')[2]}": thing
        for module in modules
        for name, thing in vars(module).items()
        if name.startswith(("test_", "Test")) and inspect.getmodule(thing) is module
    }

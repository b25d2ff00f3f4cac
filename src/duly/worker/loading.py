"""Find a user's app by its path `module:name`, in the worker's own process or in a child."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from duly.domain.errors import Refused


def load_app(path: str) -> Any:
    """Import the app named `module:name`. Raises Refused, naming what is missing."""
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise Refused(f"{path!r} does not name an app; write module:name, such as app:app")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.split(".")[0] and error.name != module_name:
            raise
        raise Refused(f"there is no module {module_name!r} here; run the command in the folder that holds it") from None
    app = getattr(module, attribute, None)
    if app is None or not hasattr(app, "registry"):
        raise Refused(f"module {module_name!r} has no app named {attribute!r}; write {attribute} = duly.App() there")
    return app

"""Loading of a user's app, with its errors in one sentence."""

from __future__ import annotations

import traceback
from typing import Any

from duly.domain.errors import DulyError, Refused
from duly.worker.loading import load_app


def load(path: str) -> Any:
    """Import the app named `module:name`. Raises Refused, saying where its code failed."""
    try:
        return load_app(path)
    except DulyError:
        raise
    except Exception as error:
        raise Refused(f"{path} cannot be imported: {type(error).__name__}: {error} ({_location(error)})") from error


def _location(error: Exception) -> str:
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}"
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.filename}, line {last.lineno}"

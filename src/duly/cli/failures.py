"""Failures of commands: one sentence with its remedy, and the exit code."""

from __future__ import annotations

import logging
import re
import traceback

_ROUTE = re.compile(r"`?\b(GET|POST) /v1/([\w-]+)(?:/([^\s/`]+))?`?")
_LISTS = ("dead", "destinations", "files", "jobs", "keys", "runs", "tenants", "workers", "workflows")
_OTHER_LISTS = {"archive": "archive list", "channels": "notify channels", "notification-rules": "notify rules"}
_SHOWS = ("dead", "destinations", "files", "jobs", "runs", "workflows")

REFUSED, USAGE, DATABASE, NOT_FOUND, FAULT, INTERRUPTED = 1, 2, 3, 4, 70, 130

EXIT_CODES = """\b
Exit codes:
  0    done
  1    refused, or what was asked for failed
  2    wrong usage or settings
  3    the database cannot be used, or the Duly over HTTP does not answer
  4    no such job or run
  70   a fault in Duly itself
  130  interrupted"""


def explain(error: Exception) -> tuple[str, int]:
    """Return the sentence for a person and the exit code."""
    says, code = _explained(error)
    return in_commands(says), code


def _explained(error: Exception) -> tuple[str, int]:
    from duly.api.server.listen import WrongSettings
    from duly.cli.render.carets import PREFIX, explained, explained_error
    from duly.client.address import InvalidAddress
    from duly.client.errors import Invalid
    from duly.client.errors import Unavailable as NoAnswer
    from duly.domain.errors import AtPast, DatabaseUnusable, DulyError, JobEnded, NotFound
    from duly.domain.jobs.filter import InvalidFilter
    from duly.domain.triggers.errors import TriggerError
    from duly.settings import SettingsError
    from duly.store.connection.database import Unavailable

    match error:
        case SettingsError() | WrongSettings() | InvalidAddress():
            return str(error), USAGE
        case NotFound() if not isinstance(error, JobEnded):
            return _detail(error), NOT_FOUND
        case DatabaseUnusable() | Unavailable() | NoAnswer():
            return str(error), DATABASE
        case TriggerError():
            return explained_error(error), REFUSED
        case AtPast():
            return f"{error} ({error.code})", REFUSED
        case Invalid() if codes := ", ".join(dict.fromkeys(fault.code for fault in error.errors if fault.code)):
            return f"{error} ({codes})", REFUSED
        case InvalidFilter():
            return explained([(error.as_json(), error.expression)]).removeprefix(PREFIX), REFUSED
        case DulyError():
            return _detail(error), REFUSED
    return _fault(error), FAULT


def _detail(error: Exception) -> str:
    """Leave out the API's general remedy where this refusal has its own."""
    detail = getattr(error, "detail", "")
    return detail if "; " in detail else str(error)


def _fault(error: Exception) -> str:
    if logging.getLogger("duly").isEnabledFor(logging.DEBUG):
        return "".join(traceback.format_exception(error)).rstrip()
    message = " ".join(f"{type(error).__name__}: {error}".split())
    return f"this should not happen: {message}. Set DULY_LOG_LEVEL=debug to see where"


def in_commands(text: str) -> str:
    """Replace a route by its command, if it has one."""
    return _ROUTE.sub(lambda found: _command(found) or found[0], text)


def _command(route: re.Match[str]) -> str | None:
    method, collection, item = route.groups()
    match method, item:
        case "GET", None if collection in _LISTS:
            return f"`duly {collection}`"
        case "GET", None if collection in _OTHER_LISTS:
            return f"`duly {_OTHER_LISTS[collection]}`"
        case "GET", str() if collection in _SHOWS:
            return f"`duly {collection} show {item}`"
        case "POST", None if collection == "jobs":
            return "`duly submit`"
    return None

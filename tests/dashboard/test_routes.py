"""Every operation over HTTP can be done on a screen, or stands here with the reason why not."""

import re

from duly.api.routes import OPERATIONS
from tests.dashboard.conftest import ROOT

_PROGRAMS = "programs say this, and people look at what came of it"
_BY_ID = "the screen knows the id, and asks by that"

NO_SCREEN = {
    **dict.fromkeys(
        (
            *("register_worker", "claim_runs", "renew_lease", "settle_runs", "report_progress", "save_checkpoint"),
            *("append_logs", "leave", "settle_callback", "extend_callback", "report_callback", "accept_event"),
            *("create_jobs", "create_workflow", "add_nodes"),
        ),
        _PROGRAMS,
    ),
    "read_job_by_name": _BY_ID,
    "put_job_by_name": _BY_ID,
    "replace_job": "a change is sent as a patch, so that two who change different fields do not undo each other",
    "list_attempts": "the run itself is read with its attempts",
    "edit_matching": "one payload for many is rarely what is meant; `duly dead edit --filter` is for that",
    "apply_file": "a file is applied where it is kept: `duly apply`",
    "export_file": "a file is written where it is kept: `duly export`",
    **dict.fromkeys(("read_recovery", "approve_recovery", "dismiss_recovery"), "after an outage: `duly recover`"),
    **dict.fromkeys(("backfill_job", "list_backfills", "read_backfill", "cancel_backfill"), "`duly jobs backfill`"),
    **dict.fromkeys(("list_calendars", "read_calendar", "put_calendar", "delete_calendar"), "`duly calendars`"),
    "list_moved_fires": "`duly jobs moved`",
    **dict.fromkeys(("list_archives", "verify_archive", "stop_archive"), "`duly archive`"),
    **dict.fromkeys(("list_legal_holds", "hold_history", "release_history"), "for operators: `duly archive hold`"),
    **dict.fromkeys(("drain_host", "resume_host"), "before an upgrade: `duly drain`"),
    "read_channel": "the list shows all there is of a channel",
    "read_notification_rule": "the list shows all there is of a rule",
    "read_concurrency_key": "the list shows all there is of a key",
}
_PATH = re.compile(r"const path = `(/v1/[^`]*)`")
_CALL = re.compile(
    r"""(?:
        \b(?P<get>get|page)(?:<[^()]*?>)?\(\s*
      | \b(?P<post>post)(?:<[^()]*?>)?\(\s*
      | \bask(?:<[^()]*?>)?\(\s*'(?P<method>[A-Z]+)',\s*
      | \bpath:\s*(?P<verb>)
      | \bnew\ EventSource\((?P<stream>)
    )['"`](?P<path>/v1/[^'"`?]*)""",
    re.VERBOSE,
)


def _written_out(text: str) -> str:
    """Put the path of its subject, where a screen has given it a name, in the places of the name."""
    named = _PATH.search(text)
    if named is None:
        return text
    return re.sub(r"(?<=[(,\s])path(?=[,)])", f"`{named[1]}`", text.replace("${path}", named[1]))


def asked_for() -> set[tuple[str, str]]:
    """Give what the screens ask for: methods and patterns of paths."""
    found = set()
    for source in (ROOT / "ui" / "src").rglob("*"):
        if source.suffix not in (".svelte", ".ts") or source.name == "types.gen.ts":
            continue
        for call in _CALL.finditer(_written_out(source.read_text())):
            is_read = call["get"] is not None or call["stream"] is not None
            method = call["method"] or ("GET" if is_read else "POST")
            pieces = re.split(r"\$\{[^{}]*(?:\([^()]*\))?[^{}]*\}", call["path"])
            found.add((method, "[^/:]+".join(map(re.escape, pieces))))
    return found


def test_every_route_has_a_screen_or_a_reason():
    asked = asked_for()
    unseen = {
        operation.name: f"{operation.method} {operation.path}"
        for operation in OPERATIONS
        if operation.name not in NO_SCREEN
        and not any(
            method == operation.method and re.fullmatch(pattern, re.sub(r"\{\w+\}", "one", operation.path))
            for method, pattern in asked
        )
    }

    assert unseen == {}, "give each a screen, or its name and the reason to NO_SCREEN"


def test_the_reasons_are_of_routes_that_exist():
    assert set(NO_SCREEN) <= {operation.name for operation in OPERATIONS}
    assert all(NO_SCREEN.values())


def test_screens_ask_for_nothing_that_is_not_there():
    paths = [(one.method, re.sub(r"\{\w+\}", "one", one.path)) for one in OPERATIONS]
    paths += [(method, "/v1/session") for method in ("GET", "POST", "DELETE")]
    lost = {
        f"{method} {pattern}"
        for method, pattern in asked_for()
        if not any(method == other and re.fullmatch(pattern, path) for other, path in paths)
    }

    assert lost == set()

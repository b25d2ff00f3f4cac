"""An event in the log is one line, whatever it tells of."""

import json

from duly.log import Log, set_up

ERROR = "duplicate key value violates unique constraint\nDETAIL:  Key (name)=(a)\r\n  already exists.\nHINT: look"


def test_postgresql_error_of_several_lines_is_logged_as_a_single_line(capsys):
    set_up("info")
    Log("scheduler").error("stage_failed", error=ERROR, tries=3)
    set_up("info", as_json=True)
    Log("scheduler").error("stage_failed", error=ERROR, tries=3)

    text, as_json = capsys.readouterr().err.splitlines()
    told = "error=duplicate key value violates unique constraint DETAIL:  Key (name)=(a) already exists. HINT: look tries=3"
    assert text.endswith(f"error   duly.scheduler stage_failed {told}")
    assert json.loads(as_json)["error"] == ERROR

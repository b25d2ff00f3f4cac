"""`duly submit --after`: the same words on a database and over HTTP."""

import pytest

UNKNOWN = "00000000-0000-4000-8000-000000000000"


@pytest.mark.parametrize("where", ["local", "remote"])
def test_a_job_is_submitted_behind_others(where, request):
    duly = request.getfixturevalue(where)
    first = duly("submit", "greet", "name=x", "--delay", "PT1H", "-q").stdout.strip()
    made = duly("submit", "greet", "name=y", "--depends-on", f"{first}:always", "-q")
    assert made.returncode == 0, made.stderr

    shown = duly("runs", "show", made.stdout.strip())

    assert f"depends on {first} (always)" in shown.stdout, shown
    assert f"the end of job {first}" in duly("explain", made.stdout.strip()).stdout
    assert "nothing is known" in duly("submit", "greet", "name=z", "--depends-on", UNKNOWN).stderr
    assert "--on-end" in duly("submit", "greet", "name=z", "--every", "60", "--depends-on", first).stderr

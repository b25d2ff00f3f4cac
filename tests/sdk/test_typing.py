"""A wrong argument is red in the editor: what a type checker says of users' code."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

CODE = """
from typing import assert_type
from duly import App, Handle, Retry, Run, Workflow, WorkflowHandle

app = App()

@app.handler(queue="mail", retry=Retry(max_attempts=5, base="PT2S", cap="PT5M"), timeout="PT30S")
async def send_report(run: Run, customer: int, to: str) -> dict[str, int]:
    run.log.info("building", customer=customer)
    await run.progress(0.5)
    return {"rows": 42}

@app.handler
def double(x: int, times: int = 2) -> int:
    return x * times

@app.handler
async def nightly() -> None: ...

@app.handler(cron="0 2 * * *", tz="Europe/Paris", jitter="PT5M", payload={"note": "x"}, name="plain")
def with_run(run: Run, note: str = "") -> str:
    return note

async def fine() -> None:
    assert_type(await send_report.submit(customer=7, to="a"), Handle[dict[str, int]])
    assert_type(await (await send_report.submit(7, "a")).result(), dict[str, int])
    assert_type(await double.options(delay="PT10M", key="k", priority=2).submit(7), Handle[int])
    assert_type(double(4), int)
    assert_type(with_run.submit_sync(note="x").result_sync(), str)
    await nightly.options(every="P1D", name="nightly").submit()
    await nightly()
    await double.submit_many([{"x": 1}, {"x": 2}])

    wf = Workflow("nightly")
    first = wf.add("first", double, 7)
    wf.map("each", double.options(queue="big"), over=first.result["items"])
    wf.add("last", app.webhook("https://shop.example"), rows=first.result, depends_on=[first.ended])
    assert_type(await wf.submit(key="k"), WorkflowHandle)
    wf.declare(cron="0 2 * * *", overlap="skip")

async def wrong() -> None:
    Workflow("nightly").add("first", print)                 # red: no handler
    Workflow("nightly").declare(corn="0 2 * * *")           # red: option
    await send_report.submit(customer="seven", to="a")      # red: type
    await send_report.submit(customer=7)                    # red: missing
    await send_report.submit(customer=7, to="a", cc="b")    # red: unknown
    await send_report.options(delay=1).submit(7, 8)         # red: type
    send_report.submit_sync("a", "b")                       # red: type
    double("x")                                             # red: type
    double.options(queue=7)                                 # red: option
    double.options(dealy=1)                                 # red: option
    await nightly.submit(1)                                 # red: none taken
    with_run.submit_sync(1)                                 # red: type
    app.handler(quue="x")                                   # red: option
    app.handler(cron=7)                                     # red: option
    (await double.submit(1)).result_sync().upper()          # red: result
"""


@pytest.fixture(scope="module")
def complaints(tmp_path_factory) -> dict[int, str]:
    """What mypy says, by line."""
    path = tmp_path_factory.mktemp("user") / "app.py"
    path.write_text(CODE)
    # What it remembers is of other options than ours: in one place, each would make the other begin anew.
    remembered = f"--cache-dir={ROOT / '.mypy_cache' / 'users'}"
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--config-file=", remembered, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    lines = [line.split(":", 2) for line in done.stdout.splitlines() if "app.py" in line and ": error:" in line]
    assert done.returncode == 1, done.stdout + done.stderr
    return {int(number): said.strip() for _, number, said in lines}


def test_type_checker_flags_exactly_the_wrong_lines(complaints):
    red = {number for number, line in enumerate(CODE.splitlines(), 1) if "# red" in line}

    assert set(complaints) == red, complaints

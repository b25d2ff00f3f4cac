"""The examples of docs/how-to/client.md run as they stand, one after the other, against a real server."""

import asyncio
import re
from pathlib import Path

import duly.client

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "client.md"


async def test_every_example_runs(url, caller, monkeypatch, database):
    monkeypatch.setenv("DULY_URL", url)
    monkeypatch.setenv("DULY_API_KEY", caller.key)
    names: dict[str, object] = {}

    for example in re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL):
        await asyncio.to_thread(exec, compile(example, str(PAGE), "exec"), names)

    assert await database.fetchval("select count(*) from duly.ready") == 10_002
    assert await database.fetchval("select queue from duly.jobs where name = 'nightly'") == "slow"


def test_every_name_on_the_page_is_there():
    named = set(re.findall(r"`(?:client\.)?([A-Z][A-Za-z]+)`", PAGE.read_text())) - {"None"}

    assert {name for name in named if not hasattr(duly.client, name) and not hasattr(duly, name)} == set()

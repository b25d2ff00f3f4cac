"""An app whose runs end well, fail, and take as long as they are left."""

import asyncio

from duly import App, Retry, Run, Workflow

app = App()


@app.handler
async def greet(run: Run, name: str = "you") -> dict[str, str]:
    run.log.info(f"greeting {name}")
    return {"hello": name}


@app.handler(retry=Retry(max_attempts=1))
async def fails(run: Run, why: str = "no reason") -> None:
    run.log.error(why)
    raise RuntimeError(why)


@app.handler
async def takes_long(run: Run) -> None:
    for number in range(600):
        run.log.info("still here", number=number)
        await asyncio.sleep(0.2)


@app.handler
async def listing(number: int = 3) -> list[str]:
    return [f"customer {one}" for one in range(number)]


@app.handler
async def plan(run: Run) -> list[str]:
    more = Workflow("more")
    for day in ("monday", "tuesday"):
        more.add(day, greet, name=day)
    return await more.add_to(run)


@app.handler
async def says(run: Run, lines: list[str]) -> dict[str, list[str]]:
    for line in lines:
        run.log.info(line)
    return {"said": lines}

"""An app whose runs end well, fail, and take as long as they are left."""

import asyncio

from duly import App, Retry, Run

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

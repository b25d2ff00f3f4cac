"""An app whose handlers run on a Ray cluster; its nodes load it as `tests.worker.ray_app:app`."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import duly
from tests.worker.app import write

PATH = "tests.worker.ray_app:app"
app = duly.App()


@app.handler(executor="ray", resources={"num_cpus": 0.5})
def look_around(run: duly.Run, word: str) -> dict[str, Any]:
    """Use all that a run offers, and Ray."""
    import ray

    run.log.info("looking", word=word)
    print("printed there", flush=True)
    run.progress_sync(1, 2, "half")
    run.checkpoint_sync({"seen": word})
    context = ray.get_runtime_context()
    return {
        "node": context.get_node_id(),
        "pid": os.getpid(),
        "run": str(run.id),
        "attempt": run.attempt,
        "fence": run.fence,
        "saved": run.saved,
    }


@app.handler(executor="ray", resources={"num_cpus": 0.5})
async def fail_on_loop(run: duly.Run) -> None:
    await run.checkpoint(run.attempt)
    raise ValueError("no luck")


@app.handler(executor="ray", resources={"num_cpus": 0.5})
def answer(what: str) -> Any:
    """Give results of which none can be stored."""
    return object() if what == "no JSON" else "x" * 5_000_000


@app.handler(executor="ray", resources={"num_cpus": 0.5})
async def wait_on_loop(run: duly.Run, mark: str) -> None:
    """Tidy up when stopped."""
    write(mark, f"{os.getpid()}")
    try:
        await asyncio.sleep(600)
    finally:
        write(mark, f"tidied, cancelled: {run.cancelled}")


@app.handler(executor="ray", resources={"num_cpus": 0.5})
def sleep_on(mark: str) -> None:
    """Nothing but a signal ends this."""
    write(mark, f"{os.getpid()}")
    time.sleep(600)


@app.handler(executor="ray", resources={"num_cpus": 0.5, "resources": {"second": 1}})
def stay_on_second(run: duly.Run, folder: str) -> str:
    """Run on the second node alone; end at the second attempt."""
    write(f"{folder}/{run.attempt}", f"{os.getpid()}")
    while not Path(folder, "go").exists():
        time.sleep(0.02)
    return f"attempt {run.attempt}"


@app.handler(executor="ray", resources={"num_cpus": 0.5})
def crash() -> None:
    os._exit(3)


@app.handler(executor="ray", resources={"resources": {"CPU": 1}})
def misname() -> None: ...


@app.handler(executor="ray", resources={"num_cpus": 64})
def want_too_much() -> None: ...

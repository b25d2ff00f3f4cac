"""The app of a flood of failures: one handler that fails at once, and one that does nothing."""

from duly import App, Retry

app = App()


@app.handler(retry=Retry(max_attempts=1))
async def fails() -> None:
    """Fail for good."""
    raise ValueError("broken")


@app.handler
async def greet() -> None:
    """Do nothing."""

"""Testing handlers and schedules: a real Duly on a scratch PostgreSQL, with a clock that the test moves.

    async with environment(app) as env:
        await nightly.options(every="P1D").submit()
        await env.advance("P3D")
        assert len(env.fires) == 3

Or with pytest, the fixture `duly_env`; it needs to know the app: from a fixture `duly_app` of yours, or from
`duly_app = "module:name"` in pytest's settings. Time stands still while a handler runs, and only Duly's time is moved: a
handler that asks the host for the time gets the host's.
"""

TYPE_CHECKING = False

if TYPE_CHECKING:
    from duly.testing.environments import START, Environment, environment
    from duly.testing.fires import Fire, Line

__all__ = ["START", "Environment", "Fire", "Line", "environment"]

if not TYPE_CHECKING:  # pytest imports this package in every project that has Duly installed: it must cost nothing.

    def __getattr__(name: str) -> object:
        """Load a public name from where it lives."""
        if name not in __all__:
            raise AttributeError(f"module 'duly.testing' has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"duly.testing.{'fires' if name in ('Fire', 'Line') else 'environments'}"), name)

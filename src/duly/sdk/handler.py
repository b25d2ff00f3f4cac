"""The decorated function: still a plain call, and the way to submit it. Typed, so that type checkers find a wrong argument."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from duly.sdk.submittable import Submittable
from duly.worker.context import RunContext
from duly.worker.handlers import Handler as Registered

if TYPE_CHECKING:
    from duly.sdk.app import App

P = ParamSpec("P")  # of the function
Q = ParamSpec("Q")  # of a submit: without the run
R = TypeVar("R")  # what a call returns
T = TypeVar("T")  # the result of a run


class Handler(Submittable[Q, T], Generic[P, Q, R, T]):
    """One handler of an app."""

    __name__: str

    def __init__(self, app: App, registered: Registered) -> None:
        functools.update_wrapper(self, registered.function)  # first: the function's attributes hide nothing of ours
        super().__init__(app, registered)
        self._registered = registered

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now; nothing is submitted."""
        return cast(R, self._registered.function(*args, **kwargs))

    @property
    def registered(self) -> Registered:
        """The handler as a worker sees it."""
        return self._registered

    def __repr__(self) -> str:
        return f"<Handler {self.name}>"


class Decorator(Protocol):
    """Makes a function a handler: async or plain, with the run as its first parameter or without."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[RunContext, Q], Coroutine[Any, Any, T]], /
    ) -> Handler[Concatenate[RunContext, Q], Q, Coroutine[Any, Any, T], T]: ...
    @overload
    def __call__(
        self, function: Callable[Q, Coroutine[Any, Any, T]], /
    ) -> Handler[Q, Q, Coroutine[Any, Any, T], T]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[RunContext, Q], T], /
    ) -> Handler[Concatenate[RunContext, Q], Q, T, T]: ...
    @overload
    def __call__(self, function: Callable[Q, T], /) -> Handler[Q, Q, T, T]: ...

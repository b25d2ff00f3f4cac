"""Handlers: users' functions by name, and the conversion of their arguments to JSON and back.

A function's parameters are its contract. They are compiled once: a submit is bound to the signature, written as a JSON
object and read back by the annotations, strictly, so that what would fail in a worker is refused at submit.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, NoReturn

import msgspec

from duly.domain.errors import InvalidArguments, InvalidOption, InvalidPayload, UnknownHandler
from duly.domain.jobs.job import check_name, check_priority
from duly.domain.runs import payload as payloads
from duly.domain.runs.options import NO_OPTIONS, RunOptions
from duly.domain.runs.run import PRIORITY_DEFAULT, QUEUE_DEFAULT
from duly.domain.targets.target import check_handler
from duly.worker.context import RunContext
from duly.worker.resources import check_resources

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_AT_FIELD = re.compile(r"(?P<what>.*) - at `\$\.(?P<name>\w+)(?P<rest>.*)`", re.DOTALL)
_VALUE_CHARACTERS_MAX = 80
_NAMES_SHOWN = 10
_NO_PAYLOAD = (None, "{}")
RAY = "ray"


class Shape(msgspec.Struct, frozen=True):
    """A function's compiled signature."""

    takes_run: bool
    signature: inspect.Signature  # without the run
    names: tuple[str, ...]  # of its parameters
    decoder: msgspec.json.Decoder[Any]
    may_be_empty: bool
    result_decoder: msgspec.json.Decoder[Any] | None


class Handler:
    """One registered function."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        queue: str = QUEUE_DEFAULT,
        priority: int = PRIORITY_DEFAULT,
        options: RunOptions = NO_OPTIONS,
        aliases: Sequence[str] = (),
        prefix: str = "",
        executor: str | None = None,
        resources: Mapping[str, Any] | None = None,
    ) -> None:
        self.function = function
        own_name = check_handler(check_name(name if name is not None else _name_of(function), "handler name"))
        self.name = check_name(f"{prefix}{own_name}", "handler name")
        self.queue = check_name(queue, "queue")
        self.priority = check_priority(priority)
        self.options = options
        self.aliases = _check_aliases(aliases)
        self.is_async = _is_async(function)
        self.executor = executor
        self.resources = _resources_of(self.name, executor, resources)
        self._shape: Shape | None = None
        with suppress(NameError):  # an annotation names something defined further down: resolved at first use
            self._shape = _compile(self.name, function)

    @property
    def shape(self) -> Shape:
        """The compiled signature. Raises InvalidOption when an annotation cannot be resolved."""
        if self._shape is None:
            try:
                self._shape = _compile(self.name, self.function)
            except NameError as error:
                raise InvalidOption(
                    f"handler {self.name}: an annotation cannot be resolved: {error}."
                    " Import it in the module itself, outside `if TYPE_CHECKING`"
                ) from None
        return self._shape

    @property
    def is_compiled(self) -> bool:
        """Return whether the signature could be compiled already."""
        return self._shape is not None

    @property
    def takes_run(self) -> bool:
        """Return whether the function's first parameter is the run."""
        return self.shape.takes_run

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Encode arguments as a payload. Raises InvalidArguments or InvalidPayload, naming the parameter."""
        if not args and tuple(kwargs) == self.shape.names and (texts := self._encode_plain([kwargs])):
            return texts[0]
        return self.encode_closely(args, kwargs)

    def encode_closely(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Encode arguments one by one, to name the one that is refused. Raises as `encode` does."""
        arguments = self._bound(args, kwargs)
        text = self._write(arguments)
        if arguments:
            self._read(text)
        return text

    def encode_together(self, arguments: Sequence[Mapping[str, Any]]) -> list[str] | None:
        """Encode many sets of arguments in one pass; None where one needs a closer look, and perhaps a refusal."""
        if set(map(type, arguments)) != {dict}:
            return None
        try:
            names = tuple(self._bound((), arguments[0]))
        except (InvalidArguments, TypeError):
            return None
        if set(map(tuple, arguments)) != {names}:
            return None
        return self._encode_plain(arguments)

    def encode_open(self, args: Sequence[Any], kwargs: Mapping[str, Any], write: Callable[[Any], Any]) -> str:
        """Encode arguments of which some are not known yet: those that `write` encodes otherwise. The rest are checked.

        Raises InvalidArguments or InvalidPayload, naming the parameter.
        """
        arguments = self._bound(args, kwargs)
        written = {name: write(value) for name, value in arguments.items()}
        known = {name: value for name, value in arguments.items() if written[name] is value}
        if known:
            self._read(self._write(known), _part_of(self.shape.decoder.type, known))
        return self._write(written)

    def decode(self, payload: str | None) -> dict[str, Any]:
        """Decode a payload into keyword arguments of the annotated types. Raises InvalidArguments."""
        if payload in _NO_PAYLOAD and (self._shape or self.shape).may_be_empty:
            return {}
        return msgspec.structs.asdict(self._read("{}" if payload is None else payload))

    def decode_result(self, result: str | None) -> Any:
        """Decode a result as the annotated return type; as plain JSON where it does not fit."""
        if result is None:
            return None
        decoder = self.shape.result_decoder
        try:
            return decoder.decode(result) if decoder else msgspec.json.decode(result)
        except msgspec.ValidationError:
            return msgspec.json.decode(result)

    def call(self, run: RunContext, kwargs: Mapping[str, Any]) -> Any:
        """Call the function; for an `async def` this returns the coroutine."""
        return self.function(run, **kwargs) if (self._shape or self.shape).takes_run else self.function(**kwargs)

    @property
    def usage(self) -> str:
        """Describe the parameters of the handler, for an error message."""
        return f"it takes {_signature_text(self.shape.signature)}"

    def _encode_plain(self, arguments: Sequence[Mapping[str, Any]]) -> list[str] | None:
        return payloads.encode_together(arguments, self.shape.decoder)

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self.shape.signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidArguments(f"{self.name}: {error}; {self.usage}") from None

    def _write(self, arguments: Mapping[str, Any]) -> str:
        try:
            return payloads.encode(arguments, f"the payload of {self.name}")
        except InvalidPayload:
            for name, value in arguments.items():
                payloads.encode(value, f"argument {name} of {self.name}")
            raise

    def _read(self, text: str, decoder: msgspec.json.Decoder[Any] | None = None) -> Any:
        try:
            return (decoder or self.shape.decoder).decode(text)
        except RecursionError:
            raise InvalidArguments(f"{self.name}: its payload is nested too deeply to be read; flatten it") from None
        except msgspec.MsgspecError as error:
            self._refuse(text, error)

    def _refuse(self, text: str, error: msgspec.MsgspecError) -> NoReturn:
        match = _AT_FIELD.fullmatch(str(error))
        if match is None:
            raise InvalidArguments(f"{self.name}: {_lower(str(error))}; {self.usage}") from None
        name, value = match["name"], ""
        with suppress(msgspec.MsgspecError, RecursionError):  # the rest of it may be unreadable
            value = f" is {_excerpt(msgspec.json.decode(text)[name])}"
        where = f" at {name}{match['rest']}" if match["rest"] else ""
        raise InvalidArguments(f"{self.name}: argument {name}{value}: {_lower(match['what'])}{where}; {self.usage}")


class Registry:
    """Handlers by name and alias; those of an app with a name are found with its `prefix` and without."""

    def __init__(self, *, prefix: str = "") -> None:
        self.prefix = prefix
        self._handlers: dict[str, Handler] = {}

    def add(self, handler: Handler) -> None:
        """Add a handler. Raises InvalidOption when one of its names is taken."""
        for name in (handler.name, *handler.aliases):
            if name in self._handlers:
                raise InvalidOption(
                    f"two handlers are called {name!r}: {_location_of(self._handlers[name])} and {_location_of(handler)};"
                    " give one of them another name="
                )
        for name in (handler.name, *handler.aliases):
            self._handlers[name] = handler

    def get(self, name: str) -> Handler | None:
        """Return the handler of a name or alias, if there is one."""
        return self._handlers.get(name)

    def full_name(self, name: str) -> str:
        """Return the name under which a handler is registered: with the app's prefix, where `name` leaves that out."""
        if name in self._handlers:
            return name
        full = f"{self.prefix}{name}"
        return full if full in self._handlers else name

    def __getitem__(self, name: str) -> Handler:
        """Return the handler of a name or alias. Raises UnknownHandler, naming the nearest."""
        try:
            return self._handlers[self.full_name(name)]
        except KeyError:
            raise UnknownHandler(f"no handler is called {name!r}; {suggestion(name, self.names())}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._handlers

    def __iter__(self) -> Iterator[Handler]:
        return iter(dict.fromkeys(self._handlers.values()))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def names(self) -> list[str]:
        """List every name and alias, as a worker offers them."""
        return list(self._handlers)


def suggestion(name: str, known: Sequence[str]) -> str:
    """Suggest a handler instead of `name`."""
    if near := get_close_matches(name, known, 1):
        return f"did you mean {near[0]!r}?"
    if not known:
        return "none is registered"
    more = f" and {len(known) - _NAMES_SHOWN} more" if len(known) > _NAMES_SHOWN else ""
    return f"known are {', '.join(map(repr, sorted(known)[:_NAMES_SHOWN]))}{more}"


def _compile(name: str, function: Callable[..., Any]) -> Shape:
    signature = inspect.signature(function)
    hints = _hints_of(function)
    parameters = list(signature.parameters.values())
    takes_run = bool(parameters) and hints.get(parameters[0].name) is RunContext
    named = parameters[1:] if takes_run else parameters
    _check_parameters(name, named, hints)
    struct = _struct_of(name, named, hints)
    return Shape(
        takes_run,
        signature.replace(parameters=named),
        tuple(parameter.name for parameter in named),
        msgspec.json.Decoder(struct),
        all(parameter.default is not parameter.empty for parameter in named),
        _result_decoder(hints.get("return", Any)),
    )


def _hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    described = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    return typing.get_type_hints(inspect.unwrap(described), include_extras=True)


def _check_parameters(name: str, parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any]) -> None:
    for parameter in parameters:
        if parameter.kind not in _NAMED:
            raise InvalidOption(
                f"handler {name}: parameter {str(parameter)!r} cannot be filled from a JSON object; give each parameter a name"
            )
        if hints.get(parameter.name) is RunContext:
            raise InvalidOption(f"handler {name}: the run must be the first parameter, not {parameter.name!r}")


def _struct_of(name: str, parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any]) -> type[msgspec.Struct]:
    fields = [_field_of(parameter, hints.get(parameter.name, Any)) for parameter in parameters]
    try:
        struct = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True, gc=False)
        msgspec.json.Decoder(struct)
    except TypeError as error:
        raise InvalidOption(
            f"handler {name}: its parameters cannot be read from JSON: {error}. Use types that JSON can tell apart"
        ) from None
    return struct


def _field_of(parameter: inspect.Parameter, hint: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
    if parameter.default is parameter.empty:
        return parameter.name, hint
    default = parameter.default
    return parameter.name, hint, msgspec.field(default_factory=lambda: default)


def _part_of(struct: Any, names: Collection[str]) -> msgspec.json.Decoder[Any]:
    """Return a decoder of some of a handler's arguments without the others."""
    fields = [(field.name, field.type) for field in msgspec.structs.fields(struct) if field.name in names]
    return msgspec.json.Decoder(msgspec.defstruct(struct.__name__, fields, forbid_unknown_fields=True))


def _result_decoder(hint: Any) -> msgspec.json.Decoder[Any] | None:
    try:
        return msgspec.json.Decoder(hint)
    except TypeError:
        return None  # a return type that JSON cannot represent: results are plain JSON


def _resources_of(name: str, executor: str | None, resources: Mapping[str, Any] | None) -> dict[str, Any]:
    """Check where a handler runs, and what one attempt takes there. Raises InvalidOption."""
    if executor not in (None, RAY):
        raise InvalidOption(
            f'handler {name}: executor {executor!r} is unknown; give "ray", or leave it out to run in the worker'
        )
    if executor is None and resources is not None:
        raise InvalidOption(f'handler {name}: resources= are of a Ray cluster; give executor="ray" as well')
    return check_resources(resources or {}) if executor == RAY else {}


def _is_async(function: Callable[..., Any]) -> bool:
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise InvalidOption(f"handler {_name_of(function)} yields; a handler returns its result")
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def _check_aliases(aliases: Sequence[str]) -> tuple[str, ...]:
    if isinstance(aliases, str):  # each of its letters would be a name
        raise InvalidOption(f"aliases {aliases!r} is one text; give a list: aliases=[{aliases!r}]")
    return tuple(check_handler(check_name(alias, "handler alias")) for alias in aliases)


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise InvalidOption(f"{function!r} has no name of its own; give it one: @app.handler(name=…)")
    return name


def _location_of(handler: Handler) -> str:
    function = inspect.unwrap(handler.function)
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', handler.name)}"


def _signature_text(signature: inspect.Signature) -> str:
    return str(signature.replace(return_annotation=inspect.Signature.empty)) if signature.parameters else "no arguments"


def _excerpt(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _VALUE_CHARACTERS_MAX else f"{text[:_VALUE_CHARACTERS_MAX]}…"


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]

"""Secrets among a job's options, sealed in place: of its target, of a workflow's nodes, and of callbacks.

Options are sealed before they are written, and opened by a worker right before the call. A secret header or variable is
sealed as a value; for a URL with a secret in its query, `url` is what people see and `sealed_url` the whole of it. A
sealed value is bound to its tenant and to where it goes, as `***` is in a change: to the URL, or to the program, with
the variables beside it and its network. Copied elsewhere it does not open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, TypeVar

import msgspec
from msgspec.structs import replace

from duly.domain.errors import InvalidOption
from duly.domain.runs.callbacks import Callbacks
from duly.domain.runs.options import NO_OPTIONS, RunOptions
from duly.domain.targets.masking import HIDDEN, has_hidden_parameter, is_secret, masked_url
from duly.domain.targets.target import Command, Container, Target, Webhook
from duly.domain.tenancy.sealing import NEW_KEY, CannotOpen, FindKeyring, Keyring, is_sealed, sealing_key_of

_VALUES = ("headers", "environment")
_KINDS: dict[str, Any] = {"target": Target, "callbacks": Callbacks}
_NAMES = {"headers": "header", "environment": "variable"}
Path = tuple[str, ...]
Carrier = dict[str, Any]  # a target or a callback with secrets, as plain values

T = TypeVar("T", bound=Webhook | Command | Container)


def seal_options(options: RunOptions, tenant: int, find: FindKeyring, standing: RunOptions = NO_OPTIONS) -> RunOptions:
    """Return options with their secrets sealed; `***` stands for the secret at the same place of the stored options.

    An unchanged secret stays sealed as it is, with whichever key. Raises InvalidOption without a key, and where `***`
    stands for nothing.
    """
    if options.policy.target is None and options.metadata.callbacks is None:
        return options
    plain, known = _plain(options), dict(_carriers(_plain(standing)))
    is_changed = False
    for path, carrier in _carriers(plain):
        before = known.get(path, {})
        is_sealed_now = _seal(carrier, tenant, find, before)
        is_changed = _restore(carrier, tenant, before) or is_sealed_now or is_changed
    if not is_changed:
        return options
    target, callbacks = (
        None if plain[name] is None else msgspec.convert(plain[name], kind) for name, kind in _KINDS.items()
    )
    return RunOptions(
        replace(options.policy, target=target), replace(options.metadata, callbacks=callbacks), options.history
    )


def open_target(target: T, tenant: int, find: FindKeyring) -> T:
    """Return a target with its secrets opened. Raises CannotOpen, and InvalidOption without a key."""
    values = target.headers if isinstance(target, Webhook) else target.environment
    if not (isinstance(target, Webhook) and target.sealed_url) and not any(map(is_sealed, values.values())):
        return target
    carrier: Carrier = msgspec.to_builtins(target)
    sealed = [place for place in _places(carrier) if is_sealed(place.value)]
    about, keyring = _about(carrier, tenant), _needed(find, "the target has secrets that are sealed")
    opened = [(place, keyring.open_text(place.value, place.about(about))) for place in sealed]
    for place, value in opened:
        place.put(value)
    if "sealed_url" in carrier:
        carrier["url"] = carrier.pop("sealed_url")
    return msgspec.convert(carrier, type(target))


def reseal_options(options: dict[str, Any], tenant: int, keyring: Keyring) -> bool:
    """Reseal with the first key, in place, secrets sealed with another; return whether there were any. Raises CannotOpen."""
    is_changed = False
    for _, carrier in _carriers(options):
        about = _about(carrier, tenant)
        for place in _places(carrier):
            if sealing_key_of(place.value) not in (None, keyring.key_id):
                where = place.about(about)
                place.put(keyring.seal_text(keyring.open_text(place.value, where), where))
                is_changed = True
    return is_changed


def _plain(options: RunOptions) -> dict[str, Any]:
    carriers = {"target": options.policy.target, "callbacks": options.metadata.callbacks}
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(carriers))
    return plain


class _Place(msgspec.Struct):
    """The place of a secret in a carrier."""

    values: dict[str, Any]
    name: str
    kind: str

    @property
    def value(self) -> str:
        return str(self.values[self.name])

    def put(self, value: str) -> None:
        self.values[self.name] = value

    def about(self, where: Any) -> bytes:
        """Return the associated data of a secret: where it goes, and its name."""
        return msgspec.json.encode([*where, self.kind, self.name.lower() if self.kind == "headers" else self.name])


def _carriers(options: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, Carrier]]:
    target = options.get("target")
    if isinstance(target, dict) and isinstance(target.get("nodes"), list):
        for node in target["nodes"]:
            yield from _carriers(node.get("options") or {}, (*path, "nodes", str(node.get("name"))))
        yield from _callbacks(target, (*path, "target"))
    elif isinstance(target, dict):
        yield (*path, "target"), target
    yield from _callbacks(options, path)


def _callbacks(holder: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Carrier]]:
    callbacks = holder.get("callbacks")
    for when, callback in callbacks.items() if isinstance(callbacks, dict) else ():
        if isinstance(callback, dict) and "url" in callback:
            yield (*path, "callbacks", when), callback


def _places(carrier: Carrier) -> Iterator[_Place]:
    """Return the places of a carrier that hold secrets, or whose names say so."""
    if isinstance(carrier.get("sealed_url"), str):
        yield _Place(carrier, "sealed_url", "url")
    for kind in _VALUES:
        values: dict[str, Any] = carrier.get(kind) or {}
        for name, value in values.items():
            if isinstance(value, str) and (is_secret(name) or is_sealed(value)):
                yield _Place(values, name, kind)


def _about(carrier: Carrier, tenant: int) -> list[Any]:
    """Return where the sealed secrets of a carrier go."""
    if "url" in carrier:
        return [tenant, "url", carrier["url"]]
    environment: Mapping[str, str] = carrier.get("environment") or {}
    beside = sorted([name, HIDDEN if is_sealed(value) else value] for name, value in environment.items())
    program = [carrier.get("image"), list(carrier.get("argv") or ()), bool(carrier.get("network"))]
    return [tenant, carrier.get("type"), *program, beside]


def _about_new(carrier: Carrier, tenant: int) -> list[Any]:
    """Return where the secrets of a carrier will go when all are sealed."""
    if "url" in carrier:
        return [tenant, "url", masked_url(carrier["url"])]
    names = {place.name for place in _places(carrier)}
    environment: Mapping[str, str] = carrier.get("environment") or {}
    shown = {name: HIDDEN if name in names else value for name, value in environment.items()}
    return _about({**carrier, "environment": shown}, tenant)


def _seal(carrier: Carrier, tenant: int, find: FindKeyring, before: Carrier) -> bool:
    """Seal unsealed secrets, in place; return whether there were any."""
    about, places, is_changed = _about_new(carrier, tenant), list(_places(carrier)), False
    url = carrier.get("url")
    if isinstance(url, str) and masked_url(url) != url:
        if has_hidden_parameter(url):
            raise InvalidOption(
                f"the URL {masked_url(url)} has a value and {HIDDEN} in its query; send it unchanged as shown, or with all values"
            )
        place = _Place(carrier, "sealed_url", "url")
        place.put(_sealed_as(url, place, about, _needed(find, f"the query of {masked_url(url)} has a secret"), before))
        carrier["url"], is_changed = masked_url(url), True
    is_where_it_was = bool(before) and about == _about(before, tenant)
    known = {(place.kind, place.name.lower()): place.value for place in _places(before) if is_where_it_was}
    for place in places:
        standing = {place.name: known.get((place.kind, place.name.lower()), "")}
        if place.value in (HIDDEN, standing[place.name]):
            continue
        keyring = _needed(find, f"the {_NAMES.get(place.kind, place.kind)} {place.name} of the target is a secret")
        if is_sealed(place.value) and _opens(place, about, keyring):
            continue
        place.put(_sealed_as(place.value, place, about, keyring, standing))
        is_changed = True
    return is_changed


def _opens(place: _Place, about: list[Any], keyring: Keyring) -> bool:
    """Return whether a text that looks sealed can be opened: a caller can write such a text, and a rotation would fail on it."""
    try:
        keyring.open_text(place.value, place.about(about))
    except CannotOpen:
        return False
    return True


def _sealed_as(value: str, place: _Place, about: list[Any], keyring: Keyring, before: Mapping[str, Any]) -> str:
    """Seal a value; if it is unchanged, return the stored sealed value."""
    standing, where = str(before.get(place.name) or ""), place.about(about)
    key_id = sealing_key_of(standing)
    if key_id is not None and keyring.has(key_id) and keyring.seal_text(value, where, key_id) == standing:
        return standing
    return keyring.seal_text(value, where)


def _restore(carrier: Carrier, tenant: int, before: Carrier) -> bool:
    """Replace `***` by the stored values; return whether there were any. Raises InvalidOption."""
    hidden = [place for place in _places(carrier) if place.value == HIDDEN]
    is_url_hidden = "sealed_url" not in carrier and has_hidden_parameter(str(carrier.get("url", "")))
    if not hidden and not is_url_hidden:
        return False
    known = before if before and _goes_where(carrier, tenant, before) else {}
    if is_url_hidden:
        carrier["sealed_url"] = known.get("sealed_url") or _refuse_unknown_secret("the query", "the URL")
    values = {(place.kind, place.name.lower()): place.value for place in _places(known) if is_sealed(place.value)}
    for place in hidden:
        found = values.get((place.kind, place.name.lower()))
        place.put(found or _refuse_unknown_secret(place.name, f"{place.kind} of the target"))
    return True


def _refuse_unknown_secret(name: str, where: str) -> NoReturn:
    raise InvalidOption(
        f"{name} in {where} is {HIDDEN}, which keeps the stored value, but there is none: the job is new, has no such"
        " value, or now has another URL, program, network or other variables. Send the value itself"
    )


def _goes_where(carrier: Carrier, tenant: int, before: Carrier) -> bool:
    """Return whether secrets sealed in `before` open in a carrier, and go there with nothing else beside them."""
    hidden = {place.name for place in _places(carrier) if place.value == HIDDEN}
    beside, beside_before = (
        {name: value for name, value in (one.get("environment") or {}).items() if name not in hidden}
        for one in (carrier, before)
    )
    return _about_new(carrier, tenant) == _about(before, tenant) and beside == beside_before


def _needed(find: FindKeyring, why: str) -> Keyring:
    keyring = find()
    if keyring is None:
        raise InvalidOption(f"{why}, and the server has no key to seal it with; create one: {NEW_KEY}")
    return keyring

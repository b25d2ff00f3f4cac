"""Settings: flags, then `DULY_*` variables, then `duly.toml` or `[tool.duly]` in `pyproject.toml`, then, for traces, the
variables of OpenTelemetry, then defaults.

A secret may be in a file of its own, as service managers and container platforms hand secrets over: the variable with
`_FILE` behind its name gives that file. The settings file is the nearest one, looking upwards from the working folder.
Each value remembers where it came from. An unknown key is an error that names the nearest known one, because a misspelt
setting must not be silently ignored. This is the only module that reads the environment, or adds to it.
"""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import msgspec

PREFIX = "DULY_"
IN_FILE = "_FILE"
# Their values may be in files of their own; a keyring is one already.
SECRETS = ("database_url", "read_url", "api_key", "archive_access_key", "archive_secret_key")
FILE = "duly.toml"
PROJECT_FILE = "pyproject.toml"
DATA_DEFAULT = ".duly"

Duration = str | int | float  # as written; the domain reads it

# Variables that every program with OpenTelemetry reads; a setting of our own goes before them.
_OF_OPENTELEMETRY = {
    "otel_endpoint": "OTEL_EXPORTER_OTLP_ENDPOINT",
    "otel_headers": "OTEL_EXPORTER_OTLP_HEADERS",
    "otel_service": "OTEL_SERVICE_NAME",
    "otel_ratio": "OTEL_TRACES_SAMPLER_ARG",
}
_ENGINE_VARIABLES = (
    *(
        "PATH",
        "HOME",
        "USER",
        "TMPDIR",
        "XDG_RUNTIME_DIR",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "DBUS_SESSION_BUS_ADDRESS",
    ),
    *("DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY", "REGISTRY_AUTH_FILE"),
    *("CONTAINER_HOST", "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "CONTAINERD_ADDRESS", "CONTAINERD_NAMESPACE"),
)
_BYTES = {"": 1, "KIB": 1_024, "MIB": 1_048_576, "GIB": 1_073_741_824}


class SettingsError(Exception):
    """A setting that is unknown or cannot be read; the message names it, its source and the remedy."""


class Hidden(str):
    """Text that is hidden where whole values are shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting, with `sources` saying where each came from."""

    database_url: str | None
    read_url: str | None
    read_lag: Duration
    data: Path
    host: str
    port: int
    tls_certificate: Path | None
    tls_key: Path | None
    plain_http: bool
    http_connections: int
    http_connections_per_address: int
    metrics_host: str
    metrics_port: int | None
    dashboard: bool
    app: str | None
    pooler: bool
    queues: tuple[str, ...]
    slots: int
    threads: int
    processes: int
    ray_tasks: int
    ray_address: str
    commands: Mapping[str, tuple[str, ...]]  # with the variables that jobs may set
    command_sandbox: str
    command_cgroup: str
    command_network: bool
    command_user: str | None
    command_paths: tuple[str, ...]
    command_memory: int
    command_processes: int
    command_grace: Duration
    containers: tuple[str, ...]
    container_command: tuple[str, ...]
    container_options: tuple[str, ...]
    lease: Duration
    grace: Duration
    webhooks: int
    secrets_key: Path | None
    egress_ports: tuple[int, ...]
    egress_allow: tuple[str, ...]
    egress_loopback: bool
    apprise_schemes: tuple[str, ...]
    retention_succeeded: Duration
    retention_failed: Duration
    retention_audit: Duration
    retention_jobs: Duration | None
    history_payload_bytes: int
    redact: tuple[str, ...] | None
    archive_url: str | None
    archive_endpoint: str | None
    archive_region: str | None
    archive_access_key: Hidden | None
    archive_secret_key: Hidden | None
    archive_sample_successes: int
    archive_retention: Duration | None
    queue_age_limit: Duration
    recovery_after: Duration | None
    log_level: str
    log_format: str
    otel_endpoint: str | None
    otel_headers: Hidden | None
    otel_service: str
    otel_ratio: float
    url: str | None
    api_key: Hidden | None
    as_tenant: str | None
    sources: Mapping[str, str]

    def is_given(self, name: str) -> bool:
        """Return whether this value was set."""
        return self.sources[name] != "default"


class Shown(msgspec.Struct, frozen=True):
    """One setting as people see it."""

    name: str
    value: object
    source: str
    help: str


class Known(msgspec.Struct, frozen=True):
    """One setting: its parser, its default, and its meaning."""

    read: Callable[[object], Any]
    default: object
    help: str


def load(
    flags: Mapping[str, object] | None = None, environ: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Settings:
    """Gather every setting; a flag of None was not given. Raises SettingsError."""
    cwd = cwd or Path.cwd()
    file, in_file = _from_file(cwd)
    home = file.parent if file else cwd
    environ = os.environ if environ is None else environ
    named, in_named_files = _from_environment(environ)
    layers: list[tuple[Callable[[str], str], Mapping[str, object], Path]] = [
        (_flag, _given(flags or {}), cwd),
        (lambda name: PREFIX + name.upper(), named, cwd),
        (lambda name: PREFIX + name.upper() + IN_FILE, in_named_files, cwd),
        (lambda name: f"{name} in {_short(file, cwd)}", in_file, home),
        (lambda name: _OF_OPENTELEMETRY[name], _of_opentelemetry(environ), cwd),
    ]
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, known in KNOWN.items():
        values[name], sources[name] = _resolve(name, known, layers, home)
    for name in ("database_url", "read_url"):
        _check_database(values[name], sources[name])
    return Settings(**values, sources=sources)


def _check_database(url: str | None, source: str) -> None:
    """Refuse a value that is no PostgreSQL address; it is not repeated, because it may contain a password."""
    if url is None:
        return
    if not url.startswith(("postgres://", "postgresql://")):
        raise SettingsError(f"{source} is not the address of a PostgreSQL; write it as postgresql://user@host/database")
    if not all(_PORT.fullmatch(port) and 1 <= int(port) <= 65_535 for port in _ports_in(url)):
        raise SettingsError(
            f"{source} names a port that is not a number from 1 to 65535; write it as postgresql://user@host:5432/database"
        )
    try:
        check_parameters(url)
    except ValueError as error:
        raise SettingsError(f"{source}: {error}") from None


def check_parameters(url: str) -> None:
    """Check the parameters of a database's address that decide about hosts and safety. Raises ValueError with the remedy."""
    named = {name: values[-1] for name, values in parse_qs(url.partition("?")[2]).items()}
    attributes = named.get("target_session_attrs", "any")
    if attributes not in SESSION_ATTRIBUTES:
        raise ValueError(f"target_session_attrs={attributes} is none of {', '.join(SESSION_ATTRIBUTES)}")
    for name in ("channel_binding", "gssencmode"):
        if named.get(name) == "require":  # a promise, which must not be made in vain
            raise ValueError(f"{name}=require is not supported: remove it, and use sslmode=verify-full")


def _ports_in(url: str) -> list[str]:
    """Return the ports that a database's address names, behind each of its hosts or by themselves."""
    rest, _, query = url.partition("://")[2].partition("?")
    hosts = rest.partition("/")[0].rpartition("@")[2].split(",")
    behind = [found[1] for host in hosts if (found := re.search(r":([^:\]]+)$", host))]
    return behind + [port for ports in parse_qs(query).get("port", []) for port in ports.split(",")]


SESSION_ATTRIBUTES = ("any", "read-write", "read-only", "primary", "standby", "prefer-standby")
_PORT = re.compile(r"[0-9]{1,5}")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")


def shown(settings: Settings) -> list[Shown]:
    """Return every setting as it may be shown: without passwords, keys, and additions to a container engine's commands."""
    return [
        Shown(name, _shown_value(name, getattr(settings, name)), settings.sources[name], known.help)
        for name, known in KNOWN.items()
    ]


def _shown_value(name: str, value: object) -> object:
    if name in ("database_url", "read_url") and isinstance(value, str):
        return redacted(value)
    if value and (name == "container_options" or isinstance(value, Hidden)):
        return "***"
    if isinstance(value, Mapping):
        return tuple(f"{program}={' '.join(names)}" if names else program for program, names in value.items())
    return str(value) if isinstance(value, Path) else value


def redacted(url: str) -> str:
    """Show a database's address without its password."""
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    login, at, host = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    return re.sub(r"(password=)[^&\s]*", r"\1***", f"{scheme}{separator}{user}{':***' if colon else ''}{at}{host}")


def settings_file(cwd: Path | None = None) -> Path | None:
    """Return the settings file, if there is one. Raises SettingsError."""
    return _from_file(cwd or Path.cwd())[0]


def hand_on(settings: Settings, *names: str) -> None:
    """Export typed settings to our environment, for the app and child processes."""
    for name in names:
        if settings.sources[name].startswith("--"):
            os.environ[PREFIX + name.upper()] = str(getattr(settings, name))
            os.environ.pop(PREFIX + name.upper() + IN_FILE, None)  # the flag came first


def engine_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the part of our environment that a container engine's program needs."""
    given = os.environ if environ is None else environ
    return {name: given[name] for name in _ENGINE_VARIABLES if name in given}


def _resolve(
    name: str, known: Known, layers: list[tuple[Callable[[str], str], Mapping[str, object], Path]], home: Path
) -> tuple[Any, str]:
    for source_of, given, base in layers:
        if name in given:
            source = source_of(name)
            return _placed(_read(known, given[name], source), base), source
    return _placed(known.default, home), "default"


def _read(known: Known, value: object, source: str) -> Any:
    try:
        return known.read(value)
    except (TypeError, ValueError) as error:
        shown = ",".join(map(str, value)) if isinstance(value, tuple) else value  # of a flag that repeats
        raise SettingsError(f"{source}: {shown!r} is not {error}") from None


def _placed(value: Any, base: Path) -> Any:
    """Resolve a path relative to where it was written; other values do not depend on a folder."""
    return (base / value.expanduser()).absolute() if isinstance(value, Path) else value


def _flag(name: str) -> str:
    return "--queue" if name == "queues" else f"--{name.replace('_', '-')}"


def _given(flags: Mapping[str, object]) -> dict[str, object]:
    given = {name: value for name, value in flags.items() if value is not None and value != ()}
    assert given.keys() <= KNOWN.keys(), given.keys() - KNOWN.keys()
    return given


def _from_environment(environ: Mapping[str, str]) -> tuple[dict[str, object], dict[str, object]]:
    """Return what variables give, and the secrets in the files that variables name."""
    given = {name.removeprefix(PREFIX).lower(): value for name, value in environ.items() if name.startswith(PREFIX)}
    files = {name: given.pop(name + IN_FILE.lower(), "") for name in SECRETS}
    for name in given.keys() - KNOWN.keys():
        raise SettingsError(_unknown(PREFIX + name.upper(), "the environment", [PREFIX + key.upper() for key in KNOWN]))
    named: dict[str, object] = {name: value for name, value in given.items() if value != ""}
    for name in (name for name in named if files.get(name)):
        variable = PREFIX + name.upper()
        raise SettingsError(f"{variable} and {variable}{IN_FILE} are both set; unset one of them")
    return named, {name: _content(PREFIX + name.upper() + IN_FILE, file) for name, file in files.items() if file}


def _of_opentelemetry(environ: Mapping[str, str]) -> dict[str, object]:
    """Return what the variables of OpenTelemetry give: they are for all programs, so what does not suit is no error."""
    given: dict[str, object] = {name: environ[key] for name, key in _OF_OPENTELEMETRY.items() if environ.get(key)}
    is_off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    exporters = environ.get("OTEL_TRACES_EXPORTER", "") or "otlp"
    if is_off or "otlp" not in exporters.split(",") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") == "grpc":
        given.pop("otel_endpoint", None)
    if environ.get("OTEL_TRACES_SAMPLER", "").endswith("always_off"):
        given["otel_ratio"] = 0.0
    try:
        _ratio(given.get("otel_ratio"))
    except ValueError:
        given.pop("otel_ratio", None)
    return given


def is_of_opentelemetry(source: str) -> bool:
    """Return whether a value came from a variable of OpenTelemetry, and not from a setting of ours."""
    return source in _OF_OPENTELEMETRY.values()


def _content(variable: str, file: str) -> str:
    """Return the value in a file, without the end of its line."""
    try:
        value = Path(file).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SettingsError(f"{variable}: {file} cannot be read: {reason}") from None
    if not value:
        raise SettingsError(f"{variable}: {file} is empty; write the value into it")
    return value


def _from_file(cwd: Path) -> tuple[Path | None, dict[str, object]]:
    for folder in (cwd, *cwd.parents):
        if (folder / FILE).is_file():
            return _checked(folder / FILE, _parsed(folder / FILE))
        if (folder / PROJECT_FILE).is_file():
            table = _parsed(folder / PROJECT_FILE).get("tool", {}).get("duly")
            if table is not None:
                return _checked(folder / PROJECT_FILE, table)
    return None, {}


def _checked(path: Path, table: dict[str, object]) -> tuple[Path, dict[str, object]]:
    for name in table.keys() - KNOWN.keys():
        raise SettingsError(_unknown(name, str(path), list(KNOWN)))
    return path, table


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from None


def _unknown(name: str, where: str, known: list[str]) -> str:
    # Without the prefix, which all variables share and which would make any two of them near.
    bare = {one.removeprefix(PREFIX): one for one in known}
    near = get_close_matches(name.removeprefix(PREFIX), bare, n=1, cutoff=0.6)
    meant = f"did you mean {bare[near[0]]}? " if near else ""
    return f"unknown setting {name} in {where}; {meant}`duly config` lists them all"


def _short(file: Path | None, cwd: Path) -> str:
    assert file is not None
    return file.name if file.parent == cwd else str(file)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("text")
    return value


def _hidden(value: object) -> Hidden:
    return Hidden(_text(value))


def _path(value: object) -> Path:
    if not isinstance(value, str | Path):
        raise TypeError("a path")
    return Path(value)


def _switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if not isinstance(value, str) or value.lower() not in words:
        raise ValueError("true or false")
    return words[value.lower()]


def _whole(least: int, most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        try:
            number = int(value) if isinstance(value, int | str) and not isinstance(value, bool) else None
        except ValueError:
            number = None
        if number is None or not least <= number <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return number

    return read


def _words(value: object) -> tuple[str, ...]:
    words = value.split(",") if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) and word.strip() for word in words):
        raise TypeError("a list of names; write them as mail,bulk, each with at least one visible character")
    return tuple(word.strip() for word in words)


def _paths(value: object) -> tuple[str, ...]:
    """Read absolute paths, exactly as they are written."""
    try:
        words = _words(value)
    except TypeError:
        words = ("",)
    if not all(word.startswith("/") for word in words):
        raise ValueError("a list of absolute paths, such as /usr/bin/backup")
    return words


def _programs(value: object) -> dict[str, tuple[str, ...]]:
    """Read absolute paths, each with the names of variables behind `=`, if any."""
    programs: dict[str, tuple[str, ...]] = {}
    for word in _paths(value):
        path, _, names = word.partition("=")
        if not all(map(_VARIABLE.fullmatch, names.split())):
            raise ValueError("a list of programs with variables, such as /usr/bin/pg_dump=PGHOST PGUSER")
        programs[path] = (*programs.get(path, ()), *names.split())
    return programs


def _arguments(value: object) -> tuple[str, ...]:
    """Parse the words of a command line: a list, or text as a shell would split it."""
    words = shlex.split(value) if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise TypeError("a list of words")
    return tuple(words)


def _size(least: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        found = re.fullmatch(r"(\d{1,15})\s*([KMG]iB|)", str(value), re.IGNORECASE)
        number = int(found[1]) * _BYTES[found[2].upper()] if found and not isinstance(value, bool) else 0
        if number < least:
            raise ValueError(f"a number of bytes of at least {least}, such as 512MiB")
        return number

    return read


def _ports(value: object) -> tuple[int, ...]:
    numbers = value.split(",") if isinstance(value, str) else value
    try:
        return tuple(map(_whole(1, 65_535), numbers))  # type: ignore[call-overload]
    except (TypeError, ValueError):
        raise ValueError("a list of ports from 1 to 65535") from None


def _duration(value: object) -> Duration:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError("a duration; write PT30S, PT5M, P1D or a number of seconds")
    try:
        return float(value)
    except ValueError:
        assert isinstance(value, str)
        return value


def _ratio(value: object) -> float:
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else -1.0
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise ValueError("a number from 0 to 1")
    return number


def _one_of(*choices: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or value.lower() not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return value.lower()

    return read


KNOWN: Mapping[str, Known] = {
    "database_url": Known(
        _text,
        None,
        "a PostgreSQL 15 or newer to use instead of the embedded one; of several hosts, the one that takes writes",
    ),
    "read_url": Known(
        _text,
        None,
        "a standby of that database, from which the API reads lists and figures; of several hosts, one that is a standby",
    ),
    "read_lag": Known(
        _duration, 5.0, "how old what is read there may be; while it is older, everything is read from the primary"
    ),
    "data": Known(_path, Path(DATA_DEFAULT), "the folder of the embedded PostgreSQL"),
    "host": Known(_text, "127.0.0.1", "where the API listens"),
    "port": Known(_whole(0, 65_535), 7300, "port of the API; 0: a free one"),
    "tls_certificate": Known(_path, None, "TLS certificate of the API, a PEM file"),
    "tls_key": Known(_path, None, "the key of that certificate, as a PEM file"),
    "plain_http": Known(
        _switch, False, "a proxy in front speaks TLS: listen without it anywhere, with cookies for TLS"
    ),
    "http_connections": Known(_whole(1, 60_000), 1_000, "maximum number of open connections of the API"),
    "http_connections_per_address": Known(
        _whole(1, 60_000), 250, "maximum number of them per address; behind a proxy, set it to all"
    ),
    "metrics_host": Known(_text, "127.0.0.1", "where a process serves its own figures; nothing there asks for a key"),
    "metrics_port": Known(
        _whole(0, 65_535),
        None,
        "where a worker, scheduler, API or `duly up` serves its own /metrics, /livez and /readyz; 0: a free one, unset: nowhere",
    ),
    "dashboard": Known(_switch, True, "serve the dashboard at /, and let people log in with their keys"),
    "app": Known(_text, None, "the app that workers run, as module:name"),
    "pooler": Known(_switch, False, "the database is behind a transaction-mode pooler"),
    "queues": Known(_words, ("default",), "the queues that a worker serves, with their weights: critical=5,bulk"),
    "slots": Known(_whole(1, 100_000), 100, "concurrent runs of a worker"),
    "threads": Known(_whole(1, 10_000), 10, "concurrent plain functions of a worker"),
    "processes": Known(_whole(1, 1_000), 4, "concurrent commands and containers of a worker"),
    "ray_tasks": Known(_whole(1, 10_000), 16, "concurrent runs of a worker on its Ray cluster"),
    "ray_address": Known(
        _text, "auto", "the Ray cluster, as host:port; auto: that of RAY_ADDRESS, or the one that runs on this machine"
    ),
    "commands": Known(
        _programs,
        {},
        "the programs that jobs may run as commands, each with the variables that they may set: /usr/bin/pg_dump=PGHOST PGUSER",
    ),
    "command_sandbox": Known(
        _one_of("required", "none"), "required", "whether commands run in a sandbox, or unprotected"
    ),
    "command_cgroup": Known(
        _one_of("required", "optional"),
        "required",
        "whether commands need a control group that limits the memory of all their processes together",
    ),
    "command_network": Known(
        _switch, False, "let commands and containers have the network where their job asks for it"
    ),
    "command_user": Known(_text, None, "user that a root worker runs commands as; default: nobody"),
    "command_paths": Known(_paths, (), "read-only paths for commands besides the system's programs"),
    "command_memory": Known(_size(1_048_576), 536_870_912, "the most memory that a job may ask for, and its default"),
    "command_processes": Known(_whole(1, 100_000), 64, "the most processes that a job may ask for, and its default"),
    "command_grace": Known(_duration, 8.0, "how long a command or container that is asked to stop may take"),
    "containers": Known(_words, (), "the images that jobs may run as containers; none unless named"),
    "container_command": Known(
        _arguments, (), "the container engine's program; the first found of podman, docker, nerdctl"
    ),
    "container_options": Known(_arguments, (), "flags added at the end of each `run` of the engine"),
    "lease": Known(_duration, 15.0, "time without a heartbeat after which a worker's lease expires"),
    "grace": Known(_duration, 8.0, "grace period for runs when a worker stops"),
    "webhooks": Known(_whole(0, 100_000), 500, "concurrent webhooks of a worker; 0: none"),
    "secrets_key": Known(_path, None, "the file with the keys that secrets are sealed with"),
    "egress_ports": Known(_ports, (80, 443, 8080, 8443), "the ports that webhooks may be sent to"),
    "egress_allow": Known(_words, (), "private networks that webhooks may be sent to, as 10.1.0.0/16 or 10.1.2.3:9000"),
    "egress_loopback": Known(
        _switch, False, "webhooks may be sent to this machine itself, on any port: for development"
    ),
    "apprise_schemes": Known(_words, (), "the services of Apprise that notifications may use: slack,tgram,pagerduty"),
    "retention_succeeded": Known(_duration, "P7D", "how long successes are kept, at least; dropped by whole days"),
    "retention_failed": Known(
        _duration, "P90D", "how long notifications and all else in history are kept, at least; dropped by whole days"
    ),
    "retention_audit": Known(_duration, "P400D", "how long the audit is kept: who changed what; a day at least"),
    "retention_jobs": Known(
        _duration, None, "how long definitions are kept that are completed or cancelled; unset: for ever"
    ),
    "history_payload_bytes": Known(
        _whole(0, 1_048_576),
        8_192,
        "up to how many bytes the payload of a success is kept in history; of all else, whole",
    ),
    "redact": Known(
        _words,
        None,
        "the parts of payloads and results that are shown as *** in all jobs, as $.card,$..password; unset: as before",
    ),
    "archive_url": Known(
        _text,
        None,
        "where history is archived before it is dropped: file:///folder or s3://bucket/prefix; unset: nowhere",
    ),
    "archive_endpoint": Known(_text, None, "URL of the S3-compatible store of archive_url; unset: AWS"),
    "archive_region": Known(_text, None, "region of that store"),
    "archive_access_key": Known(_hidden, None, "access key of that store; unset: as AWS programs find theirs"),
    "archive_secret_key": Known(_hidden, None, "secret key of that store"),
    "archive_sample_successes": Known(_whole(0, 100), 100, "percentage of successes that is archived"),
    "archive_retention": Known(_duration, None, "how long archives are kept; unset: for ever"),
    "queue_age_limit": Known(
        _duration, 60.0, "age of a queue's oldest due run above which low priority jobs are refused"
    ),
    "recovery_after": Known(
        _duration, None, "after this long without a scheduler, missed occurrences wait for `duly recover`; unset: never"
    ),
    "log_level": Known(_one_of("debug", "info", "warning", "error"), "warning", "lowest log level"),
    "log_format": Known(_one_of("text", "json"), "text", "log format"),
    "otel_endpoint": Known(
        _text,
        None,
        "the OpenTelemetry collector that traces of runs are sent to, as http://127.0.0.1:4318; unset: none",
    ),
    "otel_headers": Known(_hidden, None, "headers of what is sent to it, as name=value,other=value"),
    "otel_service": Known(_text, "duly", "the name of this service in traces"),
    "otel_ratio": Known(_ratio, 1.0, "the part of traces that is sent where the caller has not decided, from 0 to 1"),
    "url": Known(_text, None, "URL of a Duly server, instead of a database"),
    "api_key": Known(_hidden, None, "API key for url"),
    "as_tenant": Known(
        _text, None, "the tenant to act in, by name or number, where no key is needed; unset: the first"
    ),
}

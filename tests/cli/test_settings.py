"""Settings: which source wins, where a value came from, and that nothing unknown is ignored."""

import os
from ipaddress import ip_address
from pathlib import Path

import pytest

from duly.cli.up.egress import as_up_does, keep_egress, may_call_loopback
from duly.outbound.shapes import egress_of
from duly.settings import SettingsError, engine_environment, hand_on, load, redacted, settings_file, shown


def write(folder, text, name="duly.toml"):
    (folder / name).write_text(text)
    return folder


def test_a_flag_wins_over_the_environment_that_over_the_file_and_that_over_the_default(tmp_path):
    write(tmp_path, 'port = 1\nslots = 1\nthreads = 1\nhost = "::1"')

    settings = load({"port": 3, "slots": None}, {"DULY_PORT": "2", "DULY_SLOTS": "2"}, tmp_path)

    assert (settings.port, settings.slots, settings.threads, settings.lease) == (3, 2, 1, 15.0)
    assert [settings.sources[name] for name in ("port", "slots", "threads", "lease")] == [
        "--port",
        "DULY_SLOTS",
        "threads in duly.toml",
        "default",
    ]


def test_the_file_is_the_nearest_one_upwards(tmp_path):
    write(tmp_path, "port = 1")
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    write(tmp_path / "a", "[project]\nname = 'x'\n[tool.duly]\nport = 2", "pyproject.toml")

    assert load({}, {}, inner).port == 2


COLLECTOR = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


def test_variables_of_opentelemetry_are_read_behind_ours_and_keep_their_names(tmp_path):
    variables = {**COLLECTOR, "OTEL_SERVICE_NAME": "shop", "OTEL_TRACES_SAMPLER_ARG": "0.5"}
    settings = load({}, {**variables, "DULY_OTEL_SERVICE": "duly-shop"}, write(tmp_path, "otel_ratio = 0.1"))

    assert (settings.otel_endpoint, settings.otel_service, settings.otel_ratio) == (
        "http://collector:4318",
        "duly-shop",
        0.1,
    )
    assert settings.sources["otel_endpoint"] == "OTEL_EXPORTER_OTLP_ENDPOINT"
    assert settings.sources["otel_service"] == "DULY_OTEL_SERVICE"
    assert load({}, variables, tmp_path.parent).otel_ratio == 0.5


@pytest.mark.parametrize("argument", ["endpoint=http://jaeger:14250", "-1", "nan", "2", ""])
def test_sampler_argument_of_another_kind_is_not_ours_and_no_error(tmp_path, argument):
    settings = load({}, {**COLLECTOR, "OTEL_TRACES_SAMPLER_ARG": argument}, tmp_path)
    assert (settings.otel_ratio, settings.sources["otel_ratio"]) == (1.0, "default")
    with pytest.raises(SettingsError, match="DULY_OTEL_RATIO"):
        load({}, {"DULY_OTEL_RATIO": argument or "x"}, tmp_path)


@pytest.mark.parametrize(
    "more",
    [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}],
)
def test_collector_of_the_platform_is_left_alone_where_opentelemetry_is_off_or_speaks_grpc(tmp_path, more):
    assert load({}, COLLECTOR | more, tmp_path).otel_endpoint is None
    assert load({}, more | {"DULY_OTEL_ENDPOINT": "http://ours:4318"}, tmp_path).otel_endpoint == "http://ours:4318"


def test_sampler_that_is_always_off_sends_only_what_a_caller_samples(tmp_path):
    assert load({}, {**COLLECTOR, "OTEL_TRACES_SAMPLER": "parentbased_always_off"}, tmp_path).otel_ratio == 0.0


def test_a_project_file_without_our_table_is_passed_by(tmp_path):
    write(tmp_path, "port = 1")
    (tmp_path / "a").mkdir()
    write(tmp_path / "a", "[project]\nname = 'x'", "pyproject.toml")

    assert load({}, {}, tmp_path / "a").port == 1


def test_relative_folder_resolves_against_the_source_that_sets_it(tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()

    assert load({}, {}, inner).data == inner / ".duly"
    assert load({}, {"DULY_DATA": "here"}, inner).data == inner / "here"
    write(tmp_path, 'data = "there"')
    assert load({}, {}, inner).data == tmp_path / "there"
    write(tmp_path, "")
    assert load({}, {}, inner).data == tmp_path / ".duly", "beside the file, so that a subfolder finds the same"


def test_an_unknown_key_in_a_file_names_the_file_and_the_nearest_key(tmp_path):
    with pytest.raises(
        SettingsError, match=r"unknown setting databse_url in .*duly\.toml; did you mean database_url\?"
    ):
        load({}, {}, write(tmp_path, 'databse_url = "x"'))


def test_an_unknown_variable_names_the_nearest_one(tmp_path):
    with pytest.raises(SettingsError, match=r"unknown setting DULY_PROT in the environment; did you mean DULY_PORT\?"):
        load({}, {"DULY_PROT": "1"}, tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("DULY_PORT", "x", "DULY_PORT: 'x' is not a whole number from 0 to 65535"),
        ("DULY_PORT", "70000", "whole number"),
        ("DULY_POOLER", "perhaps", "true or false"),
        ("DULY_LOG_LEVEL", "loud", "one of debug, info, warning, error"),
        ("DULY_QUEUES", "a,,b", "a list of names"),
        ("DULY_EGRESS_PORTS", "80,http", "DULY_EGRESS_PORTS: '80,http' is not a list of ports from 1 to 65535"),
        ("DULY_EGRESS_PORTS", "0", "a list of ports"),
    ],
)
def test_invalid_setting_names_its_source_and_the_expected_form(tmp_path, name, value, words):
    with pytest.raises(SettingsError, match=words):
        load({}, {name: value}, tmp_path)


def test_a_blank_queue_is_refused_by_the_name_of_its_flag(tmp_path):
    with pytest.raises(SettingsError, match=r"^--queue: '' is not a list of names; write them as mail,bulk"):
        load({"queues": ("",)}, {}, tmp_path)


@pytest.mark.parametrize("text", ["port = true", "port = [1]", "app = 1", "data = 1", "lease = []", "queues = 1"])
def test_a_value_of_the_wrong_kind_in_a_file_is_refused(tmp_path, text):
    with pytest.raises(SettingsError, match=r"duly\.toml"):
        load({}, {}, write(tmp_path, text))


@pytest.mark.parametrize(
    "place", ["me:secret@host:99999/db", "host:0/db", "a:1,b:x/db", "[::1]:70000", "/db?port=99999", "/db?port=1,66000"]
)
def test_a_port_that_is_none_is_refused_where_the_address_is_read(tmp_path, place):
    with pytest.raises(SettingsError, match=r"^DULY_DATABASE_URL names a port .* from 1 to 65535") as refused:
        load({}, {"DULY_DATABASE_URL": f"postgresql://{place}"}, tmp_path)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("parameter", "reason"),
    [
        ("target_session_attrs=writable", "is none of any, read-write"),
        ("sslmode=require&channel_binding=require", "channel_binding=require is not supported: remove it"),
    ],
)
@pytest.mark.parametrize("setting", ["DULY_DATABASE_URL", "DULY_READ_URL"])
def test_a_parameter_that_cannot_be_kept_is_refused_where_the_address_is_read(tmp_path, setting, parameter, reason):
    with pytest.raises(SettingsError, match=f"^{setting}: .*{reason}") as refused:
        load({}, {setting: f"postgresql://me:secret@one,two/db?{parameter}"}, tmp_path)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "place",
    ["me:1e9@host:5432/db", "host:/db", "a:1,b:65535/db", "[::1]:5", "[::1]", "/db?port=1,2", "%2Frun:5/db", "h"],
)
def test_every_way_to_name_a_port_is_taken(tmp_path, place):
    assert load({}, {"DULY_DATABASE_URL": f"postgresql://{place}"}, tmp_path).database_url == f"postgresql://{place}"


def test_a_file_that_is_no_toml_is_named(tmp_path):
    with pytest.raises(SettingsError, match=r"duly\.toml cannot be read"):
        load({}, {}, write(tmp_path, "port 1"))


def test_empty_environment_variable_is_ignored(tmp_path):
    assert load({}, {"DULY_DATABASE_URL": ""}, tmp_path).database_url is None


def test_secret_is_read_from_the_file_that_its_variable_names(tmp_path):
    (tmp_path / "url").write_text("postgresql://ada:hunter2@host/db\n")

    settings = load({}, {"DULY_DATABASE_URL_FILE": str(tmp_path / "url"), "DULY_API_KEY_FILE": ""}, tmp_path)

    assert settings.database_url == "postgresql://ada:hunter2@host/db"
    assert settings.sources["database_url"] == "DULY_DATABASE_URL_FILE"
    assert settings.api_key is None
    assert not any("hunter2" in str(each.value) for each in shown(settings))


def test_secret_in_a_file_wins_over_the_settings_file_and_loses_to_a_flag(tmp_path):
    write(tmp_path, 'database_url = "postgresql:///of_the_settings_file"')
    (tmp_path / "url").write_text("postgresql:///of_its_own_file")
    variables = {"DULY_DATABASE_URL_FILE": str(tmp_path / "url")}

    assert load({}, variables, tmp_path).database_url == "postgresql:///of_its_own_file"
    assert load({"database_url": "postgresql:///flag"}, variables, tmp_path).database_url == "postgresql:///flag"


def test_flag_that_is_handed_on_replaces_the_file_of_that_setting(tmp_path, monkeypatch):
    (tmp_path / "url").write_text("postgresql:///of_its_own_file")
    monkeypatch.setenv("DULY_DATABASE_URL_FILE", str(tmp_path / "url"))
    monkeypatch.setenv("DULY_DATABASE_URL", "")

    hand_on(load({"database_url": "postgresql:///flag"}), "database_url")

    assert load().database_url == "postgresql:///flag"


@pytest.mark.parametrize(
    ("content", "more", "words"),
    [
        (None, {}, r"DULY_DATABASE_URL_FILE: .*/url cannot be read: No such file or directory"),
        (b"\n", {}, r"DULY_DATABASE_URL_FILE: .*/url is empty"),
        (b"\xff\xfe", {}, r"DULY_DATABASE_URL_FILE: .*/url cannot be read: it is not text"),
        (b"ada:secret@host/db", {}, "DULY_DATABASE_URL_FILE is not the address of a PostgreSQL"),
        (
            b"postgresql:///a",
            {"DULY_DATABASE_URL": "postgresql:///b"},
            "DULY_DATABASE_URL_FILE are both set; unset one",
        ),
        (
            b"",
            {"DULY_SECRETS_KEY_FILE": "keyring"},
            r"unknown setting DULY_SECRETS_KEY_FILE .* mean DULY_SECRETS_KEY\?",
        ),
    ],
)
def test_secret_that_cannot_be_read_from_its_file_is_refused_without_showing_it(tmp_path, content, more, words):
    if content is not None:
        (tmp_path / "url").write_bytes(content)

    with pytest.raises(SettingsError, match=words) as refused:
        load({}, {"DULY_DATABASE_URL_FILE": str(tmp_path / "url"), **more}, tmp_path)
    assert "secret@" not in str(refused.value)


def test_lists_and_switches_are_read_from_text(tmp_path):
    settings = load({"queues": ("a", "b")}, {"DULY_POOLER": "on"}, tmp_path)

    assert (settings.queues, settings.pooler) == (("a", "b"), True)
    assert load({}, {"DULY_QUEUES": "x, y"}, tmp_path).queues == ("x", "y")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@host:5/db", "postgresql://me:***@host:5/db"),
        ("postgresql://me:se@cret@host/db", "postgresql://me:***@host/db"),
        ("postgresql://host/db?user=me&password=secret", "postgresql://host/db?user=me&password=***"),
        ("postgresql:///db", "postgresql:///db"),
        ("me:secret@host/db", "me:***@host/db"),
    ],
)
def test_a_password_is_never_shown(url, shown):
    assert redacted(url) == shown


def test_settings_default_to_the_environment_and_folder_of_the_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DULY_PORT", "7")

    assert load().port == 7
    assert load().data == Path.cwd() / ".duly"


def test_nothing_is_allowed_to_run_unless_it_is_named(tmp_path):
    settings = load({}, {}, tmp_path)

    assert (settings.commands, settings.containers) == ({}, ())
    assert (settings.command_sandbox, settings.command_cgroup) == ("required", "required")
    assert not settings.command_network


def test_allowed_programs_are_read_from_the_file_and_the_environment(tmp_path):
    write(
        tmp_path,
        'commands = ["/usr/bin/a", "/usr/bin/b=LANG TZ"]\ncommand_memory = "2GiB"\ncontainer_options = ["--user=1 2"]',
    )
    variables = {"DULY_CONTAINER_COMMAND": "podman --runtime 'a b'", "DULY_CONTAINERS": "one:1, two:2"}

    settings = load({}, variables, tmp_path)

    assert settings.commands == {"/usr/bin/a": (), "/usr/bin/b": ("LANG", "TZ")}
    assert settings.command_memory == 2 * 1_073_741_824
    assert settings.container_command == ("podman", "--runtime", "a b")
    assert settings.container_options == ("--user=1 2",)
    assert settings.containers == ("one:1", "two:2")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("COMMANDS", "backup", "a list of absolute paths"),
        ("COMMANDS", "/bin/a,bin/b", "a list of absolute paths"),
        ("COMMANDS", "/bin/a=LANG lang", "a list of programs with variables, such as /usr/bin/pg_dump=PGHOST PGUSER"),
        ("COMMAND_PATHS", "srv", "a list of absolute paths"),
        ("COMMAND_MEMORY", "12", "at least 1048576, such as 512MiB"),
        ("COMMAND_MEMORY", "much", "such as 512MiB"),
        ("COMMAND_PROCESSES", "0", "a whole number from 1"),
        ("COMMAND_SANDBOX", "maybe", "one of required, none"),
        ("COMMAND_CGROUP", "none", "one of required, optional"),
    ],
)
def test_invalid_command_setting_is_refused(tmp_path, name, value, words):
    with pytest.raises(SettingsError, match=f"DULY_{name}: .*{words}"):
        load({}, {f"DULY_{name}": value}, tmp_path)


def test_container_engine_receives_only_path_and_home_of_the_environment():
    given = {"PATH": "/bin", "HOME": "/root", "DULY_API_KEY": "secret", "DATABASE_PASSWORD": "secret"}

    assert engine_environment(given) == {"PATH": "/bin", "HOME": "/root"}


def test_the_file_of_the_settings_can_be_named(tmp_path):
    assert settings_file(write(tmp_path, "port = 1")) == tmp_path / "duly.toml"


def test_egress_rules_are_read_from_the_settings(tmp_path):
    write(tmp_path, 'egress_ports = [443, 9000]\negress_allow = ["10.1.0.0/16", "10.2.0.1:9100"]')

    egress = egress_of(load({}, {}, tmp_path))

    assert egress.allows(ip_address("10.1.2.3"), 9000)
    assert egress.allows(ip_address("10.2.0.1"), 9100)
    assert not egress.allows(ip_address("10.2.0.1"), 443)
    assert not egress.allows(ip_address("127.0.0.1"), 443)


def test_a_network_that_is_none_names_its_source(tmp_path):
    with pytest.raises(SettingsError, match=r"DULY_EGRESS_ALLOW: egress_allow 'example\.com'"):
        egress_of(load({}, {"DULY_EGRESS_ALLOW": "example.com"}, tmp_path))


@pytest.mark.parametrize(
    ("given", "may"),
    [
        ({}, True),
        ({"host": "0.0.0.0"}, False),
        ({"egress_loopback": False}, False),
        ({"host": "0.0.0.0", "egress_loopback": True}, True),
    ],
)
def test_in_development_webhooks_may_reach_this_machine(tmp_path, given, may):
    assert may_call_loopback(load(given, {}, tmp_path)) == may


def test_invalid_database_url_is_refused_without_showing_it(tmp_path):
    with pytest.raises(
        SettingsError, match="DULY_DATABASE_URL is not the address of a PostgreSQL; write it as"
    ) as refused:
        load({}, {"DULY_DATABASE_URL": "ada:secret@host/db"}, tmp_path)

    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("of_up", "of_worker", "loopback", "ports"),
    [
        ({}, {}, True, (80, 443, 8080, 8443)),
        ({"egress_ports": [9000]}, {}, True, (9000,)),
        ({"host": "0.0.0.0"}, {}, False, (80, 443, 8080, 8443)),
        ({"egress_ports": [9000]}, {"egress_loopback": False, "egress_ports": [80]}, False, (80,)),
        ({}, {"database_url": "postgresql://elsewhere/duly"}, False, (80, 443, 8080, 8443)),
    ],
)
def test_worker_beside_duly_up_inherits_its_egress_rules_unless_they_are_set(
    tmp_path, of_up, of_worker, loopback, ports
):
    (tmp_path / ".duly").mkdir()
    keep_egress(load(of_up, {}, tmp_path), tmp_path / ".duly")

    taken = as_up_does(load(of_worker, {}, tmp_path))

    assert (taken.egress_loopback, taken.egress_ports) == (loopback, ports)


@pytest.mark.parametrize("kept", [None, b"", b"{}", b'{"egress_loopback": "yes"}'])
def test_without_the_word_of_an_up_nothing_more_is_let_out(tmp_path, kept):
    (tmp_path / ".duly").mkdir()
    if kept is not None:
        (tmp_path / ".duly" / "egress.json").write_bytes(kept)

    assert as_up_does(load({}, {}, tmp_path)) == load({}, {}, tmp_path)


def test_settings_given_as_flags_are_passed_on_and_others_stay_unchanged(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "environ", {"DULY_DATA": "elsewhere"})

    hand_on(load({"pooler": True}, cwd=tmp_path), "database_url", "data", "pooler")

    assert os.environ == {"DULY_DATA": "elsewhere", "DULY_POOLER": "True"}
    assert load(cwd=tmp_path).pooler

"""compose.yaml: of the specification's form, closed in itself, without a password, and confined."""

import os
import re
import ssl
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_spec.models import ComposeSpecification, Service

from duly.settings import KNOWN, load
from duly.store.tenancy.keyring import keyring_of
from tests.deploy.deployed import DEPLOY, ROOT
from tests.deploy.promtool import needs_promtool, promtool

COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DULY = ("migrate", "scheduler", "api", "worker")
CONDITIONS = {"service_started", "service_healthy", "service_completed_successfully"}
PINNED = re.compile(r"[\w./-]+:v?\d+(\.\d+)+(@sha256:[0-9a-f]{64})?")
DEFAULT = re.compile(r"\$\{\w+:-([^}]*)\}")


def test_it_is_of_the_form_that_the_specification_has():
    ComposeSpecification.model_validate(COMPOSE)
    known = {field.alias or name for name, field in Service.model_fields.items()}

    for name, service in SERVICES.items():
        assert service.keys() <= known, name


def test_everything_that_a_service_refers_to_is_defined():
    for service in SERVICES.values():
        assert set(service.get("secrets", ())) <= COMPOSE["secrets"].keys()
        assert set(service["networks"]) <= COMPOSE["networks"].keys()
        assert {each["source"] for each in service.get("configs", ())} <= COMPOSE["configs"].keys()
        for other, how in service.get("depends_on", {}).items():
            assert how["condition"] in CONDITIONS
            assert how["condition"] != "service_healthy" or "healthcheck" in SERVICES[other]
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            assert source in COMPOSE["volumes"] or (DEPLOY / source).is_dir()


def test_prometheus_finds_every_process_and_grafana_prometheus():
    config = yaml.safe_load(COMPOSE["configs"]["prometheus"]["content"])
    [scraped], rules = config["scrape_configs"], config["rule_files"]
    [dashboards] = yaml.safe_load(COMPOSE["configs"]["grafana_dashboards"]["content"])["providers"]
    [found] = scraped["dns_sd_configs"]
    [source] = yaml.safe_load(COMPOSE["configs"]["grafana_datasource"]["content"])["datasources"]

    assert set(found["names"]) == set(DULY) - {"migrate"}
    assert found["port"] == 9300
    assert all("database" in SERVICES[name]["networks"] for name in ("prometheus", *found["names"]))
    assert all(SERVICES[name]["environment"]["DULY_METRICS_HOST"] == "0.0.0.0" for name in found["names"])
    assert source["url"] == "http://prometheus:9090"
    mounted = dict(mount.split(":")[:2] for name in ("prometheus", "grafana") for mount in SERVICES[name]["volumes"])
    assert (DEPLOY / "prometheus/rules.yml").exists()
    assert rules == [f"{mounted['./prometheus']}/rules.yml"]
    assert dashboards["options"]["path"] == mounted["./grafana"]
    assert list((DEPLOY / "grafana").glob("*.json"))
    assert set(SERVICES["prometheus"]["networks"]) & set(SERVICES["grafana"]["networks"])


@needs_promtool
def test_prometheus_takes_its_configuration_with_the_alerts(tmp_path):
    content = COMPOSE["configs"]["prometheus"]["content"]
    (tmp_path / "prometheus.yml").write_text(content.replace("/etc/prometheus/duly", str(DEPLOY / "prometheus")))

    assert "1 rule files found" in promtool("check", "config", tmp_path / "prometheus.yml")


def test_each_setting_is_one_of_ours():
    for name in DULY:
        named = {key.removeprefix("DULY_").removesuffix("_FILE").lower() for key in SERVICES[name]["environment"]}
        assert named <= KNOWN.keys()


def test_secrets_are_files_that_must_exist_and_no_password_is_written_down():
    assert all(secret.keys() == {"file"} for secret in COMPOSE["secrets"].values())
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            assert "PASSWORD" not in name or (name.endswith("_FILE") and value.startswith("/run/secrets/"))
    ignored = (ROOT / ".gitignore").read_text().split()
    assert "/deploy/secrets" in ignored
    assert not (DEPLOY / "secrets").exists() or not _tracked("deploy/secrets")


def test_ports_are_open_on_this_machine_alone():
    for service in SERVICES.values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    assert COMPOSE["networks"]["database"] == {"internal": True}
    assert SERVICES["postgres"]["networks"] == ["database"]
    assert "ports" not in SERVICES["postgres"]


def test_every_process_is_confined_and_every_image_is_pinned_by_version():
    for name, service in SERVICES.items():
        assert PINNED.fullmatch(DEFAULT.sub(r"\1", service["image"])), name
        if name != "postgres":  # Its start changes to its own user by itself, and needs to write.
            assert service["read_only"] is True
            assert service["cap_drop"] == ["ALL"]
            assert service["security_opt"] == ["no-new-privileges:true"]
        assert "privileged" not in service


def test_the_parts_start_when_the_database_is_migrated():
    assert SERVICES["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    for name in set(DULY) - {"migrate"}:
        assert SERVICES[name]["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
    assert SERVICES["scheduler"]["deploy"] == {"replicas": 2}


@pytest.fixture(scope="module")
def secrets(tmp_path_factory) -> Path:
    """The files that the script creates."""
    folder: Path = tmp_path_factory.mktemp("made") / "secrets"
    new_secrets(folder)
    return folder


def new_secrets(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the script, with our own program in the place of the image's."""
    duly = Path(sys.executable).with_name("duly")
    command = [DEPLOY / "new-secrets", folder]
    return subprocess.run(command, env=os.environ | {"DULY": str(duly)}, capture_output=True, text=True, check=True)


def test_the_script_creates_every_secret_where_nobody_else_enters(secrets):
    wanted = {Path(secret["file"]).name for secret in COMPOSE["secrets"].values()}

    assert {file.name for file in secrets.iterdir()} == wanted
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o700


def test_duly_takes_the_secrets_that_the_script_creates(secrets):
    variables = {"DULY_DATABASE_URL_FILE": str(secrets / "database_url"), "DULY_SECRETS_KEY": str(secrets / "keyring")}
    settings = load({}, variables, secrets)
    password = (secrets / "postgres_password").read_text().strip()

    assert settings.database_url == f"postgresql://duly:{password}@postgres/duly"
    assert len(password) == 48
    assert keyring_of(settings) is not None
    context = ssl.create_default_context(cafile=secrets / "tls_certificate")
    context.load_cert_chain(secrets / "tls_certificate", secrets / "tls_key")


def test_the_script_replaces_nothing(secrets):
    before = {file.name: file.read_bytes() for file in secrets.iterdir()}

    done = new_secrets(secrets)

    assert done.stdout == ""
    assert {file.name: file.read_bytes() for file in secrets.iterdir()} == before


def test_two_installations_have_no_secret_in_common(secrets, tmp_path):
    new_secrets(tmp_path / "other")

    for file in secrets.iterdir():
        assert (tmp_path / "other" / file.name).read_bytes() != file.read_bytes()


def _tracked(path: str) -> str:
    return subprocess.run(["git", "ls-files", path], cwd=ROOT, capture_output=True, text=True).stdout

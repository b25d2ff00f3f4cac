"""The Helm chart: Helm renders it, Kubernetes' own schemas accept it, and no pod has more rights than it needs."""

import json
import re
import subprocess
from typing import Any

import kubernetes_validate
import pytest
import yaml

from duly.settings import KNOWN
from duly.settings import SECRETS as SECRETS_OF_SETTINGS
from tests.deploy.deployed import CHART, ROOT, documents, program

Rendered = dict[tuple[str, str], dict[str, Any]]
SECRETS = {"database": {"existingSecret": "db"}, "keyring": {"existingSecret": "keys"}}
LEAST = {**SECRETS, "api": {"plainHttp": True}}
SCALED = {"enabled": True, "prometheus": "http://prometheus:9090", "queueAgeSeconds": 45, "max": 7}
ARCHIVE = {"to": [{"ipBlock": {"cidr": "10.8.0.1/32"}}], "ports": [{"protocol": "TCP", "port": 9000}]}
FULL = {
    **SECRETS,
    "image": {"repository": "registry.example/duly", "digest": f"sha256:{'a' * 64}", "pullSecrets": [{"name": "pull"}]},
    "settings": {"log_level": "debug", "egress_allow": "10.1.0.0/16", "pooler": True},
    "api": {
        "tls": {"existingSecret": "tls"},
        "ingress": {"enabled": True, "host": "duly.example", "tlsSecret": "public", "className": "nginx"},
        "env": [{"name": "TZ", "value": "UTC"}],
    },
    "workers": {
        "mail": {
            "app": "app:app",
            "queues": ["mail", "bulk=2"],
            "image": {"repository": "shop", "tag": "1.2"},
            "autoscaling": SCALED,
        },
        "reports": {"app": "app:app", "replicas": 0, "autoscaling": SCALED | {"kind": "hpa"}},
        "webhooks": None,  # leaves the chart's own pool out
    },
    "networkPolicy": {
        "apiFrom": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}],
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        "databaseTo": [{"ipBlock": {"cidr": "10.0.0.5/32"}}],
        "workerEgress": [{"to": [{"ipBlock": {"cidr": "10.9.0.0/16"}}]}],
        "egress": [ARCHIVE],
    },
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "priorityClassName": "high",
    "podAnnotations": {"a": "b"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "k", "operator": "Exists"}],
}  # fmt: skip


def helm(tmp_path, values: dict[str, Any], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run helm over the chart with these values."""
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    command = [program("helm"), *arguments, str(CHART), "--values", str(tmp_path / "values.yaml")]
    return subprocess.run(command, capture_output=True, text=True, env={"HOME": str(tmp_path)})


def rendered(tmp_path, values: dict[str, Any]) -> Rendered:
    """Render the chart, by kind and name."""
    done = helm(tmp_path, values, "template", "duly")
    assert done.returncode == 0, done.stderr
    found = list(documents(done.stdout))
    by_name = {(each["kind"], each["metadata"]["name"]): each for each in found}
    assert len(by_name) == len(found), "two of one name"
    return by_name


def pods(found: Rendered) -> dict[str, dict[str, Any]]:
    """Return the specification of each pod, by the name of its Deployment or Job."""
    return {
        name: each["spec"]["template"]["spec"] for (kind, name), each in found.items() if kind in ("Deployment", "Job")
    }


@pytest.fixture(scope="module", params=[LEAST, FULL], ids=["least", "full"])
def chart(request, tmp_path_factory) -> Rendered:
    """The chart with the fewest values, and with all."""
    return rendered(tmp_path_factory.mktemp("chart"), request.param)


@pytest.mark.parametrize("values", [LEAST, FULL], ids=["least", "full"])
def test_helm_finds_no_fault(tmp_path, values):
    done = helm(tmp_path, values, "lint", "--strict")

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("version", ["1.27", "1.37"])
def test_kubernetes_accepts_what_is_rendered(chart, version):
    ours = {"ScaledObject", "PodMonitor"}  # of others, and not in its schemas
    judged = [each for (kind, _), each in chart.items() if kind not in ours]

    assert len(judged) > 10
    for each in judged:
        kubernetes_validate.validate(each, version, strict=True)


def test_every_pod_is_confined(chart):
    for name, pod in pods(chart).items():
        [container] = pod["containers"]
        assert pod["automountServiceAccountToken"] is False, name
        assert pod["enableServiceLinks"] is False, "a service named duly would set DULY_PORT"
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 10001
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        assert all("secret" in volume or "emptyDir" in volume for volume in pod["volumes"])


def test_secrets_are_files_and_in_no_variable(chart):
    for pod in pods(chart).values():
        variables = {each["name"]: each["value"] for each in pod["containers"][0]["env"]}
        assert variables["DULY_DATABASE_URL_FILE"] == "/run/duly/database/url"
        assert not {"DULY_DATABASE_URL", "DULY_API_KEY"} & variables.keys()
        names = {
            name.removeprefix("DULY_").removesuffix("_FILE").lower() for name in variables if name.startswith("DULY_")
        }
        assert names <= KNOWN.keys(), "a process refuses settings that it does not know"
    assert not any(kind == "Secret" for kind, _ in chart)


def test_roles_are_deployed_apart_and_each_survives_a_drained_node(chart):
    deployments = {name: each for (kind, name), each in chart.items() if kind == "Deployment"}
    budgets = {name: each["spec"] for (kind, name), each in chart.items() if kind == "PodDisruptionBudget"}

    assert {"duly-api", "duly-scheduler"} < deployments.keys()
    assert budgets.keys() == deployments.keys()
    selectors = [json.dumps(each["spec"]["selector"], sort_keys=True) for each in deployments.values()]
    assert len({*selectors}) == len(selectors), "no role takes the pods of another"
    for name, each in deployments.items():
        assert budgets[name] == {"maxUnavailable": 1, "selector": each["spec"]["selector"]}
        labels = each["spec"]["template"]["metadata"]["labels"]
        assert each["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert deployments["duly-scheduler"]["spec"]["replicas"] == 2
    assert deployments["duly-api"]["spec"]["replicas"] == 2


def test_probes_ask_the_port_that_needs_no_key(chart):
    for name, pod in pods(chart).items():
        [container] = pod["containers"]
        if name == "duly-migrate":
            continue
        assert {"name": "metrics", "containerPort": 9300} in container["ports"]
        asked = {kind: container[kind]["httpGet"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
        assert {probe["port"] for probe in asked.values()} == {"metrics"}
        assert asked["livenessProbe"]["path"] == "/livez", "an outage of the database restarts nothing"
        assert asked["readinessProbe"]["path"] == ("/livez" if name == "duly-api" else "/readyz")


def test_the_database_is_migrated_before_an_upgrade(chart):
    job = chart["Job", "duly-migrate"]

    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert job["spec"]["template"]["spec"]["containers"][0]["args"] == ["migrate"]
    assert "serviceAccountName" not in job["spec"]["template"]["spec"], (
        "that of the chart does not exist before the first install"
    )


def test_each_pod_is_under_a_network_policy_in_both_directions(chart):
    policies = [each["spec"] for (kind, _), each in chart.items() if kind == "NetworkPolicy"]

    assert all(policy["policyTypes"] == ["Ingress", "Egress"] for policy in policies)
    templates = [each["spec"]["template"] for (kind, _), each in chart.items() if kind in ("Deployment", "Job")]
    for template in templates:
        labels = template["metadata"]["labels"].items()
        assert len([policy for policy in policies if policy["podSelector"]["matchLabels"].items() <= labels]) == 1
    private = {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "127.0.0.0/8"}
    blocks = [
        peer["ipBlock"]
        for policy in policies
        for rule in policy["egress"]
        for peer in rule.get("to", [])
        if "ipBlock" in peer
    ]
    [public] = [block for block in blocks if block["cidr"] == "0.0.0.0/0"]
    assert private <= set(public["except"]), "webhooks reach no private network"


def test_every_role_reaches_what_is_named_for_all(tmp_path):
    found = rendered(tmp_path, FULL)
    egress = {name: each["spec"]["egress"] for (kind, name), each in found.items() if kind == "NetworkPolicy"}

    assert [name for name, rules in egress.items() if ARCHIVE not in rules] == []
    assert len(egress) == 4


def test_nothing_but_the_api_is_reached_unless_prometheus_is_named(tmp_path):
    found = rendered(tmp_path, LEAST)
    ingress = {name: each["spec"]["ingress"] for (kind, name), each in found.items() if kind == "NetworkPolicy"}

    assert ingress["duly-worker"] == ingress["duly-scheduler"] == ingress["duly-migrate"] == []
    assert [[port["port"] for port in rule["ports"]] for rule in ingress["duly-api"]] == [[7300]]
    assert ingress["duly-api"][0]["from"] == [{"podSelector": {}}], "its own namespace"


def test_workers_are_scaled_by_the_age_of_their_queue(tmp_path):
    found = rendered(tmp_path, FULL)
    keda, hpa = (
        found["ScaledObject", "duly-worker-mail"]["spec"],
        found["HorizontalPodAutoscaler", "duly-worker-reports"]["spec"],
    )

    assert "replicas" not in found["Deployment", "duly-worker-mail"]["spec"], "the autoscaler decides"
    assert keda["scaleTargetRef"]["name"] == "duly-worker-mail"
    assert (keda["minReplicaCount"], keda["maxReplicaCount"]) == (1, 7)
    asked = [
        (each["metricType"], each["metadata"]["query"], each["metadata"]["threshold"]) for each in keda["triggers"]
    ]
    assert asked == [
        (kind, f'max({metric}{{queue="{queue}"}}) or vector(0)', threshold)
        for queue in ("mail", "bulk")
        for kind, metric, threshold in (
            ("Value", "duly_queue_oldest_age_seconds", "45"),
            ("AverageValue", "duly_desired_workers", "1"),
        )
    ]
    metrics = [each["external"] for each in hpa["metrics"]]
    assert [each["metric"]["name"] for each in metrics] == ["duly_queue_oldest_age_seconds", "duly_desired_workers"]
    assert metrics[0]["target"] == {"type": "Value", "value": "45"}
    assert metrics[0]["metric"]["selector"]["matchLabels"] == {"queue": "default"}


def test_a_pool_has_its_own_image_app_and_queues(tmp_path):
    found = rendered(tmp_path, FULL)
    containers = {name: pod["containers"][0] for name, pod in pods(found).items()}

    assert containers["duly-worker-mail"]["image"] == "shop:1.2"
    assert containers["duly-worker-mail"]["args"] == ["worker", "app:app", "--queue", "mail", "--queue", "bulk=2"]
    assert "duly-worker-webhooks" not in containers
    [webhooks] = pods(rendered(tmp_path, LEAST))["duly-worker-webhooks"]["containers"]
    assert webhooks["args"] == ["worker", "--webhooks", "500", "--queue", "default"]
    assert containers["duly-api"]["image"] == f"registry.example/duly@sha256:{'a' * 64}"


def test_zero_and_false_of_a_pool_are_heeded(tmp_path):
    pools = {"idle": {"replicas": 0}, "fixed": {"autoscaling": {"enabled": False}}}
    found = rendered(tmp_path, {**LEAST, "workerDefaults": {"replicas": 3, "autoscaling": SCALED}, "workers": pools})

    assert found["Deployment", "duly-worker-fixed"]["spec"]["replicas"] == 3
    assert ("ScaledObject", "duly-worker-fixed") not in found
    found = rendered(tmp_path, {**LEAST, "workers": pools})
    assert found["Deployment", "duly-worker-idle"]["spec"]["replicas"] == 0


def test_no_secret_is_taken_as_a_plain_setting():
    schema = json.loads((CHART / "values.schema.json").read_text())

    assert {*SECRETS_OF_SETTINGS, "secrets_key"} <= set(
        schema["properties"]["settings"]["propertyNames"]["not"]["enum"]
    )


def test_the_values_that_the_page_shows_are_accepted(tmp_path):
    page = (ROOT / "docs/how-to/kubernetes.md").read_text()
    [shown] = re.findall(r'^```yaml title="values.yaml"\n(.*?)^```$', page, re.MULTILINE | re.DOTALL)

    found = rendered(tmp_path, yaml.safe_load(shown))

    assert {"duly-api", "duly-scheduler", "duly-worker-mail", "duly-migrate"} == pods(found).keys()
    assert ("ScaledObject", "duly-worker-mail") in found


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "database.existingSecret"),
        (SECRETS, "set tls.existingSecret, or plainHttp=true"),
        ({**SECRETS, "api": {"plainHttp": True, "tls": {"existingSecret": "x"}}}, "only one of"),
        ({**LEAST, "relpicas": 3}, "relpicas"),
        ({**LEAST, "settings": {"database_url": "postgresql://ada:hunter2@db/duly"}}, "settings"),
        ({**LEAST, "settings": {"slots": 1000000}}, "settings.slots"),
        ({**LEAST, "workers": {"mail": {"qeues": ["mail"]}}}, "workers.mail"),
        ({**LEAST, "workers": {"mail": {"image": {"repository": "shop"}}}}, "give the tag or the digest"),
        ({**LEAST, "workers": {"mail": {"autoscaling": {"enabled": True}}}}, "name the address of Prometheus"),
        ({**LEAST, "api": {"plainHttp": True, "ingress": {"enabled": True, "host": "x"}}}, "api.ingress.tlsSecret"),
    ],
)  # fmt: skip
def test_missing_wrong_and_unsafe_values_are_refused(tmp_path, values, words):
    done = helm(tmp_path, values, "template", "duly")

    assert done.returncode != 0
    assert words in done.stderr
    assert "hunter2" not in done.stderr

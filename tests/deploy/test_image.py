"""The image: hadolint finds no fault, every role runs as another user on a file system that nobody can write, and, where podman
and Debian's packages are at hand, the Dockerfile itself is built and does.
"""

import json
import os
import re
import shutil
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psutil
import pytest

from tests.cli.processes import environment, wait_for
from tests.deploy.deployed import DOCKERFILE, ROOT, program, submit
from tests.postgres import Postgres

TEXT = DOCKERFILE.read_text()
FINAL = TEXT.rpartition("\nFROM ")[2]
IMAGE, BASE = "localhost/duly-built:1", "docker.io/library/debian:trixie-slim"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
APP = """
from duly import App

app = App()

@app.handler(timeout="PT30S")
def double(number: int) -> int:
    return 2 * number
"""


def variables() -> dict[str, str]:
    """Return the variables that the image sets, but the path."""
    [text] = re.findall(r"^ENV (.*?[^\\])$", FINAL, re.MULTILINE | re.DOTALL)
    found = dict(pair.split("=", 1) for pair in text.replace("\\\n", " ").split())
    assert found.pop("PATH") == "/opt/duly/bin:$PATH"
    return found


def health_check() -> list[str]:
    """Return the command that says whether a container is healthy."""
    [text] = re.findall(r"^HEALTHCHECK .*?CMD (\[.*?\])$", FINAL, re.MULTILINE | re.DOTALL)
    command: list[str] = json.loads(text)
    assert command[0] == "/opt/duly/bin/python"
    return command


def test_hadolint_finds_no_fault():
    done = subprocess.run(
        [program("hadolint"), "--failure-threshold", "style", DOCKERFILE], capture_output=True, text=True
    )

    assert done.returncode == 0, done.stdout


def test_the_image_runs_as_nobody_else_and_has_no_secret():
    assert re.findall(r"^USER (.*)$", FINAL, re.MULTILINE) == ["10001:10001"]
    assert not {name for name in variables() if re.search("KEY|PASSWORD|SECRET|DATABASE", name)}
    assert "ADD " not in TEXT


def test_artifacts_of_builds_and_runs_are_not_sent_to_the_build():
    ignored = (ROOT / ".dockerignore").read_text().split()

    assert {".git", ".venv", "**/.duly", "**/node_modules", "dist", "deploy"} <= set(ignored)


@contextmanager
def over_tcp(postgres: Postgres) -> Iterator[str]:
    """Give the address of a new database by TCP: its server admits this process alone, which carries the connections."""
    path = Path(parse_qs(urlsplit(postgres.url()).query)["host"][0]) / ".s.PGSQL.5432"

    class Carrier(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.socket(socket.AF_UNIX) as server:
                server.connect(str(path))
                back = threading.Thread(target=carry, args=(server, self.request), daemon=True)
                back.start()
                carry(self.request, server)
                back.join(5)

    def carry(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    name = postgres.create()
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Carrier) as serving:
        serving.daemon_threads = True
        serving.block_on_close = False
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield f"postgresql://duly@127.0.0.1:{serving.server_address[1]}/{name}"
        serving.shutdown()
    postgres.drop_database(name)


@pytest.fixture
def confined(tmp_path, postgres):
    """Run a command as user 10001 in a namespace of its own, where only /tmp can be written, with the variables of the image."""
    if shutil.which("bwrap") is None:
        pytest.skip("needs the Debian package bubblewrap")
    (tmp_path / "app.py").write_text(APP)
    sandbox = [
        "bwrap",
        "--unshare-user",
        "--uid=10001",
        "--gid=10001",
        "--unshare-pid",
        "--unshare-ipc",
        "--die-with-parent",
    ]
    sandbox = [word for option in sandbox for word in option.split("=")]
    sandbox += ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", tempfile.gettempdir()]
    for folder in (ROOT, sys.prefix, tmp_path):
        sandbox += ["--ro-bind", str(folder), str(folder)]

    def run(*command: str, **more: str) -> subprocess.Popen[str]:
        given = environment(**variables() | {"DULY_DATABASE_URL_FILE": str(tmp_path / "url")} | more)
        words = [*sandbox, "--chdir", str(tmp_path), *command]
        return subprocess.Popen(words, env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    with over_tcp(postgres) as url:
        (tmp_path / "url").write_text(url)
        yield run


def duly(*arguments: str) -> list[str]:
    """Return a command of ours."""
    return [str(Path(sys.executable).with_name("duly")), *arguments]


def inside(process: subprocess.Popen[str]) -> psutil.Process:
    """Return what runs in the namespace; bubblewrap ends as that does."""
    below: list[psutil.Process] = psutil.Process(process.pid).children(recursive=True)
    return next(each for each in below if each.name() != "bwrap")


def ended(process: subprocess.Popen[str]) -> str:
    """Return what a command said that ended well."""
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    return said


def free_port() -> str:
    """Return a port that is free now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def is_healthy(port: str) -> bool:
    """Return what the health check of the image finds at this port."""
    command = [sys.executable, *health_check()[1:]]
    return subprocess.run(command, env={"DULY_METRICS_PORT": port}, capture_output=True).returncode == 0


def answers(address: str) -> bool:
    """Return whether this address answers with success."""
    with suppress(OSError), urllib.request.urlopen(address, timeout=2):
        return True
    return False


def test_every_role_works_where_nothing_can_be_written(confined, tmp_path):
    said, _ = confined("touch", "/opt/x").communicate()
    assert "Read-only file system" in said
    assert ended(confined("id", "-u")).strip() == "10001"
    assert "applied" in ended(confined(*duly("migrate")))
    key = ended(confined(*duly("keys", "create", "--scope", "admin"))).splitlines()[0]

    port, ports = free_port(), {role: free_port() for role in ("api", "scheduler", "worker")}
    roles = {"api": duly("api"), "scheduler": duly("scheduler"), "worker": duly("worker", "app:app")}
    with ExitStack() as stack:
        running = {}
        for role, command in roles.items():
            more = {"DULY_METRICS_PORT": ports[role], "DULY_HOST": "127.0.0.1", "DULY_PORT": port}
            running[role] = stack.enter_context(confined(*command, **more))
            stack.callback(running[role].kill)
        for role, process in running.items():
            wait_for(partial(is_healthy, ports[role]))
            assert process.poll() is None, role
        wait_for(lambda: answers(f"http://127.0.0.1:{ports['worker']}/readyz"))
        assert submit(f"http://127.0.0.1:{port}", key) == 42
        for process in running.values():
            inside(process).terminate()
        assert {role: process.wait(30) for role, process in running.items()} == dict.fromkeys(roles, 0)
    assert not is_healthy(ports["api"])


def test_the_image_alone_serves_nobody_without_tls(confined):
    ended(confined(*duly("migrate")))
    refused = confined(*duly("api"))

    said, _ = refused.communicate(timeout=60)
    assert refused.returncode == 2
    assert "without encryption" in said


@pytest.fixture
def podman() -> Iterator[Callable[..., str]]:
    """Podman with a store of its own, which has the base image: pulled, or made of Debian's packages."""
    if shutil.which("podman") is None or shutil.which("runc", path="/usr/sbin:/usr/bin") is None or os.geteuid() != 0:
        pytest.skip("needs root and the Debian packages podman and runc")
    folder = Path(tempfile.mkdtemp(prefix="duly-"))
    slots = ("--root", folder / "store", "--runroot", folder / "run", "--cgroup-manager=cgroupfs", "--runtime=runc")

    def run(*arguments: object, code: int = 0) -> str:
        done = subprocess.run(["podman", *map(str, (*slots, *arguments))], capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout.strip()

    try:
        if subprocess.run(["podman", *map(str, slots), "pull", BASE], capture_output=True).returncode:
            if shutil.which("mmdebstrap") is None:
                pytest.skip(f"{BASE} cannot be pulled; to make it, install the Debian package mmdebstrap")
            archive = folder / "base.tar"
            subprocess.run(
                ["mmdebstrap", "--quiet", "--variant=minbase", "--keyring=/usr/share/keyrings", "trixie", archive],
                check=True,
            )
            run("import", archive, BASE)
        # Where a proxy signs anew, the build trusts it as this machine does.
        (folder / "pip.conf").write_text("[global]\ncert = /extra.crt\n")
        (folder / "npmrc").write_text("cafile=/extra.crt\n")
        volumes = [
            f"{CERTIFICATES}:/extra.crt:ro",
            f"{folder}/pip.conf:/etc/pip.conf:ro",
            f"{folder}/npmrc:/root/.npmrc:ro",
        ]
        mounted = [option for volume in volumes if CERTIFICATES.exists() for option in ("--volume", volume)]
        run("build", "--format=docker", "--network=host", *mounted, "--tag", IMAGE, ".")
        yield run
    finally:
        subprocess.run(["podman", *map(str, slots), "rm", "--all", "--force"], capture_output=True)
        subprocess.run(["umount", "--recursive", folder / "store" / "overlay"], capture_output=True)
        shutil.rmtree(folder)


@pytest.mark.proof
def test_the_dockerfile_builds_an_image_whose_roles_work_read_only_without_any_capability(podman, tmp_path, postgres):
    (tmp_path / "app.py").write_text(APP)
    tmp_path.chmod(0o755)
    metrics = {role: free_port() for role in ("api", "scheduler", "worker")}
    port = free_port()
    with over_tcp(postgres) as url:
        (tmp_path / "url").write_text(url)
        options = [
            "--network=host", "--read-only", "--read-only-tmpfs=false", "--tmpfs=/tmp:rw,noexec,nosuid,size=64m",
            "--cap-drop=ALL", "--security-opt=no-new-privileges", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1000:1000",
            "--no-healthcheck", f"--volume={tmp_path}:/run/duly:ro", f"--volume={tmp_path}/app.py:/app/app.py:ro",
            "--env=DULY_DATABASE_URL_FILE=/run/duly/url", "--env=DULY_HOST=127.0.0.1", f"--env=DULY_PORT={port}",
        ]  # fmt: skip
        assert podman("run", "--rm", *options, "--entrypoint=id", IMAGE, "-u") == "10001"
        podman("run", "--rm", *options, "--entrypoint=touch", IMAGE, "/app/x", code=1)
        podman("run", "--rm", *options, IMAGE, "migrate")
        key = podman("run", "--rm", *options, IMAGE, "keys", "create", "--scope", "admin").splitlines()[0]
        for role, at in metrics.items():
            command = [role, "app:app"] if role == "worker" else [role]
            podman("run", "--detach", f"--name={role}", *options, f"--env=DULY_METRICS_PORT={at}", IMAGE, *command)
        for role, at in metrics.items():
            wait_for(partial(answers, f"http://127.0.0.1:{at}/livez"))
            podman("exec", role, *health_check())
        assert submit(f"http://127.0.0.1:{port}", key) == 42
        for role in metrics:
            podman("stop", "--time=20", role)
            assert podman("inspect", "--format={{.State.ExitCode}}", role) == "0", role

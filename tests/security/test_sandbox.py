"""Attacks from inside a sandboxed command: each is a program that a real worker runs for a job sent over HTTP."""

import ctypes
import json
import os
import platform
import shutil
import subprocess
import textwrap
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import DULY, Up, environment, running
from tests.worker.targets.scene import PYTHON, a_folder_for_all, attempt, commands, needs_bubblewrap, python

pytestmark = needs_bubblewrap
GRACE_SECONDS = 1.5
SECRET = "hunter2"
KEY_CALLS = {
    "x86_64": {"add_key": 248, "request_key": 249, "keyctl": 250},
    "aarch64": {"add_key": 217, "request_key": 218, "keyctl": 219},
}
FILE_BYTES = 4 * 1_048_576
# Each attack has these: `call` gives 0 or the error's name. Numbers of calls are those of x86_64, or one for both machines.
CALLS = """
import ctypes, errno, json, os, platform, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    words = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    done = libc.syscall(ctypes.c_long(number), *words)
    return 0 if done >= 0 else errno.errorcode[ctypes.get_errno()]
"""

needs_mounts = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and the Debian package util-linux: unshare"
)
only_x86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="needs x86_64: calls by their numbers there")
# Numbers on x86_64, with arguments that a kernel without a filter would take, or refuse for another reason.
NEEDLESS = {
    "ptrace": (101, "(0, 0, 0, 0)"),
    "process_vm_readv": (310, "(os.getpid(), 0, 0, 0, 0, 0)"),
    "process_vm_writev": (311, "(os.getpid(), 0, 0, 0, 0, 0)"),
    "pidfd_getfd": (438, "(-1, 0, 0)"),
    "process_madvise": (440, "(-1, 0, 0, 0, 0)"),
    "kcmp": (312, "(os.getpid(), os.getpid(), 0, 0, 1)"),
    "bpf": (321, "(99, 0, 0)"),
    "perf_event_open": (298, "(0, 0, -1, -1, 0)"),
    "userfaultfd": (323, "(1,)"),
    "io_uring_setup": (425, "(1, some)"),
    "io_uring_enter": (426, "(-1, 0, 0, 0, 0, 0)"),
    "io_uring_register": (427, "(-1, 0, 0, 0)"),
    "mount": (165, "(b'none', b'/tmp', b'tmpfs', 0, 0)"),
    "umount2": (166, "(b'/tmp', 0)"),
    "pivot_root": (155, "(b'/', b'/')"),
    "open_tree": (428, "(-100, b'/tmp', 0)"),
    "move_mount": (429, "(-1, b'', -1, b'', 0)"),
    "fsopen": (430, "(b'tmpfs', 0)"),
    "fsconfig": (431, "(-1, 0, 0, 0, 0)"),
    "fsmount": (432, "(-1, 0, 0)"),
    "fspick": (433, "(-100, b'/tmp', 0)"),
    "mount_setattr": (442, "(-100, b'/tmp', 0, some, 32)"),
    "unshare": (272, "(0,)"),
    "setns": (308, "(-1, 0)"),
    "chroot": (161, "(b'/tmp',)"),
    "open_by_handle_at": (304, "(-100, some, 0)"),
    "fanotify_init": (300, "(0, 0)"),
    "init_module": (175, "(0, 0, b'')"),
    "finit_module": (313, "(-1, b'', 0)"),
    "delete_module": (176, "(b'none', 0)"),
    "kexec_load": (246, "(0, 0, 0, 0)"),
    "kexec_file_load": (320, "(-1, -1, 0, 0, 0)"),
    "syslog": (103, "(10, 0, 0)"),
    "acct": (163, "(b'/nowhere',)"),
    "swapon": (167, "(b'/nowhere', 0)"),
    "reboot": (169, "(0, 0, 0, 0)"),
    "modify_ldt": (154, "(0, some, 256)"),
    "memfd_secret": (447, "(0,)"),
}


@pytest.fixture(scope="module")
def session_key() -> int | None:
    """Put a key into the session keyring that the worker will inherit, as a login or a service manager may."""
    libc, number = ctypes.CDLL(None, use_errno=True), KEY_CALLS[platform.machine()]
    if libc.syscall(number["keyctl"], 1, None) < 0:
        return None
    serial = libc.syscall(number["add_key"], b"user", b"duly-test", SECRET.encode(), len(SECRET), -3)
    assert serial > 0
    return int(serial)


@pytest.fixture
def key_in_session(session_key: int | None) -> int:
    """Give the number of that key."""
    return session_key or pytest.skip("needs keyrings, which this kernel, or the container around it, has not")


@pytest.fixture(scope="module")
def up(session_key: int | None) -> Iterator[Up]:
    """Everything in one process tree, whose workers may run Python; memory is limited as far as this machine can."""
    with a_folder_for_all() as shown:
        yield from up_in(shown / "worker", shown)


def up_in(folder: Path, shown: Path) -> Iterator[Up]:
    """Start it in a folder that lies in one that commands are shown."""
    folder.mkdir()
    settings = {
        "DULY_COMMANDS": f"{PYTHON}=GREETING",
        "DULY_COMMAND_CGROUP": "optional",
        "DULY_COMMAND_GRACE": str(GRACE_SECONDS),
        "DULY_COMMAND_PATHS": str(shown),
        "SECRET_OF_THE_WORKER": SECRET,
    }
    with running("up", "--port", "0", "--no-demo", cwd=folder, **settings) as process:
        yield Up(process, folder)


class Refused(Exception):
    """The API's answer to a job that it does not take."""


def key_of(up: Up) -> str:
    """Read the key that `duly up` has made for its folder."""
    return (up.folder / ".duly" / "api-key").read_text().strip()


def submit(up: Up, script: str, **more: Any) -> dict[str, Any]:
    """Send a job that runs a script as a command, and wait for the end of its run."""
    target = {
        "type": "command",
        "argv": [PYTHON, "-I", "-c", CALLS + textwrap.dedent(script)],
        **more.pop("target", {}),
    }
    body = {"target": target, "retry": {"max_attempts": 1}, **more}
    request = urllib.request.Request(
        f"{up.address}/v1/jobs",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {key_of(up)}", "Prefer": "wait=30"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            run: dict[str, Any] = json.load(answer)["run"]
            return run
    except urllib.error.HTTPError as answer:
        raise Refused(answer.code, answer.read().decode()) from None


def seen(up: Up, script: str, **more: Any) -> Any:
    """Run an attack to its end, and give what it has seen: the JSON that it printed."""
    run = submit(up, script, **more)
    assert run["state"] == "succeeded", run
    return run["result"]


class TestKernel:
    """Calls of the kernel that no command needs."""

    def test_no_key_of_the_worker_can_be_read_or_added_to(self, up: Up, key_in_session: int) -> None:
        number = KEY_CALLS[platform.machine()]
        attack = f"""
            def listed(file):
                try:
                    return open(file).read()
                except PermissionError:
                    return ""
            text, read = ctypes.create_string_buffer(100), 11
            found = {{
                "read": call({number["keyctl"]}, read, {key_in_session}, text, 100, 0),
                "join": call({number["keyctl"]}, 1, 0),
                "search": call({number["request_key"]}, b"user", b"duly-test", 0, -3),
                "add": call({number["add_key"]}, b"user", b"mine", b"x", 1, -3),
                "text": text.value.decode(),
                "listed": listed("/proc/keys") + listed("/proc/key-users"),
            }}
            print(json.dumps(found))
        """

        found = seen(up, attack)

        refused = {"read": "EPERM", "join": "EPERM", "search": "EPERM", "add": "EPERM"}
        assert found == {**refused, "text": "", "listed": ""}

    async def test_without_a_sandbox_a_command_has_a_session_keyring_of_its_own(self, key_in_session: int) -> None:
        number = KEY_CALLS[platform.machine()]["keyctl"]
        attack = f"text = ctypes.create_string_buffer(100)\ncall({number}, 11, {key_in_session}, text, 100, 0)\nprint(text.value)"

        _, lines = await attempt(commands(required=False), python(CALLS + attack))

        assert lines.of("stdout") == ["b''"]

    @only_x86_64
    def test_calls_that_no_command_needs_are_refused(self, up: Up) -> None:
        attack = f"""
            some = ctypes.create_string_buffer(256)
            print(json.dumps({{name: call(number, *eval(words)) for name, (number, words) in {NEEDLESS!r}.items()}}))
        """

        found = seen(up, attack)

        assert found == dict.fromkeys(NEEDLESS, "EPERM")

    @only_x86_64
    def test_new_namespaces_are_refused_by_whatever_call_asks_for_them(self, up: Up) -> None:
        attack = """
            flags = [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000]
            print(json.dumps({
                "clone": sorted({call(56, flag | 17, 0, 0, 0, 0) for flag in flags}),
                "clone3": call(435, 0, 0),
                "newer than the filter": call(463, 0, 0),
                "threads": __import__("concurrent.futures").futures.ThreadPoolExecutor(1).submit(lambda: 7).result(),
                "children": __import__("subprocess").run(["/bin/true"]).returncode,
            }))
        """

        assert seen(up, attack) == {
            "clone": ["EPERM"],
            "clone3": "ENOSYS",
            "newer than the filter": "ENOSYS",
            "threads": 7,
            "children": 0,
        }

    @only_x86_64
    def test_calls_by_another_numbering_are_refused(self, up: Up) -> None:
        """The numbers of x32 and of 32 bits name other calls: there, mount is 21 and keyctl 288."""
        x32 = seen(up, "print(json.dumps(call(0x40000000 | 39)))")
        in_32_bits = """
            import mmap
            code = bytes.fromhex("b814000000cd80c3")  # mov eax, 20 (getpid); int 0x80; ret
            page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
            page.write(code)
            run = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
            print(run())
        """
        run = submit(up, in_32_bits)

        assert x32 == "ENOSYS"
        assert run["state"] == "dead"
        assert run["attempts"][0]["reason"] == "killed by SIGSYS"

    def test_without_network_no_socket_leads_out_of_the_machine_either(self, up: Up) -> None:
        """A virtual machine's socket to its host, and the raw and cryptographic ones, know no network namespace."""
        attack = """
            def opened(family, kind):
                try:
                    socket.socket(family, kind).close()
                except OSError as error:
                    return errno.errorcode[error.errno]
            kinds = {name: opened(getattr(socket, name), socket.SOCK_STREAM) for name in ("AF_VSOCK", "AF_UNIX", "AF_INET")}
            print(json.dumps({**kinds, "AF_ALG": opened(socket.AF_ALG, socket.SOCK_SEQPACKET)}))
        """

        assert seen(up, attack) == {
            "AF_VSOCK": "EAFNOSUPPORT",
            "AF_ALG": "EAFNOSUPPORT",
            "AF_UNIX": None,
            "AF_INET": None,
        }


class TestUse:
    """Memory of the kernel and time."""

    def test_files_are_counted_and_not_only_their_bytes(self, up: Up) -> None:
        attack = """
            made, ended = 0, None
            for folder in ("/tmp", "/dev/shm"):
                try:
                    while made < 200_000:
                        os.close(os.open(f"{folder}/{made}", os.O_CREAT | os.O_WRONLY))
                        made += 1
                except OSError as error:
                    ended = errno.errorcode[error.errno]
            print(json.dumps([made, ended]))
        """

        made, ended = seen(up, attack, target={"file_bytes": FILE_BYTES})

        assert ended == "ENOSPC"
        assert made <= FILE_BYTES // 4096

    def test_both_scratch_folders_share_one_size(self, up: Up) -> None:
        attack = """
            written = 0
            for folder in ("/tmp", "/dev/shm"):
                try:
                    for number in range(100):
                        with open(f"{folder}/{number}", "wb", buffering=0) as file:
                            written += file.write(bytes(1 << 20))
                except OSError as error:
                    pass
            print(written)
        """

        assert seen(up, attack, target={"file_bytes": FILE_BYTES}) <= FILE_BYTES

    def test_a_covered_folder_takes_no_files(self, up: Up) -> None:
        """The worker's own folder is covered where a command would see it; the cover must not be more scratch."""
        attack = f"""
            found = []
            for folder in {[str(up.folder), str(up.folder / ".duly")]!r}:
                try:
                    open(folder + "/x", "w").write("x")
                except OSError as error:
                    found.append([errno.errorcode[error.errno], os.listdir(folder)])
            print(json.dumps(found))
        """

        assert seen(up, attack) == [["EROFS", [".duly"]], ["EROFS", []]]

    def test_a_command_that_ignores_sigterm_ends_at_its_timeout_and_the_grace(self, up: Up) -> None:
        attack = """
            import signal, time
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)
            if os.fork() == 0: os.setsid()
            while True: time.sleep(1)
        """
        began = time.monotonic()

        run = submit(up, attack, timeout="PT1S")

        assert run["attempts"][0]["outcome"] == "timed_out"
        assert 1 + GRACE_SECONDS - 0.2 <= time.monotonic() - began < 1 + GRACE_SECONDS + 5


class TestEnvironment:
    """What a job may set, and what it sees."""

    def test_command_sees_its_jobs_environment_and_nothing_of_the_worker(self, up: Up) -> None:
        attack = "print(json.dumps({k: v for k, v in os.environ.items() if not k.startswith('DULY_')}))"

        found = seen(up, attack, target={"environment": {"GREETING": "hello"}})

        found.pop("LC_CTYPE", None)  # Python sets it itself, where nobody says another.
        assert found == {"GREETING": "hello", "PWD": "/tmp"}

    def test_a_variable_that_the_operator_does_not_allow_is_refused(self, up: Up) -> None:
        with pytest.raises(Refused) as refused:
            submit(up, "print(1)", target={"environment": {"GREETING": "hello", "HTTPS_PROXY": "http://attacker"}})

        code, said = refused.value.args
        assert code == 422
        assert f"{PYTHON}=HTTPS_PROXY" in said
        assert "GREETING" not in said


@needs_mounts
class TestMemory:
    """A worker on a machine without control groups: they are unmounted for it alone."""

    def test_commands_are_refused_where_their_memory_cannot_be_limited(self, tmp_path: Path) -> None:
        said = without_groups(tmp_path)

        assert said.returncode == 1
        assert "commands need a control group, or else their memory has no limit as a whole: " in said.stderr
        assert "set command_cgroup = optional to limit each process alone" in said.stderr
        assert len(said.stderr.splitlines()) == 1

    def test_the_operator_may_do_without(self, tmp_path: Path) -> None:
        said = without_groups(tmp_path, DULY_COMMAND_CGROUP="optional")

        assert "control group" not in said.stderr
        assert "no.such.host" in said.stderr, "it went on to the database"


def without_groups(folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """Start a worker that may run a command, and has no database, in a mount namespace without control groups."""
    script = 'umount -a -l -t cgroup2 && exec "$@"'
    database = "postgresql://no.such.host.invalid/duly"
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", *DULY, "worker", "--database-url", database],
        cwd=folder,
        env=environment(DULY_COMMANDS=PYTHON, **settings),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

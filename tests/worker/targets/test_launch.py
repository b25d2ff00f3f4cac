"""The launcher of programs, step by step; what it does as a whole is tried where programs are run."""

import os
import signal
import socket

from duly.worker.targets import launch
from duly.worker.targets.launch import Launcher


def test_stop_request_reaches_the_session_of_a_sandbox_that_just_named_its_pid(monkeypatch):
    """Both had come before the launcher, on a busy machine, had its turn: the sandbox ended, and left the program no time."""
    ours, worker = socket.socketpair()
    launcher = Launcher(ours.fileno(), {}, True, [], "", 0)
    launcher._woken, waker = os.pipe()
    launcher._child = launcher._session = 1001
    asked = []
    monkeypatch.setattr(os, "kill", lambda pid, number: asked.append((pid, number)))
    monkeypatch.setattr(launch, "reaped", lambda child: 0)
    worker.send(b"x")
    os.write(launcher._said, b'{ "child-pid": 2002 }\n')

    assert launcher._wait() == 0

    assert asked == [(-2002, signal.SIGTERM)]
    for descriptor in (launcher._status, launcher._said, launcher._woken, waker):
        os.close(descriptor)
    ours.close()
    worker.close()

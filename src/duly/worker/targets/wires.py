"""The connections of a worker with a program: a socket to its launcher, pipes for its output, and files for its input.

The pipes are ours and not the event loop's, which may use sockets: a program cannot open those again as `/dev/stdout`.
The files are anonymous and sealed, so that no other process finds them and nothing is left of them.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
from collections.abc import Callable, Mapping, Sequence

_CHUNK_BYTES = 65_536
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE

Heard = Callable[[str, bytes], None]


class Wires:
    """Both ends, until one of them is the launcher's."""

    def __init__(self, stdin: bytes, environment: Mapping[str, str], files: Sequence[bytes | None], uid: int) -> None:
        self.socket, self._their_control = socket.socketpair()
        self.stdout, self.their_stdout = os.pipe()
        self.stderr, self.their_stderr = os.pipe()
        self.stdin = _file_of(stdin)
        self.variables = _file_of(_lines_of(environment))
        self.given = [-1 if text is None else _file_of(text) for text in files]
        if uid >= 0:  # otherwise the program could not open its own standard output
            os.fchown(self.their_stdout, uid, -1)
            os.fchown(self.their_stderr, uid, -1)

    @property
    def control(self) -> int:
        """The launcher's end of the socket."""
        return self._their_control.fileno()

    @property
    def files(self) -> tuple[int, ...]:
        """All files."""
        return (self.variables, *(file for file in self.given if file >= 0))

    def close_theirs(self) -> None:
        """Keep only our ends, so that we see when the others are closed."""
        self._their_control.close()
        for descriptor in (self.their_stdout, self.their_stderr, self.stdin, *self.files):
            os.close(descriptor)

    def close_ours(self) -> None:
        """Close everything: nothing was started."""
        self.socket.close()
        os.close(self.stdout)
        os.close(self.stderr)


async def listen(descriptor: int, name: str, heard: Heard) -> None:
    """Pass on what comes from a pipe, to its end."""
    reader = asyncio.StreamReader(limit=_CHUNK_BYTES)
    pipe = os.fdopen(descriptor, "rb", buffering=0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        while data := await reader.read(_CHUNK_BYTES):
            heard(name, data)
    finally:
        transport.close()


def _file_of(content: bytes) -> int:
    descriptor = os.memfd_create("duly", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with os.fdopen(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    return descriptor


def _lines_of(environment: Mapping[str, str]) -> bytes:
    return "".join(f"{name}={value}\0" for name, value in environment.items()).encode()

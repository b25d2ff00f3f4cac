"""A world of its own for one process: a name server that changes its mind, a public server and a private one, and no way out.

Run inside a fresh network and mount namespace, with /etc/resolv.conf leading to 127.0.0.1. Writes what happened as JSON.
The name `rebind.example` leads to the public address when it is asked for the first time, to the private one when it is asked
for the second time, and so on.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import subprocess
import sys
import threading
from typing import Any

from duly.clock import SystemClock
from duly.log import Log
from duly.outbound.addresses import is_public, read_address
from duly.outbound.calling import Caller
from duly.outbound.egress import Egress
from duly.outbound.errors import OutboundError
from duly.outbound.guard import Guard
from duly.outbound.resolver import KEPT_SECONDS, SystemResolver
from duly.outbound.transport import PinnedTransport, Request

PUBLIC, PRIVATE = "93.184.215.14", "10.99.0.5"
URL = "http://rebind.example/"
CALLS = 8
_A, _IN = 1, 1


class NameServer:
    """Answers questions for addresses over UDP, in turn with the public one and the private one."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 53))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            question, asker = self._socket.recvfrom(512)
            self._socket.sendto(self._answer(question), asker)

    def _answer(self, question: bytes) -> bytes:
        end = question.index(b"\0", 12) + 5
        asked = question[12:end]
        records = b""
        if struct.unpack("!H", asked[-4:-2])[0] == _A:
            address = (PUBLIC, PRIVATE)[len(self.told) % 2]
            self.told.append(address)
            records = b"\xc0\x0c" + struct.pack("!HHIH", _A, _IN, 0, 4) + socket.inet_aton(address)
        return question[:2] + struct.pack("!HHHHH", 0x8180, 1, bool(records), 0, 0) + asked + records


class Impatient(SystemClock):
    """A clock for which every answer of the name server is too old a moment later."""

    def monotonic(self) -> float:
        self._reading = getattr(self, "_reading", 0.0) + KEPT_SECONDS
        return self._reading


async def serve(host: str, visits: list[str]) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        visits.append(host)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    await asyncio.start_server(answer, host, 80)


async def call_as_many_do(url: str) -> None:
    """Look the name up, check the address, and then let the client look it up again: what rebinding is made for."""
    host = url.removeprefix("http://").removesuffix("/")
    if all(
        is_public(read_address(str(place[4][0]))) for place in await asyncio.get_running_loop().getaddrinfo(host, 80)
    ):
        reader, writer = await asyncio.open_connection(host, 80)
        writer.write(b"GET / HTTP/1.1\r\nHost: %s\r\n\r\n" % host.encode())
        await reader.read()
        writer.close()


async def main() -> dict[str, Any]:
    for arguments in (
        ["link", "set", "lo", "up"],
        *(["addr", "add", f"{host}/32", "dev", "lo"] for host in (PUBLIC, PRIVATE)),
    ):
        subprocess.run(["ip", *arguments], check=True)
    names, visits = NameServer(), list[str]()
    outcomes: list[int | str] = []
    await serve(PUBLIC, visits)
    await serve(PRIVATE, visits)
    await call_as_many_do(URL)
    naive = list(visits)
    visits.clear()
    caller = Caller(Guard(Egress(), SystemResolver(Impatient()), Log("test")), PinnedTransport(), Log("test"))
    for _ in range(CALLS):
        try:
            outcomes.append((await caller.call(URL, Request("GET", {}), tenant=1, seconds=5)).status)
        except OutboundError as error:
            outcomes.append(type(error).__name__)
    await caller.close()
    return {"naive": naive, "visits": visits, "outcomes": outcomes, "told": names.told}


if __name__ == "__main__":
    json.dump(asyncio.run(main()), sys.stdout)

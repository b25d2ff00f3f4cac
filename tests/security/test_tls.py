"""TLS is spoken with the name of the URL, although the address is what we connect to."""

from __future__ import annotations

import ssl
import subprocess

import pytest

from duly.outbound.errors import NoAnswer
from tests.outbound.servers import POST, TENANT, Names, a_caller, answer, answering


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=secure.example", "-addext", "subjectAltName=DNS:secure.example,IP:127.0.0.1", "-days", "1"]
    subprocess.run([*command, *names, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    return certificate, key


@pytest.fixture
def asked_names():
    return []


@pytest.fixture
def server_side(certificate, asked_names):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    context.sni_callback = lambda _socket, name, _context: asked_names.append(name)
    return context


@pytest.fixture
def trusting(certificate):
    return ssl.create_default_context(cafile=str(certificate[0]))


async def call(url, port, tls):
    names = Names(secure_example=[["127.0.0.1"]], other_example=[["127.0.0.1"]])
    async with a_caller(f"127.0.0.1:{port}", names=names, tls=tls) as caller:
        return await caller.call(url, POST, tenant=TENANT, seconds=5)


async def test_tls_requests_and_verifies_the_host_name_of_the_url(server_side, trusting, asked_names):
    async with answering(answer(204), tls=server_side) as (port, asked):
        assert (await call(f"https://secure.example:{port}/", port, trusting)).status == 204
    assert asked_names == ["secure.example"]
    assert f"Host: secure.example:{port}".encode() in asked.requests[0]


async def test_a_written_address_is_checked_against_the_certificate(server_side, trusting):
    async with answering(answer(204), tls=server_side) as (port, _):
        assert (await call(f"https://127.0.0.1:{port}/", port, trusting)).status == 204


async def test_a_certificate_of_another_name_is_no_answer(server_side, trusting):
    async with answering(answer(204), tls=server_side) as (port, asked):
        with pytest.raises(NoAnswer) as error:
            await call(f"https://other.example:{port}/", port, trusting)
    assert "certificate" in error.value.detail.lower()
    assert asked.requests == []


async def test_certificate_of_an_untrusted_issuer_is_refused(server_side):
    async with answering(answer(204), tls=server_side) as (port, asked):
        with pytest.raises(NoAnswer):
            await call(f"https://secure.example:{port}/", port, None)
    assert asked.requests == []

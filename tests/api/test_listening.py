"""Listening addresses of the API: on loopback always, elsewhere with TLS or a decision, and with keys."""

import subprocess

import pytest

from duly.api.server.listen import Tls, address_of, listen, reach_of, read_tls, refuse_without_keys
from duly.domain.errors import Refused


@pytest.fixture(scope="module")
def tls(tmp_path_factory) -> Tls:
    """A certificate that somebody signed by himself."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subject = ["-subj", "/CN=localhost", "-days", "1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *subject], check=True, capture_output=True)
    return Tls(certificate, key)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost"])
def test_loopback_listener_requires_no_api_key(host):
    refuse_without_keys(host, has_keys=False)
    with listen(host, 0) as listener:
        assert address_of(listener).startswith("http://127.0.0.")


def test_elsewhere_needs_tls_or_a_decision():
    with pytest.raises(
        Refused, match=r"host 0\.0\.0\.0 is reachable from other machines.* set tls_certificate and tls_key, or"
    ):
        listen("0.0.0.0", 0)


def test_with_the_decision_it_listens_anywhere():
    with listen("0.0.0.0", 0, plain_http=True) as listener:
        assert address_of(listener).startswith("http://0.0.0.0:")


def test_with_tls_it_listens_anywhere(tls):
    with listen("0.0.0.0", 0, tls=tls) as listener:
        assert address_of(listener, tls).startswith("https://0.0.0.0:")


def test_elsewhere_needs_a_key():
    refuse_without_keys("0.0.0.0", has_keys=True)
    with pytest.raises(Refused, match="no API key yet: make one with `duly keys create --scope admin`"):
        refuse_without_keys("0.0.0.0", has_keys=False)


def test_invalid_address_is_refused():
    with pytest.raises(Refused, match=r"host 'example\.org' is not an address"):
        listen("example.org", 0, plain_http=True)


def test_reach_describes_the_exposure_of_the_server(tls):
    assert reach_of("127.0.0.1", None) == "loopback only"
    assert reach_of("0.0.0.0", tls) == "listening on 0.0.0.0 with TLS"
    assert reach_of("0.0.0.0", None) == "listening on 0.0.0.0 without TLS, for a proxy"


class TestTls:
    def test_without_either_there_is_none(self):
        assert read_tls(None, None) is None

    def test_a_pair_is_taken(self, tls):
        assert read_tls(tls.certificate, tls.key) == tls

    def test_half_a_pair_is_refused_and_the_other_half_named(self, tls):
        with pytest.raises(Refused, match="tls_key is not set"):
            read_tls(tls.certificate, None)
        with pytest.raises(Refused, match="tls_certificate is not set"):
            read_tls(None, tls.key)

    def test_files_that_are_no_pair_are_refused(self, tls, tmp_path):
        with pytest.raises(Refused, match="TLS does not work with"):
            read_tls(tls.key, tls.certificate)
        with pytest.raises(Refused, match="No such file"):
            read_tls(tmp_path / "nowhere", tls.key)

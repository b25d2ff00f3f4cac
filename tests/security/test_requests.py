"""Requests that do not end, or that could be read in two ways: refused soon, for little, on every port we serve."""

import json
import urllib.request

import psutil
import pytest

from tests.cli.processes import Up, running
from tests.security.attacker import GOOD_SECONDS_MAX, Target, http_process

HEAD_BYTES_MAX = 16_384
CPU_SECONDS_MAX, MEBIBYTES_MAX, SENT_BYTES_MAX = 1.0, 24, 8 << 20
ENDLESS = {
    "a header": (b"GET /livez HTTP/1.1\r\nHost: a\r\nX: ", b"a"),
    "headers": (b"GET /livez HTTP/1.1\r\nHost: a\r\n", b"X: y\r\n"),
    "a name of a header": (b"GET /livez HTTP/1.1\r\nHost: a\r\n", b"a"),
    "a path": (b"GET /", b"a"),
    "a query of metrics": (b"GET /metrics?", b"a=b&"),
    "empty lines": (b"", b"\r\n"),
}


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    """Everything but workers, running."""
    folder = tmp_path_factory.mktemp("attacked")
    with running("up", "--port", "0", "--no-demo", "--workers", "0", cwd=folder) as process:
        yield Up(process, folder)


@pytest.fixture(scope="module")
def api(up):
    """Its HTTP."""
    key = (up.folder / ".duly" / "api-key").read_text().strip()
    return Target(int(up.address.rpartition(":")[2]), http_process(up.process.process.pid), key)


@pytest.fixture(scope="module")
def role(up):
    """A scheduler beside it, with figures of its own."""
    with running("scheduler", "--metrics-port", "0", cwd=up.folder) as process:
        port = process.wait_for_line("metrics at").split()[2].removesuffix("/metrics,").rpartition(":")[2]
        yield Target(int(port), psutil.Process(process.process.pid))


@pytest.fixture(params=["api", "role"])
def target(request):
    return request.getfixturevalue(request.param)


def request(path: str, *headers: str, method: str = "GET", body: bytes = b"") -> bytes:
    """Write a request after which the connection is closed."""
    lines = [f"{method} {path} HTTP/1.1", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def chunked(key: str | None, *headers: str) -> bytes:
    """Begin a request with a body in chunks."""
    said = [] if key is None else [f"Authorization: Bearer {key}"]
    kind = ["Content-Type: application/json", "Transfer-Encoding: chunked"]
    return request("/v1/jobs", "Host: a", *said, *kind, *headers, method="POST")


def in_chunks(body: bytes, size: int) -> bytes:
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)


class TestEndless:
    @pytest.mark.parametrize("what", ENDLESS)
    def test_a_head_without_end_is_refused_soon_and_for_little(self, target, what):
        target.good()
        with target.measured() as cost:
            answer = target.send(*ENDLESS[what])

        assert (answer.status, answer.problem["code"]) == (431, "headers_too_large")
        assert answer.is_closed
        assert answer.seconds < 4.0
        assert answer.sent < SENT_BYTES_MAX
        assert cost.cpu_seconds < CPU_SECONDS_MAX
        assert cost.mebibytes < MEBIBYTES_MAX
        assert target.good() < GOOD_SECONDS_MAX

    def test_a_head_is_taken_up_to_its_limit(self, target):
        def padded(size: int) -> bytes:
            head = request("/livez", "Host: a", "X: ")
            return head.replace(b"X: ", b"X: " + b"a" * (size - len(head)))

        assert target.ask(padded(HEAD_BYTES_MAX)).status == 200
        assert target.ask(padded(HEAD_BYTES_MAX + 1)).status == 431

    @pytest.mark.parametrize(
        ("begin", "piece"),
        [(b"1;", b"a"), (b"0\r\n", b"X: y\r\n"), (b"0\r\nX: ", b"a"), (b"", b"1;" + b"a" * 9_000 + b"\r\nx\r\n")],
        ids=["an extension", "trailers", "a trailer", "many extensions"],
    )
    def test_chunk_extensions_and_trailers_are_bounded(self, api, begin, piece):
        with api.measured() as cost:
            answer = api.send(chunked(api.key) + begin, piece)
            stranger = api.send(chunked(None) + begin, piece)

        assert (answer.status, answer.problem["code"]) == (431, "headers_too_large")
        assert stranger.status in (401, 431)
        for one in (answer, stranger):
            assert one.is_closed
            assert one.sent < SENT_BYTES_MAX
        assert cost.cpu_seconds < CPU_SECONDS_MAX
        assert cost.mebibytes < MEBIBYTES_MAX
        assert api.good() < GOOD_SECONDS_MAX

    def test_a_body_without_end_is_refused_at_its_limit(self, api):
        with api.measured() as cost:
            answer = api.send(chunked(api.key), in_chunks(b" " * 16_000, 16_000))

        assert (answer.status, answer.problem["code"]) == (413, "body_too_large")
        assert answer.is_closed
        assert cost.mebibytes < MEBIBYTES_MAX

    def test_data_after_an_upgrade_request_is_bounded(self, api):
        begin = request("/livez", "Host: a", "Upgrade: other").replace(b": close", b": Upgrade")
        with api.measured() as cost:
            answer = api.send(begin, b"a")

        assert answer.is_closed
        assert answer.sent < SENT_BYTES_MAX
        assert cost.cpu_seconds < CPU_SECONDS_MAX

    def test_log_shows_no_error_for_endless_requests(self, up):
        assert "Traceback" not in up.process.text
        assert "request_failed" not in up.process.text


class TestWellBehaved:
    def test_a_body_in_the_smallest_chunks_is_taken(self, api):
        body = json.dumps({"target": {"type": "function", "handler": "a:b"}, "payload": {"x": "y" * 20_000}}).encode()

        answer = api.ask(chunked(api.key) + in_chunks(body, 1) + b"0\r\n\r\n")

        assert answer.status == 202, answer.raw

    def test_requests_in_a_row_are_answered_in_a_row(self, api):
        one = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"
        answer = api.ask(one * 20 + request("/healthz", "Host: a"))

        assert answer.raw.count(b"HTTP/1.1 200 OK") == 21

    def test_a_request_before_one_that_is_refused_is_answered(self, api):
        answer = api.ask(b"GET /v1/jobs HTTP/1.1\r\nHost: a\r\n\r\nnonsense\r\n\r\n")

        assert answer.raw.startswith(b"HTTP/1.1 401 ")
        assert answer.is_closed

    def test_a_large_body_and_headers_of_its_own_size_go_together(self, api):
        body = b'{"target": {"type": "function", "handler": "a:b"}}'.ljust(900_000)
        headers = ["Host: a", f"Authorization: Bearer {api.key}", "Content-Type: application/json", "X: " + "a" * 7_000]

        answer = api.ask(request("/v1/jobs", *headers, f"Content-Length: {len(body)}", method="POST", body=body))

        assert answer.status == 202, answer.raw


class TestAmbiguous:
    @pytest.mark.parametrize(
        "headers",
        [
            ["Host: a", "Host: b"],
            ["Host: a", "host: a"],
            ["Host: a", "Authorization: Bearer x", "Authorization: Bearer y"],
            ["Host: a", "Content-Length: 2", "Content-Length: 2"],
            ["Host: a", "Content-Length: 2", "Content-Length: 3"],
            ["Host: a", "Content-Length: 2, 2"],
            ["Host: a", "Content-Length: 2", "Transfer-Encoding: chunked"],
            ["Host: a", "Transfer-Encoding: chunked", "Content-Length: 2"],
            ["Host: a", "Transfer-Encoding: identity", "Content-Length: 2"],
        ],
        ids=lambda headers: ", ".join(headers[1:]),
    )
    @pytest.mark.parametrize("path", ["/livez", "/v1/jobs", "/nowhere"])
    def test_a_header_that_is_there_twice_is_refused(self, api, path, headers):
        answer = api.ask(request(path, *headers, method="POST", body=b"{}"))

        assert answer.status == answer.problem["status"] == 400, answer.raw
        assert answer.problem["code"] in ("invalid_header", "malformed_request")
        assert answer.is_closed

    def test_a_trailer_is_no_header(self, api):
        answer = api.ask(chunked(None) + b"2\r\n{}\r\n0\r\nAuthorization: Bearer %b\r\n\r\n" % api.key.encode())
        assert answer.status == 401, answer.raw
        answer = api.ask(chunked(api.key) + b"2\r\n{}\r\n0\r\nContent-Type: text/plain\r\nHost: b\r\n\r\n")
        assert answer.status == 422, answer.raw

    @pytest.mark.parametrize(
        "raw", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nA B: c\r\n\r\n", b"\0\0\r\n\r\n"]
    )
    def test_malformed_request_is_answered_with_a_problem(self, target, raw):
        answer = target.ask(raw)

        assert (answer.status, answer.problem["code"]) == (400, "malformed_request")
        assert answer.is_closed


def test_nul_is_refused_in_every_path_and_query(api, up):
    with urllib.request.urlopen(f"{up.address}/openapi.json", timeout=20) as described:
        paths = json.load(described)["paths"]
    assert len(paths) > 50
    asked = [
        (method.upper(), path) for path, operations in paths.items() for method in operations if method != "parameters"
    ]
    for method, path in [*asked, ("GET", "/livez"), ("GET", "/metrics"), ("GET", "/"), ("GET", "/nowhere")]:
        plain = path.replace("{", "").replace("}", "")
        answers = [api.ask(request(f"{plain}?a={value}", "Host: a", method=method)) for value in ("%00", "x%00y&b")]
        if "{" in path or path == "/nowhere":
            named = path.replace("{", "a%00").replace("}", "")
            answers.append(api.ask(request(f"{named}%00" if named == path else named, "Host: a", method=method)))
        for answer in answers:
            assert answer.status == answer.problem["status"] == 400, (method, path, answer.raw)

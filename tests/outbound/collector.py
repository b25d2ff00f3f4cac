"""An OTLP receiver in a process of its own: it decodes what it is sent, and writes each span on a line of JSON."""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def value_of(value: Any) -> Any:
    """Return the value of an attribute."""
    return getattr(value, value.WhichOneof("value"))


def spans_in(body: bytes) -> list[dict[str, Any]]:
    """Decode a request."""
    found = []
    for group in ExportTraceServiceRequest.FromString(body).resource_spans:
        resource = {one.key: value_of(one.value) for one in group.resource.attributes}
        for scope in group.scope_spans:
            for span in scope.spans:
                attributes = {one.key: value_of(one.value) for one in span.attributes}
                found.append({
                    "service": resource["service.name"],
                    "name": span.name,
                    "trace": span.trace_id.hex(),
                    "id": span.span_id.hex(),
                    "parent": span.parent_span_id.hex(),
                    "links": [link.trace_id.hex() for link in span.links],
                    "seconds": (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
                    "failed": span.status.code == 2,
                    **attributes,
                })  # fmt: skip
    return found


class Receiver(BaseHTTPRequestHandler):
    """Answers as a collector does, or never: `hangs`."""

    hangs = False

    def do_POST(self) -> None:
        """Take spans."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.hangs:
            time.sleep(3600)
        for span in spans_in(body):
            print(json.dumps({"path": self.path, "header": self.headers.get("x-team"), **span}), flush=True)
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing else."""


if __name__ == "__main__":
    Receiver.hangs = "hangs" in sys.argv
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    print(server.server_port, flush=True)
    server.serve_forever()

# Made from ../asynchronous by scripts/sync_client.py; change that one.
"""The transport: pooled connections, and requests over them."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, TypeVar

from duly.client.address import Address
from duly.client.failing import no_reply, pause
from duly.client.many import Chosen, both, changing_many, rest_of
from duly.client.requests import ApiRequest, NoReply, Page, Reply, after
from duly.client.retry import Came, Manners, Patience, Pause, Send, Step, converse
from duly.client.streaming import SILENCE_SECONDS, Listening, OnSilence, Read
from duly.clock import Rng, SystemClock
from duly.wire.jobs.bulk import ManyDone

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")


class Transport:
    """Sends requests, and retries where that is safe."""

    def __init__(self, address: Address, patience: Patience, transport: httpx2.BaseTransport | None) -> None:
        import httpx2  # here, so that importing the client does not load it

        self.address = address
        self.unanswered_write: str | None = None
        self.manners = Manners(patience, SystemClock().monotonic, Rng())
        # Redirects are not followed: a key is for the server it was given for.
        self._http = httpx2.Client(base_url=address.url, transport=transport, follow_redirects=False)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(self, request: ApiRequest[T]) -> T:
        """Send one request and return its response. Raises ApiError."""
        conversation = converse(request, self.manners)
        event: Came = None
        self.unanswered_write = None if request.method == "GET" else f"{request.method} {request.path}"
        try:
            while True:
                event = self._take(conversation.send(event))
        except StopIteration as done:
            self.unanswered_write = None
            answer: T = done.value
            return answer

    def change_many(self, where: str, chosen: Chosen, **more: object) -> ManyDone:
        """Send a bulk change, and go on where the server had to stop half way. Raises ApiError."""
        done = self.send(changing_many(where, chosen, **more))
        while done.is_partial:
            done = both(done, self.send(changing_many(where, rest_of(chosen, done), **more)))
        return done

    def pages(self, request: ApiRequest[Page[T]]) -> Iterator[T]:
        """Return the items of a list, page after page, each read when it is needed. Raises ApiError."""
        while True:
            page = self.send(request)
            yield from page.items
            if not page.next_page_token:
                return
            request = after(request, page.next_page_token)

    def listen(
        self, where: str, query: dict[str, str], since: str | None, read: Read[T], on_silence: OnSilence | None = None
    ) -> Generator[T]:
        """Yield the events of a stream, and go on where the connection was lost. Raises ApiError."""
        import httpx2

        listening = Listening(since, self.manners, read, on_silence)
        timeout = httpx2.Timeout(self.manners.patience.timeout, read=SILENCE_SECONDS)
        while True:
            headers = {**listening.headers(), **self.address.headers()}
            try:
                with self._http.stream("GET", where, params=query, headers=headers, timeout=timeout) as response:
                    lost: Reply | NoReply = NoReply(f"{self.address.url} ended the stream.", may_have_arrived=True)
                    if response.status_code != 200:
                        lost = _reply(response, response.read())
                    else:
                        for line in response.iter_lines():
                            if (event := listening.hear(line)) is not None:
                                yield event
            except httpx2.RequestError as error:
                lost = no_reply(error, self.address.url)
            pause(listening.pause(lost))

    def _take(self, step: Step) -> Came:
        if isinstance(step, Pause):
            pause(step.seconds)
            return None
        return self._send(step)

    def _send(self, step: Send) -> Reply | NoReply:
        import httpx2

        try:
            response = self._http.request(
                step.method,
                step.path,
                params=step.query,
                content=step.body,
                headers={**step.headers, **self.address.headers()},
                timeout=step.timeout,
            )
        except httpx2.RequestError as error:
            return no_reply(error, self.address.url)
        return _reply(response, response.content)


class Resource:
    """A resource of the API."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport


def _reply(response: httpx2.Response, body: bytes) -> Reply:
    return Reply(response.status_code, {name.lower(): value for name, value in response.headers.items()}, body)

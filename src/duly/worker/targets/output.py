"""The output of a program: its lines are the run's log, up to a cap, and the end of its standard output is the result.

Output after the cap is still read, so that the program does not block on a full pipe, but only counted.
"""

from __future__ import annotations

import msgspec

from duly.domain.runs.payload import RESULT_BYTES_MAX, encode_result, storable
from duly.worker.context import RunLog

KEPT_BYTES_MAX = 1_000_000  # a little below the cap of an attempt's log, so that our last line fits too
LINES_MAX = 10_000
LINE_BYTES_MAX = 8_000
LINE_COST_BYTES = 24  # overhead of a line beside its text
_LAST_WORDS_BYTES = 4_096


class Output:
    """The output of one attempt."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._unfinished = {"stdout": b"", "stderr": b""}
        self._tails = {"stdout": bytearray(), "stderr": bytearray()}
        self._lines = 0
        self._room = KEPT_BYTES_MAX
        self._said = 0  # on standard output
        self.bytes_heard = 0
        self.bytes_dropped = 0

    def hear(self, stream: str, data: bytes) -> None:
        """Take a piece as it comes."""
        self.bytes_heard += len(data)
        self._said += len(data) if stream == "stdout" else 0
        self._remember(self._tails[stream], data)
        if self._is_full:
            self.bytes_dropped += len(data)
            return
        *lines, self._unfinished[stream] = (self._unfinished[stream] + data).split(b"\n")
        for line in lines:
            self._keep(stream, line)
        if len(self._unfinished[stream]) > LINE_BYTES_MAX:
            self._flush(stream)

    def close(self) -> None:
        """Log an unfinished line, and say how much was dropped."""
        for stream in self._unfinished:
            self._flush(stream)
        if self.bytes_dropped:
            self._log.warning(
                f"the output is longer than is kept: of {self.bytes_heard} bytes, {self.bytes_dropped} were dropped"
            )

    @property
    def result(self) -> str | None:
        """Return the end of standard output: a line of JSON as it is, else the text, shortened from its beginning."""
        return self.kept[0]

    @property
    def kept(self) -> tuple[str | None, str | None]:
        """Return the result, and if it is not whole, why."""
        tail = bytes(self._tails["stdout"][-RESULT_BYTES_MAX:])
        text = tail.decode(errors="replace").strip()
        if not text:
            return None, None
        _, is_line, last = text.rpartition("\n")
        is_cut = self._said > len(tail)
        if is_line or not is_cut:  # otherwise it may be the end of something longer
            try:
                return encode_result(msgspec.json.decode(last))
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                pass
        shortened, is_short = _as_text(text)
        return shortened, self._too_long if is_cut or is_short else None

    @property
    def _too_long(self) -> str:
        return (
            f"its standard output was {self._said:,} bytes and only its end is kept:"
            f" results up to {RESULT_BYTES_MAX:,} bytes are; let its last line be JSON,"
            " or store it elsewhere and print a reference to it"
        )

    @property
    def last_words(self) -> str:
        """Return the last line of standard error."""
        return storable(self._tails["stderr"].decode(errors="replace").strip().rpartition("\n")[2], 300)

    @property
    def complaint(self) -> str:
        """Return the end of standard error."""
        return storable(self._tails["stderr"][-_LAST_WORDS_BYTES:].decode(errors="replace"))

    @property
    def _is_full(self) -> bool:
        return self._room <= 0 or self._lines >= LINES_MAX

    @staticmethod
    def _remember(tail: bytearray, data: bytes) -> None:
        tail += data
        if len(tail) > 2 * RESULT_BYTES_MAX:
            del tail[:-RESULT_BYTES_MAX]

    def _flush(self, stream: str) -> None:
        line, self._unfinished[stream] = self._unfinished[stream], b""
        if line:
            self._keep(stream, line)

    def _keep(self, stream: str, line: bytes) -> None:
        """Log a line, in pieces where it is too long."""
        for start in range(0, len(line) or 1, LINE_BYTES_MAX):
            piece = line[start : start + LINE_BYTES_MAX]
            if self._is_full or len(piece) + LINE_COST_BYTES > self._room:
                self._room = 0
                self.bytes_dropped += len(piece)
                continue
            self._room -= len(piece) + LINE_COST_BYTES
            self._lines += 1
            self._log.info(piece.decode(errors="replace"), stream=stream)


def _as_text(text: str) -> tuple[str, bool]:
    """Encode text as JSON, without its beginning if it is too long; and return whether that is so."""
    shortened = text
    while (encoded := encode_result(shortened)[0]) is None:
        shortened = shortened[len(shortened) // 8 + 1 :]
    return encoded, shortened is not text

"""The output of a program: lines for the log up to a cap, and the end of it as the result."""

import pytest

from duly.domain.runs.payload import RESULT_BYTES_MAX
from duly.worker.context import RunLog
from duly.worker.targets.output import KEPT_BYTES_MAX, LINE_BYTES_MAX, LINE_COST_BYTES, LINES_MAX, Output
from tests.worker.stories import a_run
from tests.worker.targets.scene import Lines


@pytest.fixture
def lines():
    return Lines()


@pytest.fixture
def output(lines):
    return Output(RunLog(a_run(), lines))


def test_lines_are_put_together_from_pieces_and_the_last_needs_no_end(lines, output):
    for piece in (b"on", b"e\ntwo\n\nthr", b"ee"):
        output.hear("stdout", piece)
    output.close()

    assert lines.of("stdout") == ["one", "two", "", "three"]


def test_output_keeps_the_log_lines_of_each_stream_separate(lines, output):
    output.hear("stdout", b"half of")
    output.hear("stderr", b"a complaint\n")
    output.hear("stdout", b" a line\n")

    assert [(message, stream) for _, message, stream in lines.lines] == [
        ("a complaint", "stderr"),
        ("half of a line", "stdout"),
    ]


def test_output_line_without_an_end_is_split_into_pieces(lines, output):
    for _ in range(10):
        output.hear("stdout", b"x" * 5_000)
    output.close()

    assert max(map(len, lines.of("stdout"))) <= LINE_BYTES_MAX
    assert sum(map(len, lines.of("stdout"))) == 50_000


@pytest.mark.parametrize("line", [b"\n", b"x\n", b"x" * 100 + b"\n", b"x" * 100_000 + b"\n"])
def test_output_beyond_the_cap_is_dropped_with_a_single_warning(lines, output, line):
    everything = line * (2 * KEPT_BYTES_MAX // len(line) + 1)
    for start in range(0, len(everything), 65_536):
        output.hear("stdout", everything[start : start + 65_536])
    output.close()

    kept = lines.of("stdout")
    assert len(kept) <= LINES_MAX
    assert sum(len(text) + LINE_COST_BYTES for text in kept) <= KEPT_BYTES_MAX
    assert len(kept) + 1 == len(lines.lines)
    level, words, _ = lines.lines[-1]
    assert level == "warning"
    assert f"of {output.bytes_heard} bytes" in words


def test_oversized_result_keeps_its_end(output):
    output.hear("stdout", b"beginning " + b"x" * 2 * RESULT_BYTES_MAX + b" end")

    assert output.result is not None
    assert len(output.result) <= RESULT_BYTES_MAX
    assert output.result.endswith(' end"')
    assert output.kept[1] == (
        "its standard output was 131,086 bytes and only its end is kept: results up to 65,536 bytes are;"
        " let its last line be JSON, or store it elsewhere and print a reference to it"
    )


def test_last_json_line_of_output_is_whole_after_any_amount_of_output(output):
    output.hear("stdout", b"x" * 3 * RESULT_BYTES_MAX + b'\n{"rows": 7}\n')

    assert output.kept == ('{"rows":7}', None)


def test_the_end_of_a_line_that_reads_as_json_is_not_that_line(output):
    output.hear("stdout", b"1" * 3 * RESULT_BYTES_MAX + b"\n")

    assert output.kept[1] is not None
    assert (output.result or "").startswith('"')


def test_stderr_output_takes_no_room_from_the_result(output):
    output.hear("stderr", b"x" * 3 * RESULT_BYTES_MAX)
    output.hear("stdout", b"as it is")

    assert output.kept == ('"as it is"', None)


def test_a_result_of_characters_that_json_writes_at_length_fits_too(output):
    output.hear("stdout", b"\x01" * RESULT_BYTES_MAX + b" end")

    assert output.result is not None
    assert len(output.result) <= RESULT_BYTES_MAX
    assert output.result.endswith(' end"')


@pytest.mark.parametrize("line", [b"[" * 60_000, b'{"a":', b"NaN", b'"\\ud800"', b"\xff\xfe", b"{" * 3])
def test_a_last_line_that_is_not_quite_json_is_text(output, line):
    output.hear("stdout", line + b"\n")

    assert output.result is not None
    assert output.result.startswith('"')

"""Progress of a run, on a line."""

import pytest

from duly.domain.runs.progress import progress_text, shown


@pytest.mark.parametrize(
    ("done", "total", "words"), [(5.0, 2.0, "5 of 2"), (1.0, 2.0, "1 of 2 (50%)"), (2.0, 2.0, "2 of 2 (100%)")]
)
def test_more_than_its_total_is_no_part_of_it(done, total, words):
    assert progress_text(shown({"done": done, "total": total, "note": None})) == words

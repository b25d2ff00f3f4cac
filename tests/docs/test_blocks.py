"""Every code block of the README and of docs/ does what its page says, in order, beside a real `duly up`."""

import pytest

from tests.docs.blocks import FOR_READING, PAGES, ROOT, Block, Page, blocks, missing_line

RUN = ("sh", "console", "python", "sql", "yaml", "json", "toml")
ALL = [block for page in PAGES for block in blocks(page)]
NEEDS_SERVER = [page for page in PAGES if any(block.is_run for block in blocks(page))]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", NEEDS_SERVER, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_run(page, tmp_path):
    with Page(tmp_path) as running:
        for block in blocks(page):
            if block.is_run:
                running.run(block)


def test_documentation_block_is_run_or_gives_a_reason():
    unknown = [b.where for b in ALL if not b.reason and b.language not in (*RUN, *FOR_READING)]

    assert unknown == [], "give it a language that is run, or a line <!-- not run: REASON --> before it"


def test_most_blocks_are_run(capsys):
    left_out = [block for block in ALL if block.reason]
    with capsys.disabled():
        print(f"\n{sum(b.is_run for b in ALL)} blocks run, {len(left_out)} not:")
        print("\n".join(f"  {block.where}: {block.reason}" for block in left_out))

    assert len(left_out) * 4 < len(ALL), "pages on clusters and second servers have their share; the rest is run"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```sh\nfalse\n```\n", "ended with 1"),
        ("```console\n$ echo one\ntwo\n```\n", "did not print 'two'"),
        ("```python\nassert 1 == 2\n```\n", "AssertionError"),
        ("```sql\nselect 1 from nowhere\n```\n", "nowhere"),
        ("```yaml title=\"duly.yaml\"\nversion: 1\njobs: {a: {cron: 1 2}}\n```\n", "cron"),
        ("```json title=\"POST /v1/jobs\"\n{\"target\": 1}\n```\n", "422"),
    ],
    ids=["sh", "console", "python", "sql", "yaml", "json"],
)  # fmt: skip
def test_a_block_that_fails_is_noticed(broken, text, complaint):
    running, write = broken
    with pytest.raises(Exception, match=complaint):
        running.run(write(text))


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    page = tmp_path_factory.mktemp("page")

    def write(text: str) -> Block:
        file = page / "page.md"
        file.write_text(text)
        [block] = blocks(file)
        return block

    with Page(tmp_path_factory.mktemp("scratch")) as running:
        yield running, write


def test_shown_lines_are_looked_for_in_order():
    output = "one   1\ntwo at 13:58:18\nthree"

    assert missing_line(["one 1", "two at …"], output) == ""
    assert missing_line(["three", "one 1"], output) == "one 1"

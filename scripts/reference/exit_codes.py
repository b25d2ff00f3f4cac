"""The page of exit codes, from the command line's own list of them."""

import re

from duly.cli.failures import EXIT_CODES
from scripts.reference.markdown import document, table

_HEAD = """
Exit codes of the `duly` command. An error is one sentence on standard error that begins with `duly:`; standard output has only
the result, so it can be piped.
"""
_TAIL = """
Bulk commands end with 1 if some items were refused, each named on standard error with its reason, or if you answered no.
`duly doctor` ends with 1 if something needs a person, and `duly plan --check` if something would change.
"""


def page() -> str:
    """Write the page."""
    rows = re.findall(r"^  (\d+) +(.+)$", EXIT_CODES, re.MULTILINE)
    return document(
        "Exit codes", _HEAD, table(["code", "meaning"], [(f"`{code}`", said) for code, said in rows]), _TAIL
    )

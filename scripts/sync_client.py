"""Generate the synchronous client from the asynchronous one: `python -m scripts.sync_client` writes duly/client/synchronous.

Each module is the same text with the words of one colour in place of the other's. A test holds that they are in step.
"""

import re
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "duly" / "client"
SOURCES = PACKAGE / "asynchronous"
TARGET = PACKAGE / "synchronous"

_WORDS = (
    (r"duly\.client\.asynchronous", "duly.client.synchronous"),
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\basync_", ""),
    (r"\b__aenter__\b", "__enter__"),
    (r"\b__aexit__\b", "__exit__"),
    (r"\baclose\b", "close"),
    (r"\baclosing\b", "closing"),
    (r"\baiter_lines\b", "iter_lines"),
    (r"\baread\b", "read"),
)
_PACKAGE_ABOUT = (
    '"""The client for programs without an event loop, made from the one with: see scripts/sync_client.py."""\n'
)


def synchronous_of(text: str, name: str) -> str:
    """Give the other colour of a module."""
    if name == "__init__.py":
        return _PACKAGE_ABOUT
    for pattern, word in _WORDS:
        text = re.sub(pattern, word, text)
    head = "# Made from ../asynchronous by scripts/sync_client.py; change that one.\n"
    return _formatted(head + text)


def _formatted(text: str) -> str:
    ruff = Path(sys.executable).parent / "ruff"
    for command in (["check", "--fix-only", "--unsafe-fixes", "--quiet"], ["format", "--quiet"]):
        done = subprocess.run(
            [ruff, *command, "--stdin-filename", str(TARGET / "module.py"), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            cwd=PACKAGE.parents[2],
        )
        text = done.stdout
    return text


def modules() -> dict[str, str]:
    """Return every module of the synchronous client by its file's name."""
    return {path.name: synchronous_of(path.read_text(), path.name) for path in sorted(SOURCES.glob("*.py"))}


if __name__ == "__main__":
    TARGET.mkdir(exist_ok=True)
    for name, text in modules().items():
        (TARGET / name).write_text(text)

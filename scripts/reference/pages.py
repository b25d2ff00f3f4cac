"""The generated pages, and their sources."""

from functools import cache
from pathlib import Path

from scripts.reference import command_line, exit_codes, http_api, limits, metrics, python, settings

ROOT = Path(__file__).parents[2]
FOLDER = "docs/reference"


@cache
def pages() -> dict[str, str]:
    """Give the text of each generated page by its path from the root."""
    written = {
        "command-line.md": command_line.page(),
        "exit-codes.md": exit_codes.page(),
        "limits.md": limits.page(),
        "metrics.md": metrics.page(),
        "settings.md": settings.page(),
        "sdk.md": python.sdk_page(),
        "client.md": python.client_page(),
        **http_api.pages(),
    }
    return {f"{FOLDER}/{name}": text for name, text in written.items()}

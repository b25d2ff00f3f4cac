"""Hooks of mkdocs for the documentation site: its navigation, and links to files outside of docs/.

The navigation follows the folders, so a new page appears by itself: first those named here, then the others by name.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

SECTIONS = {"How-to": "how-to", "Reference": "reference", "Explanation": "explanation", "Decisions": "decisions"}
FIRST = {
    "how-to": ("cron-and-time-zones", "retries-and-dead-letters", "workflows", "webhooks", "limits-and-fairness"),
    "reference": ("http-api", "api", "filters", "events", "audit", "command-line", "settings", "sdk", "client"),
    "explanation": ("guarantees", "architecture", "at-least-once-and-fences", "time", "fairness"),
}
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(((?:\.\./)+[^)\s]*)\)")


def on_config(config: Any) -> Any:
    """Build the navigation from the folders."""
    docs = Path(config["docs_dir"])
    own = ["index.md", "tutorial.md"]
    nav: list[Any] = [{"Home": "index.md"}, "tutorial.md"]
    nav += [{title: _pages(docs / name, docs)} for title, name in SECTIONS.items() if (docs / name).is_dir()]
    if others := sorted(path.name for path in docs.glob("*.md") if path.name not in own):
        nav.append({"More": others})
    config["nav"] = nav
    return config


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Show links to files outside of docs/ as plain text: the site does not have them."""
    folder = Path(page.file.src_uri).parent

    def shown(link: re.Match[str]) -> str:
        leads_out = os.path.normpath(folder / link[2].partition("#")[0]).startswith("..")
        return link[1] if leads_out else link[0]

    return _LINK.sub(shown, markdown)


def _pages(folder: Path, docs: Path) -> list[Any]:
    first = ("README", "index", *FIRST.get(folder.name, ()))
    found = [path for path in folder.iterdir() if path.suffix == ".md" or path.is_dir()]
    found.sort(key=lambda path: (first.index(path.stem) if path.stem in first else len(first), path.name))
    return [
        {"HTTP API by resource": _pages(path, docs)} if path.is_dir() else str(path.relative_to(docs)) for path in found
    ]

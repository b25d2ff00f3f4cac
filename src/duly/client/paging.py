"""Lists: read page by page, each named by the one before."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from duly.client.requests import Ask, getting

T = TypeVar("T")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """Some of a list, and what names the next page; without it there is no more."""

    items: list[T]
    next_page_token: str | None = None


def listing(where: str, item: type[T], **query: object) -> Ask[Page[T]]:
    """Ask for the first page of a list."""
    shape: Any = Page
    return getting(where, shape[item], **query)


def after(ask: Ask[Page[T]], token: str) -> Ask[Page[T]]:
    """Ask for the page that a token names."""
    return msgspec.structs.replace(ask, query={**ask.query, "page_token": token})

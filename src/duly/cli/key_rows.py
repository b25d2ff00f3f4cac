"""Keys as rows: whose they are, what for, and whether they still open anything. Never their secrets."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from duly.domain.tenancy.api_key import ApiKey
from duly.wire.keys import Key


def key_row(key: ApiKey, now: datetime) -> dict[str, Any]:
    """Give a key, as the store keeps it, as a row."""
    row = msgspec.structs.asdict(key)
    del row["secret_hash"], row["tenant_rate"]
    return {**row, "scopes": sorted(key.scopes), "state": _state(row, now)}


def told_key_row(key: Key, tenant_name: str, tenant_state: str, now: datetime) -> dict[str, Any]:
    """Give a key, as the API tells it, as a row."""
    row = {**msgspec.structs.asdict(key), "tenant_name": tenant_name, "tenant_state": tenant_state}
    return {**row, "state": _state(row, now)}


def _state(row: dict[str, Any], now: datetime) -> str:
    if row["revoked_at"] is not None:
        return "revoked"
    is_expired = row["expires_at"] is not None and row["expires_at"] <= now
    return "expired" if is_expired else str(row["tenant_state"])

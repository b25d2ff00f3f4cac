"""Settings of the embedded PostgreSQL: given on its command line at each start, so a newer Duly brings newer settings."""

from __future__ import annotations

import os
from pathlib import Path

MEBIBYTE = 1024 * 1024
CLUSTER_NAME = "duly"
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")

DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
# For tests and scratch data only: a crash of the machine may leave nothing readable behind.
SCRATCH = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}

FIXED = {
    "cluster_name": CLUSTER_NAME,
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "port": "5432",  # Only names the socket: there is no TCP.
    "max_connections": "200",
    "superuser_reserved_connections": "0",  # No superuser can log in.
    "checkpoint_timeout": "15min",
    "wal_compression": "off",  # The wheel has only pglz, which costs each fire more than all the rest after a checkpoint.
    "huge_pages": "try",
    # To fill new segments with zeros took a twentieth of the machine under load, and each burst waited for it. Where the disk is
    # full the log stops the server in either case.
    "wal_init_zero": "off",
    "jit": "off",
    "autovacuum_naptime": "5s",
    "max_logical_replication_workers": "0",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "log_min_error_statement": "panic",  # Statements carry users' payloads, which do not belong in a log.
    "logging_collector": "off",
    "log_line_prefix": "%m [%p] %q%a ",
}


def server_settings(*, durable: bool, memory: int, room: int) -> dict[str, str]:
    """Choose the settings for a machine with so many bytes of memory, and so many free where the data is."""
    sized = {
        "shared_buffers": f"{clamp(memory // 4 // MEBIBYTE, 32, 1024)}MB",
        "effective_cache_size": f"{max(memory // 2 // MEBIBYTE, 64)}MB",
        "maintenance_work_mem": f"{clamp(memory // 32 // MEBIBYTE, 16, 256)}MB",
        # Half of it lies between two checkpoints under load, and after each every page is written to the log once more, whole. As
        # much as all of it may be read again after a crash.
        "max_wal_size": f"{clamp(room // 10 // MEBIBYTE, 512, 8192)}MB",
    }
    return FIXED | sized | (DURABLE if durable else SCRATCH)


def clamp(value: int, low: int, high: int) -> int:
    """Return the number nearest to `value` within the two bounds."""
    return max(low, min(value, high))


def memory_of_machine() -> int:
    """Return how many bytes of memory we may use: the machine's, or fewer in a container with a limit."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = _CGROUP_LIMIT.read_text(encoding="utf-8").strip()
    except OSError:
        return physical
    return min(physical, int(limit)) if limit.isdigit() else physical

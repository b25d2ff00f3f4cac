"""What a scenario is given: where it runs, how it shows its steps, and how many processes it may start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec

from duly.bench import stamps
from duly.bench.costs import Meter
from duly.bench.place import Place
from duly.bench.progress import Steps
from duly.bench.roles import Roles, configs, running
from duly.bench.stamps import Stamp


class Bench(msgspec.Struct, frozen=True):
    """One scenario's surroundings. `folder` is for files between processes."""

    place: Place
    steps: Steps
    folder: Path
    workers: int
    slots: int

    def roles(
        self, *, stamped: bool = False, tell_seconds: float = 0.5, workers: int | None = None
    ) -> AbstractAsyncContextManager[Roles]:
        """Run a scheduler and the workers."""
        return running(
            configs(
                self.place.url,
                workers=self.workers if workers is None else workers,
                slots=self.slots,
                stamps=self.folder if stamped else None,
                tell_seconds=tell_seconds,
            )
        )

    def stamps(self) -> list[Stamp]:
        """Read what the handlers noted, once their processes have ended."""
        return list(stamps.read(self._files()))

    async def stamps_by_database(self) -> list[Stamp]:
        """Read what the handlers noted, as the database's clock would have shown it, should it be another than ours."""
        offset = await self.place.clock_offset()
        return [stamp.shifted(offset) for stamp in self.stamps()] if offset else self.stamps()

    def costs(self, roles: Roles) -> Meter:
        """Count CPU from now on."""
        return Meter(roles.pids, self.place.server_pid)

    def config(self, options: msgspec.Struct, **more: Any) -> dict[str, Any]:
        """Lay out everything a result depends on."""
        asked: dict[str, Any] = msgspec.to_builtins(options)
        return asked | {"workers": self.workers, "slots": self.slots} | more | self.place.config

    def _files(self) -> Iterator[Path]:
        return (path for path in sorted(self.folder.iterdir()) if path.is_file())


def chunks(number: int, size: int) -> Sequence[int]:
    """Cut a number into sizes."""
    return [min(size, number - start) for start in range(0, number, size)]

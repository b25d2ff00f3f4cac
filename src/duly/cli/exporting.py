"""The schedules in a database, written as a file."""

from __future__ import annotations

from duly.cli.desk import Exported
from duly.domain.counting import some
from duly.domain.errors import InvalidOption, NotFound
from duly.domain.jobs.job import check_name
from duly.domain.jobs.manifest_export import export as exported
from duly.domain.jobs.manifest_shapes import JOBS_MAX
from duly.domain.runs.run import TENANT_DEFAULT
from duly.store.connection.database import Database
from duly.store.tables import applied, schedules


async def export(database: Database, source: str | None, *, by_hand: bool) -> Exported:
    """Write the schedules of a file as that file. Raises NotFound, InvalidOption."""
    chosen = await _source(database, source, by_hand=by_hand)
    jobs = await applied.exported(database, TENANT_DEFAULT, chosen, JOBS_MAX + 1, by_hand=by_hand)
    calendars = await schedules.calendars(database, TENANT_DEFAULT, None)
    unnamed = await applied.unnamed(database, TENANT_DEFAULT) if by_hand else 0
    if len(jobs) > JOBS_MAX:
        raise InvalidOption(f"there are more than {JOBS_MAX} jobs, the limit of a file; export without --by-hand")
    if not jobs:
        raise NotFound(f"no file {chosen!r} has a job here; add --by-hand for the jobs that were made by hand")
    verb = "is" if unnamed == 1 else "are"
    left_out = f"{some(unnamed, 'schedule')} without a name {verb} left out; `duly jobs edit ID --name NAME`"
    return Exported(exported(chosen, jobs, calendars), [left_out] if unnamed else [])


async def _source(database: Database, source: str | None, *, by_hand: bool) -> str:
    """Choose the file: the one that was named, or the only one there is."""
    if source is not None:
        return check_name(source, "source")
    known = list(await applied.sources(database, TENANT_DEFAULT))
    if len(known) > 1:
        raise InvalidOption(f"there are several files; name one with --source: {', '.join(known[:10])}")
    if not known and not by_hand:
        raise NotFound("no file has a job here; add --by-hand for the jobs that were made by hand")
    return known[0] if known else "duly"

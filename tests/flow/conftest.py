"""Flow is told in real time: the database keeps its own clock, and workers live."""

from tests.worker.conftest import faulty, real_time, store, url

__all__ = ["faulty", "real_time", "store", "url"]

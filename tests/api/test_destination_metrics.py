"""Metrics of destinations, which name none of them."""

from duly.clock import Rng
from duly.domain.runs.outcome import WaitForDestination
from duly.moves.admin.destinations import report
from duly.moves.defer import Deferred, defer
from duly.store.tables.destinations import DestinationReport
from tests.builders import a_leased_run

RNG = Rng(9)


async def test_destination_metrics_count_states_requests_and_waiting_runs(metrics, database):
    worker_id, run = await a_leased_run(database)
    await defer(database, worker_id, [Deferred(run, None, WaitForDestination("https://ill.example"))])
    ill = DestinationReport(fresh_id=RNG.uuid(), tenant=1, origin="https://ill.example", failing=5, streak=5)
    well = DestinationReport(
        fresh_id=RNG.uuid(), tenant=1, origin="https://well.example", healthy=7, in_flight=2, holds=2, wanted=2
    )
    await report(database, worker_id, 1, [ill, well], RNG)

    text = (await metrics.scrape(""))[0].decode()

    assert 'duly_destinations{state="open"} 1' in text
    assert 'duly_destinations{state="closed"} 1' in text
    assert 'duly_destinations{state="half_open"} 0' in text
    assert 'duly_webhook_requests_total{class="healthy"} 7' in text
    assert 'duly_webhook_requests_total{class="failing"} 5' in text
    assert "duly_webhooks_in_flight 2" in text
    assert "duly_waiting_webhook_runs 1" in text
    assert "example" not in text

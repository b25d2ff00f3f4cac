"""The sync twins: they work in a plain program, inside a running loop, in threads and after a fork."""

import os
from concurrent.futures import ThreadPoolExecutor

from tests.builders import counts


def test_a_plain_function_submits(database_url):
    app, greet = plain_app(database_url)
    try:
        handle = greet.submit_sync("world")
        many = greet.submit_many_sync([{"name": "a"}, {"name": "b"}])

        assert handle.status_sync() == "ready"
        assert [one.cancel_sync() for one in (handle, *many)] == ["cancelled"] * 3
        assert handle.status_sync() == "cancelled"
    finally:
        app.close_sync()


async def test_submit_sync_works_inside_a_running_loop(greet, database):
    greet.submit_sync("world")
    await greet.submit("world")

    assert await counts(database) == {"ready": 2}


def test_threads_share_one_loop(database_url):
    app, greet = plain_app(database_url)
    try:
        with ThreadPoolExecutor(8) as threads:
            handles = list(threads.map(lambda i: greet.submit_sync(f"guest {i}"), range(40)))
        assert len({handle.job_id for handle in handles}) == 40
    finally:
        app.close_sync()


def test_a_forked_process_has_a_loop_of_its_own(database_url):
    app, greet = plain_app(database_url)
    try:
        greet.submit_sync("parent")
        child = os.fork()
        if child == 0:
            os._exit(0 if greet.submit_sync("child").status_sync() == "ready" else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        app.close_sync()


def test_an_app_can_be_used_again_after_it_was_closed(database_url):
    app, greet = plain_app(database_url)
    greet.submit_sync("world")
    app.close_sync()

    assert greet.submit_sync("world").status_sync() == "ready"
    app.close_sync()


def plain_app(url):
    from duly import App

    app = App(url)

    @app.handler
    def greet(name: str) -> None: ...

    return app, greet

"""The files of the dashboard: kept for good where their name has a hash, and one page for every path."""

import httpx
import pytest
from litestar import Litestar

from duly.dashboard.pages import NOT_BUILT, pages

PAGE = '<!doctype html><script type="module" src="/ui/assets/app-1a2b3c.js"></script>'


@pytest.fixture
def static(tmp_path):
    """A build."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text(PAGE)
    (tmp_path / "assets" / "app-1a2b3c.js").write_text("console.log(1);" * 200)
    return tmp_path


async def asked(folder, path, has_dashboard=True, **headers):
    transport = httpx.ASGITransport(Litestar(pages(folder, has_dashboard=has_dashboard), openapi_config=None))  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://duly") as client:
        return await client.get(path, headers=headers)


@pytest.mark.parametrize("path", ["/", "/ui", "/ui/", "/ui/jobs", "/ui/runs/0192?tab=logs", "/ui/a/b/c"])
async def test_every_path_leads_to_the_page(static, path):
    answer = await asked(static, path)

    assert answer.text == PAGE
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["content-type"] == "text/html; charset=utf-8"


async def test_asset_with_a_hash_in_its_name_is_cached_as_immutable(static):
    answer = await asked(static, "/ui/assets/app-1a2b3c.js")

    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-type"].startswith("text/javascript")
    assert answer.headers["content-encoding"] == "gzip"


async def test_asset_is_sent_uncompressed_to_clients_without_gzip(static):
    answer = await asked(static, "/ui/assets/app-1a2b3c.js", **{"Accept-Encoding": "identity"})

    assert "content-encoding" not in answer.headers
    assert answer.text.startswith("console.log")


async def test_page_without_a_build_names_the_make_target(tmp_path):
    answer = await asked(tmp_path / "nothing", "/ui/jobs")

    assert answer.text == NOT_BUILT
    assert "make dashboard" in answer.text
    assert "<script" not in answer.text


async def test_without_the_dashboard_the_address_alone_leads_to_the_page_of_the_api(static):
    (static / "docs.html").write_text(PAGE)

    front, docs = [await asked(static, path, has_dashboard=False) for path in ("/", "/docs")]

    assert (front.status_code, front.headers["location"]) == (303, "/docs")
    assert docs.text == PAGE
    assert (await asked(static, "/ui/assets/app-1a2b3c.js", has_dashboard=False)).status_code == 200
    assert (await asked(static, "/ui/jobs", has_dashboard=False)).status_code == 404

"""The keyring: made once by `duly up`, found by whoever works beside it, and named where it is missing."""

import re
import stat

import pytest

from duly.clock import Rng
from duly.domain.tenancy.sealing import new_key_line
from duly.settings import SettingsError, load
from duly.store.tenancy.keyring import FILE, first_keyring, keyring_of
from tests.cli.processes import inside, running


def settings(folder, **more):
    return load({"data": folder / "data", **more}, environ={}, cwd=folder)


def test_the_first_start_makes_one_that_only_its_owner_can_read(tmp_path):
    (tmp_path / "data").mkdir()
    made = first_keyring(settings(tmp_path), tmp_path / "data", Rng())

    file = tmp_path / "data" / FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert made is not None
    again, beside = first_keyring(settings(tmp_path), tmp_path / "data", Rng()), keyring_of(settings(tmp_path))
    assert again is not None
    assert beside is not None
    assert made.key_id == again.key_id == beside.key_id
    assert [path.name for path in (tmp_path / "data").iterdir()] == [FILE]


def test_a_database_of_ones_own_has_none_of_a_folder(tmp_path):
    (tmp_path / "data").mkdir()
    first_keyring(settings(tmp_path), tmp_path / "data", Rng())

    assert keyring_of(settings(tmp_path, database_url="postgresql:///x")) is None


def test_configured_keyring_takes_precedence_over_the_stored_keyring(tmp_path):
    (tmp_path / "data").mkdir()
    first_keyring(settings(tmp_path), tmp_path / "data", Rng())
    line = new_key_line(Rng().secret).reveal()
    (tmp_path / "mine").write_text(line)

    found = keyring_of(settings(tmp_path, secrets_key=tmp_path / "mine"))

    assert found is not None
    assert found.key_id == line.partition(":")[0]


@pytest.mark.parametrize("content", [None, "", "nonsense", "\xff"])
def test_unreadable_keyring_is_named_with_a_remedy(tmp_path, content):
    if content is not None:
        (tmp_path / "mine").write_bytes(content.encode("latin-1"))

    with pytest.raises(SettingsError, match="duly secrets new-key"):
        keyring_of(settings(tmp_path, secrets_key=tmp_path / "mine"))


def test_a_new_key_is_a_line_for_the_file(tmp_path):
    made = inside("secrets", "new-key", cwd=tmp_path)

    assert made.returncode == 0
    assert re.fullmatch(r"k[0-9a-f]{8}:[A-Za-z0-9+/]{43}=\n", made.stdout)
    (tmp_path / "mine").write_text(made.stdout)
    assert keyring_of(settings(tmp_path, secrets_key=tmp_path / "mine")) is not None


def test_worker_without_a_keyring_reports_that_it_sends_no_webhooks(database_url, tmp_path):
    (tmp_path / "app.py").write_text("from duly import App\napp = App()\n@app.handler\ndef greet() -> None: ...\n")
    with running("worker", "app:app", "--database-url", database_url, cwd=tmp_path) as worker:
        assert "duly secrets new-key" in worker.wait_for_line("it sends no webhooks: ")


def test_worker_with_a_keyring_and_without_an_app_requires_the_webhooks_flag(database_url, tmp_path):
    (tmp_path / "keys").write_text(new_key_line(Rng().secret).reveal())
    more = ("--database-url", database_url, "--secrets-key", str(tmp_path / "keys"))

    assert "name the app" in inside("worker", *more, cwd=tmp_path).stderr
    with running("worker", *more, "--webhooks", "7", cwd=tmp_path) as worker:
        assert "@webhook" in worker.wait_for_line("serves default with ")

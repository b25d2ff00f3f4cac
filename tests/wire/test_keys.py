"""Keys as they cross HTTP."""

import msgspec

from duly.wire.keys import CreatedKey

TEXT = "duly_abcdefghij_" + "k" * 39


def test_created_key_is_sent_whole_and_printed_masked():
    made = CreatedKey(key_id="abcdefghij", tenant=1, name="cli", scopes=["admin"], expires_at=None, key=TEXT)

    for printed in (repr(made), str(made), f"{[made]}", repr(made.__rich_repr__())):
        assert TEXT not in printed
        assert "abcdefghij" in printed
    assert repr(made).endswith("key='***')")
    assert msgspec.json.decode(msgspec.json.encode(made))["key"] == TEXT

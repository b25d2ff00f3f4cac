import time
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec
import pytest

from duly.domain.errors import InvalidOption, InvalidPayload
from duly.domain.redaction import Redactor, check_rules, redacted, restored

CARD = "4111-1111-1111-1111"
ORDER: dict[str, Any] = {
    "card": CARD,
    "order": {"id": 7, "card": CARD},
    "items": [{"card": CARD, "sku": "a"}, {"sku": "b"}],
    "a b": {"password": "hunter22"},
    "list": [[{"password": {"old": "hunter22"}}]],
}


@pytest.mark.parametrize(
    ("path", "places"),
    [
        ("$.card", ["card"]),
        ("$.order.card", ["order", "card"]),
        ("$.items[*].card", ["items", 0, "card"]),
        ("$.items[0].card", ["items", 0, "card"]),
        ("$.items[0]", ["items", 0]),
        ("$['a b'].password", ["a b", "password"]),
        ("$.list[0][0].password", ["list", 0, 0, "password"]),
        ("$.list[0][*].password.*", ["list", 0, 0, "password", "old"]),
    ],
)
def test_a_path_hides_its_value_and_nothing_else(path, places):
    expected = msgspec.json.decode(msgspec.json.encode(ORDER))
    inner: Any = expected
    for place in places[:-1]:
        inner = inner[place]
    inner[places[-1]] = f"*** ({path})"

    assert redacted(ORDER, [path]) == expected


def test_two_dots_name_a_field_at_any_depth():
    shown = redacted(ORDER, ["$..password"])

    assert shown["a b"]["password"] == shown["list"][0][0]["password"] == "*** ($..password)"
    assert shown["card"] == CARD


def test_the_value_itself_stays_as_it_was():
    before = msgspec.json.encode(ORDER)
    redacted(ORDER, ["$..card", "$..password", "$.items[*]"])

    assert msgspec.json.encode(ORDER) == before


def test_a_path_that_finds_nothing_changes_nothing():
    assert redacted(ORDER, ["$.nothing", "$.card.deeper", "$.items[9].card", "$.order[0]", "$..absent"]) == ORDER


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("card", "does not start with $"),
        ("$", "names the whole payload"),
        ("$.", "'.'"),
        ("$.a..", "'..'"),
        ("$.items[", "'['"),
        ("$.items[?(@.card)]", "'[?(@.card)]'"),
        ("$.items[-1]", "'[-1]'"),
        ("$.items[0:2]", "'[0:2]'"),
        ("$.a b", "' b'"),
        ("$." + "a" * 200, "too long"),
    ],
)
def test_an_unreadable_path_is_refused_from_the_part_that_is_wrong(path, fault):
    with pytest.raises(InvalidOption) as refused:
        check_rules([path])
    assert fault in str(refused.value)
    assert refused.value.field == "redact"


def test_more_rules_than_the_limit_are_refused():
    with pytest.raises(InvalidOption, match="33 rules"):
        check_rules([f"$.a{number}" for number in range(33)])


def test_rules_are_kept_once():
    assert check_rules(["$.b", "$.a", "$.b"]) == ("$.b", "$.a")


@pytest.mark.parametrize(
    "quoted",
    [
        "no account for {0}",
        'KeyError: "{0}"\n  File "a.py", line 3',
        "{0}{0}",
        "https://x.example/?card={0}&more=1",
    ],
)
def test_a_value_is_replaced_wherever_a_text_quotes_it(quoted):
    redactor = Redactor(["$.card"], ORDER)

    assert redactor.text(quoted.format(CARD)) == quoted.format("*** ($.card)")


@pytest.mark.parametrize("secret", ['a "b" \\ c\n', "pässwörd & more", "it's", "a/b?c=d e"])
def test_a_value_is_replaced_in_json_in_python_and_in_urls(secret):
    redactor = Redactor(["$..pin"], {"x": {"pin": secret}})
    written = [
        secret,
        msgspec.json.encode(secret).decode(),
        repr(secret),
        ascii(secret),
        quote(secret),
        quote_plus(secret),
    ]

    for text in written:
        if text == ascii(secret) and not secret.isascii():
            continue  # Python's own escapes of letters are not JSON's.
        assert "*** ($..pin)" in redactor.text(f"<{text}>"), text
        assert secret not in redactor.text(f"<{text}>")


def test_numbers_and_values_inside_a_hidden_object_are_replaced_too():
    redactor = Redactor(["$.who"], {"who": {"names": ["Ada Byron"], "account": 123456789, "age": 36}})

    assert redactor.text("Ada Byron, account 123456789") == "*** ($.who), account *** ($.who)"
    assert redactor.value({"n": 123456789, "ok": True, "age": 36}) == {"n": "*** ($.who)", "ok": True, "age": 36}


def test_the_longer_value_is_replaced_first():
    redactor = Redactor(["$.a", "$.b"], {"a": "secret", "b": "secret-of-mine"})

    assert redactor.text("secret-of-mine and secret") == "*** ($.b) and *** ($.a)"


def test_short_values_do_not_match_by_chance():
    assert Redactor(["$.cvv"], {"cvv": "123"}).text("attempt 1234 of 12345") == "attempt 1234 of 12345"


def test_a_text_is_hidden_whole_where_very_many_values_are():
    redactor = Redactor(["$.ids"], {"ids": [f"number-{at:05}" for at in range(1_000)]})

    assert redactor.text("anything with number-00017") == "*** ($.ids)"


def test_parts_of_values_are_found_at_the_ends_of_a_long_text():
    redactor = Redactor(["$.card", "$.pin"], {"card": "4111-1111-1111-1111", "pin": "aaaaab"})
    between = " " * 1_000

    assert redactor.text(f"1-1111-1111{between}4111-11…") == f"*** ($.card){between}*** ($.card)"
    assert redactor.text(f"aab{between}aaa") == f"aab{between}aaa", "shorter than a quote"
    assert redactor.text(f"aaab{between}aaaa") == f"*** ($.pin){between}*** ($.pin)"
    assert redactor.text(f"b{between}4111x") == f"b{between}4111x"


def test_a_cut_text_costs_little_however_many_values_are_hidden():
    redactor = Redactor(["$.*"], {f"key-{number}": f"{number:04}" * 250 for number in range(200)})
    text = "x" * 8_000 + "…"

    began = time.monotonic()
    assert {redactor.text(text) for _ in range(20)} == {text}
    assert time.monotonic() - began < 2.0


def test_results_are_redacted_by_path_and_by_value():
    redactor = Redactor(["$.card"], ORDER)

    assert msgspec.json.decode(
        redactor.json(msgspec.json.encode({"card": "another", "said": [f"paid by {CARD}"]}).decode())
    ) == {
        "card": "*** ($.card)",
        "said": ["paid by *** ($.card)"],
    }


def test_a_payload_that_is_sent_back_as_shown_is_the_stored_one():
    rules = ["$.card", "$.items[*].card", "$..password"]

    assert restored(redacted(ORDER, rules), ORDER, rules) == ORDER


def test_restoring_hidden_values_keeps_the_other_changes():
    rules = ["$.card", "$.items[*].card"]
    shown = redacted(ORDER, rules)
    sent = {**shown, "order": {"id": 8}, "new": [1], "items": [*shown["items"][:1], {"sku": "c"}]}

    assert restored(sent, ORDER, rules) == {
        **ORDER,
        "order": {"id": 8},
        "new": [1],
        "items": [ORDER["items"][0], {"sku": "c"}],
    }


@pytest.mark.parametrize(
    "sent",
    [
        {"other": "*** ($.card)"},
        {"nested": {"card": "*** ($.card)"}},
        {"items": [{"sku": "b"}, {"card": "*** ($.items[*].card)", "sku": "a"}]},
        {"items": [{"card": "*** ($.items[*].card)", "sku": "a"}]},
        {"items": [{"card": "*** ($.items[*].card)", "sku": "changed"}, {"sku": "b"}]},
    ],
)
def test_a_mark_that_stands_for_nothing_is_refused(sent):
    with pytest.raises(InvalidPayload, match="stands for no stored value"):
        restored(sent, ORDER, ["$.card", "$.items[*].card"])


def test_a_new_payload_may_not_have_marks():
    with pytest.raises(InvalidPayload, match="stands for no stored value"):
        restored({"card": "*** ($.card)"}, None, ["$.card"])


def test_text_that_looks_like_the_mark_of_another_rule_is_text():
    assert restored({"note": "*** ($.other)"}, None, ["$.card"]) == {"note": "*** ($.other)"}

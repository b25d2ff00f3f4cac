"""Addresses of webhooks, and their normal form."""

from __future__ import annotations

import pytest

from duly.domain.errors import InvalidOption
from duly.domain.targets.webhook_url import check_url, origin_of, read_url

NORMAL = [
    ("https://example.com", "https://example.com/"),
    ("HTTPS://Example.COM/Path", "https://example.com/Path"),
    ("https://example.com:443/a", "https://example.com/a"),
    ("http://example.com:80", "http://example.com/"),
    ("http://example.com:/", "http://example.com/"),
    ("http://example.com:443/", "http://example.com:443/"),
    ("https://example.com./a", "https://example.com/a"),
    ("https://example.com?x=1", "https://example.com/?x=1"),
    ("https://example.com/a b".replace(" ", "%20"), "https://example.com/a%20b"),
    ("https://example.com/ü?q=ü", "https://example.com/%C3%BC?q=%C3%BC"),
    ('https://example.com/"<>', "https://example.com/%22%3C%3E"),
    ("https://bücher.example/", "https://xn--bcher-kva.example/"),
    ("https://BÜCHER.example/", "https://xn--bcher-kva.example/"),
    ("https://xn--bcher-kva.example/", "https://xn--bcher-kva.example/"),
    ("https://ｅｘａｍｐｌｅ.com/", "https://example.com/"),
    ("https://example。com/", "https://example.com/"),
    ("http://192.0.2.7:8080/a", "http://192.0.2.7:8080/a"),
    ("http://１９２.0.2.7/", "http://192.0.2.7/"),
    ("http://[2001:DB8::0:1]/", "http://[2001:db8::1]/"),
    ("http://[::ffff:192.0.2.7]:8443/", "http://[::ffff:c000:207]:8443/"),
    ("http://my_service:8080/", "http://my_service:8080/"),
    ("http://a/?to=http://b/", "http://a/?to=http://b/"),
]
REFUSED = [
    "",
    "example.com",
    "//example.com/",
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://example.com/",
    "javascript://example.com/",
    "http:example.com",
    "http:/example.com",
    "http://",
    "http:///path",
    "http://user@example.com/",
    "http://user:password@example.com/",
    "http://@example.com/",
    "http://example.com@127.0.0.1/",
    "http://example.com/#part",
    "http://example.com /",
    " http://example.com/",
    "http://example.com/\n",
    "http://exam\tple.com/",
    "http://example.com\\@127.0.0.1/",
    "http:\\\\example.com\\",
    "http://example.com/a\x00b",
    "http://example.com\u00a0/",
    "http://example.com:0/",
    "http://example.com:080/",
    "http://example.com:65536/",
    "http://example.com:+80/",
    "http://example.com:８０/",
    "http://example.com:80:80/",
    "http://example.com:http/",
    "http://::1/",
    "http://[::1/",
    "http://[::1]x/",
    "http://[::1%25eth0]/",
    "http://[fe80::1%eth0]/",
    "http://[::ffff:0177.0.0.1]/",
    "http://[127.0.0.1]/",
    "http://[v1.example]/",
    "http://[:::]/",
    "http://127.1/",
    "http://127.0.1/",
    "http://2130706433/",
    "http://0/",
    "http://0177.0.0.1/",
    "http://0x7f.0.0.1/",
    "http://0x7f000001/",
    "http://127.0.0.0x1/",
    "http://127.0.0.01/",
    "http://127.0.0.256/",
    "http://1.2.3.4.5/",
    "http://127.0.0.1../",
    "http://1２7.1/",
    "http://example..com/",
    "http://.example.com/",
    "http://example.com../",
    "http://-example.com/",
    "http://example-.com/",
    "http://exam%70le.com/",
    "http://exam!ple.com/",
    "http://*.example.com/",
    "http://xn--zzzzzz99999999/",
    "http://xn--/",
    "http://" + "a" * 64 + ".example/",
    "http://" + "a." * 127 + "example/",
    "http://example.com/%zz",
    "http://example.com/%",
    "http://example.com/\ud800",
    "http://\ud800.example/",
    "http://example.com/" + "a" * 2_048,
]


@pytest.mark.parametrize(("given", "normal"), NORMAL)
def test_an_address_has_one_normal_form(given, normal):
    assert check_url(given) == normal
    assert check_url(normal) == normal


@pytest.mark.parametrize("url", REFUSED)
def test_ambiguous_webhook_url_is_refused_with_a_message(url):
    with pytest.raises(InvalidOption, match=r"^webhook url '.*': \w"):
        check_url(url)


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("HTTPS://Example.com:443/a?b", "https://example.com"),
        ("https://example.com:8443/a", "https://example.com:8443"),
        ("http://[2001:db8:0::1]:80/", "http://[2001:db8::1]"),
    ],
)
def test_the_origin_leaves_the_usual_port_out(url, origin):
    assert origin_of(url) == origin


def test_no_refusal_repeats_a_password_or_a_query():
    for url in ("http://me:geheim@example.com/", "http://example.com:0/?token=geheim", "ftp://me:geheim@b/?geheim"):
        with pytest.raises(InvalidOption) as refusal:
            check_url(url)
        assert "geheim" not in str(refusal.value)


def test_a_log_shows_no_query():
    assert read_url("https://example.com/a?token=geheim").shown == "https://example.com/a?…"

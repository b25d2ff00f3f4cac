"""Targets: their checks, masking, and restoring of masked values."""

import msgspec
import pytest

from duly.domain.errors import InvalidOption
from duly.domain.jobs.compile import compile_one_shot
from duly.domain.jobs.job import Recurring, Submission
from duly.domain.jobs.spec_of import shown_target, spec_of
from duly.domain.runs.callbacks import Callback, Callbacks
from duly.domain.runs.options import options_of, plain_of, read_plain
from duly.domain.targets.checks import check_target
from duly.domain.targets.masking import HIDDEN, is_secret, masked
from duly.domain.targets.spec import Called, described_in_short, read_target, spec_of_target
from duly.domain.targets.target import Allowed, Command, Container, Webhook, check_handler, handler_of, type_of
from duly.domain.targets.words import described, unroutable_remedy
from duly.domain.tenancy.sealed_options import seal_options
from duly.domain.tenancy.sealing import Keyring
from duly.store.boxes.options import decode

URL = "https://receiver.example/orders?token=1"
RSYNC = ("/usr/bin/rsync", "-a", "from", "to")


def shown(target):
    """Give a target as it is shown."""
    return shown_target(handler_of(target), options_of(target=target))


DIGEST = f"@sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (Webhook("ftp://receiver.example"), "must begin with http"),
        (Webhook(URL, method="TRACE"), "method 'TRACE'"),
        (Webhook(URL, method="CONNECT"), "method 'CONNECT'"),
        (Webhook(URL, method="PO ST"), "method 'PO ST'"),
        (Webhook(URL, headers={"a b": "x"}), "header 'a b'"),
        (Webhook(URL, headers={"": "x"}), "header ''"),
        (Webhook(URL, headers={"A": "x\r\nB: y"}), "value of header 'A'"),
        (Webhook(URL, headers={"A": "x\0"}), "value of header 'A'"),
        (Webhook(URL, headers={"A": "ä"}), "header 'A'"),
        (Webhook(URL, headers={"A": " x"}), "header 'A'"),
        (Webhook(URL, headers={"A": "x", "a": "y"}), "header 'a' is given twice"),
        (Webhook(URL, headers={f"A-{n}": "x" for n in range(65)}), "65 headers are too many; the limit is 64"),
        (Webhook(URL, headers={"A": "x" * 8_192}), "headers have 8193 bytes; the limit is 8192"),
        *[
            (Webhook(URL, headers={name: "x"}), f"header '{name}' is set by Duly")
            for name in (
                "Host",
                "Content-Length",
                "transfer-encoding",
                "Connection",
                "webhook-id",
                "Webhook-Anything",
                "X-Job-Id",
                "X-Run-ID",
                "X-Attempt",
                "X-Fence",
                "X-Scheduled-At",
                "X-Scheduler-Signature",
                "X-Callback-Token",
                "User-Agent",
                "Accept-Encoding",
                "Content-Encoding",
                "traceparent",
                "X-Request-ID",
                "Proxy-Authorization",
            )
        ],
        (Webhook(URL, final=(99,)), "status 99 is outside 100 to 599"),
        (Webhook(URL, retry=(600,)), "status 600 is outside"),
        (Webhook(URL, final=(409, 503), retry=(503,)), "status 503"),
        (Webhook(URL, callback_within_seconds=0.5), "callback_within 0.5 is outside 1 to 2,592,000 s"),
        (Webhook(URL, callback_within_seconds=31 * 86_400), "callback_within"),
        (Command(()), "a command needs argv"),
        (Command(("rsync",)), "program 'rsync'"),
        (Command(("/usr/bin/",)), "not an absolute path"),
        (Command(("/usr//bin/rsync",)), "not an absolute path"),
        (Command(("/usr/bin/../sbin/init",)), "/usr/bin/../sbin/init"),
        (Command(("/" + "x" * 200,)), "longer than 200 characters"),
        (Command(("/bin/echo", "\0")), "argv contains a NUL"),
        (Command(("/bin/echo", "\ud800")), "lone surrogate"),
        (Command(("/bin/echo",) * 1_001), "argv has 1001 items; the limit is 1000"),
        (Command(("/bin/echo", "x" * 65_536)), "argv has 65547 bytes; the limit is 65536"),
        (Command(RSYNC, {"path": "x"}), "variable 'path'"),
        (Command(RSYNC, {"DULY_URL": "x"}), "variable 'DULY_URL'"),
        (Command(RSYNC, {"LD_PRELOAD": "x"}), "variable 'LD_PRELOAD'"),
        (Command(RSYNC, {"A": "\0"}), "variable 'A'"),
        (Command(RSYNC, {f"A{n}": "x" for n in range(101)}), "101 variables are too many"),
        (Command(RSYNC, memory_bytes=0), "memory_bytes 0 is outside"),
        (Command(RSYNC, cpu_seconds=0), "cpu_seconds 0 is outside"),
        (Command(RSYNC, processes=-1), "processes -1 is outside"),
        (Command(RSYNC, file_bytes=2**60), "file_bytes"),
        (Command(RSYNC, ok=(256,)), "exit code 256 is outside 0 to 255"),
        (Command(RSYNC, ok=(0, 75)), "exit code 75"),
        (Container("Busy Box"), "image 'Busy Box'"),
        (Container("-rm"), "image '-rm'"),
        (Container("busybox", cpus=0), "cpus 0 is outside"),
        *[
            (
                Command(RSYNC, {name: "x"}),
                f"variable '{name}' may not be set",
            )
            for name in ("PYTHONPATH", "BASH_ENV", "ENV", "NODE_OPTIONS", "JAVA_HOME", "IFS")
        ],
        (Container("busybox", environment={"DULY_URL": "x"}), "variable 'DULY_URL'"),
        (Container("busybox", environment={"A": "x\ny"}), "variable 'A'"),
    ],
)
def test_invalid_target_is_refused_with_a_message(target, words):
    with pytest.raises(InvalidOption, match=words):
        check_target(target)


@pytest.mark.parametrize(
    "target",
    [
        Webhook("https://receiver.example/", headers={"X-Api-Key": "k"}, final=(503,), retry=(404,)),
        Webhook("http://192.0.2.7:8080/a?b=c", "PATCH", callback_within_seconds=1.0),
        Command(RSYNC, {"LANG": "C", "_A1": ""}, True, 2**20, 0.5, 10, 1_000, (0, 24), ()),
        Webhook("https://receiver.example/", "PROPFIND"),
        Container("busybox"),
        Container("busybox", environment={"NODE_OPTIONS": "--max-old-space-size=64", "ENV": "test"}),
        Container("registry.example:5000/team/image_name:v1.2", ("echo", "ä"), cpus=0.5),
        Container("library/busybox" + DIGEST),
    ],
)
def test_valid_target_is_stored_and_described_without_change(target):
    assert check_target(target) == target
    assert read_target(spec_of_target(target)) == target
    options = options_of(target=target)
    assert read_plain(plain_of(options)) == options


def test_an_address_and_a_method_have_one_form():
    kept = check_target(Webhook("HTTPS://Receiver.EXAMPLE:443", "post"))

    assert kept == Webhook("https://receiver.example/", "POST")


def test_a_functions_name_never_begins_as_a_targets_does():
    assert [handler_of(one) for one in (Webhook(URL), Command(RSYNC), Container("busybox"))] == [
        "@webhook",
        "@command:/usr/bin/rsync",
        "@container:busybox",
    ]
    assert [type_of(name) for name in ("@webhook", "@command:/x", "@container:a:b", "greet")] == [
        "webhook",
        "command",
        "container",
        "function",
    ]
    with pytest.raises(InvalidOption, match="handler '@webhook' begins with @"):
        check_handler("@webhook")


def test_an_operator_allows_each_program_and_image_by_its_name():
    allowed = Allowed({"/usr/bin/rsync": ()}, frozenset({"busybox"}))

    for target in (None, Webhook(URL), Command(RSYNC), Container("busybox")):
        allowed.check(target)
    with pytest.raises(InvalidOption, match=r"command '/bin/rm' is not allowed; .* in the setting commands"):
        allowed.check(Command(("/bin/rm",)))
    with pytest.raises(InvalidOption, match=r"container image 'busybox:1' is not allowed; .* setting containers"):
        allowed.check(Container("busybox:1"))


def test_an_operator_allows_each_variable_of_a_program_by_its_name():
    allowed = Allowed({"/usr/bin/rsync": ("LANG",)})

    allowed.check(Command(RSYNC, environment={"LANG": "C"}))
    with pytest.raises(InvalidOption, match=r"^/usr/bin/rsync may not receive variable RSYNC_RSH: .*rsync=RSYNC_RSH"):
        allowed.check(Command(RSYNC, environment={"LANG": "C", "RSYNC_RSH": "sh"}))


SECRET = Webhook(URL, headers={"Authorization": "Bearer x", "Accept": "text/plain"})


def test_values_with_secret_names_are_masked():
    for name in ("Authorization", "X-Api-Key", "DEPLOY_TOKEN", "Cookie", "PASSWORD", "client-secret", "PGPASSWORD"):
        assert is_secret(name)
    for name in ("DATABASE_URL", "DB_PASS", "SMTP_PWD", "SENTRY_DSN", "PASSPHRASE"):
        assert is_secret(name)
    for name in ("Accept", "LANG", "User-Agent"):
        assert not is_secret(name)
    assert masked(SECRET).headers == {"Authorization": HIDDEN, "Accept": "text/plain"}
    assert shown(Command(RSYNC, {"TOKEN": "x", "LANG": "C"}))["environment"] == {"TOKEN": HIDDEN, "LANG": "C"}
    text = options_of(target=SECRET, tags=("a",))
    assert described_in_short("@webhook", text) == {
        "type": "webhook",
        "handler": "@webhook",
        "url": "https://receiver.example/orders?…",
    }


def test_a_target_of_a_newer_version_leaves_the_rest_readable():
    options = decode('{"target":{"type":"robot","arm":1},"tags":["a"],"timeout_seconds":3.0}')
    job = Recurring("@robot:arm", "{}", "default", 5, {}, options=options)

    assert options == options_of(tags=("a",), timeout_seconds=3.0)
    assert shown_target("@robot:arm", options) == {"type": "robot"}
    with pytest.raises(InvalidOption, match="this version of Duly cannot read"):
        spec_of(job)


def test_another_option_changes_and_the_target_stays():
    keyring = Keyring({"a": bytes(32)})
    standing = seal_options(options_of(target=SECRET), 1, lambda: keyring)
    spec = spec_of(Submission("@webhook", "{}", "default", 5, options=standing))

    changed = compile_one_shot(msgspec.structs.replace(spec, timeout=4))

    after = seal_options(changed.options, 1, lambda: keyring, standing).policy
    assert (after.target, after.timeout_seconds) == (standing.policy.target, 4.0)


def test_a_field_that_is_none_is_refused():
    with pytest.raises(msgspec.ValidationError, match="unknown field `body`"):
        msgspec.convert({"type": "webhook", "url": URL, "body": "x"}, Called)


def test_words_for_people():
    told = [shown(one) for one in (SECRET, Command(RSYNC), Container("busybox", ("ls",)))]

    assert [described(one) for one in told] == [
        "webhook https://receiver.example/orders?…",
        "command /usr/bin/rsync",
        "container busybox",
    ]
    assert described({"type": "function", "handler": "greet"}) == "greet"
    assert described({"type": "robot"}) == "robot"
    assert "duly worker --webhooks 500 --queue mail" in unroutable_remedy("@webhook", "mail")
    assert "DULY_COMMANDS=/usr/bin/rsync duly worker" in unroutable_remedy(handler_of(Command(RSYNC)), "default")
    assert "in the setting containers" in unroutable_remedy("@container:busybox", "default")
    assert unroutable_remedy("greet", "default").endswith("duly worker module:app")


def test_webhook_without_a_signing_key_is_refused_with_a_remedy():
    with pytest.raises(InvalidOption, match="duly secrets new-key"):
        Allowed(webhooks=False).check(Webhook(url="https://hooks.example/"))
    Allowed().check(Webhook(url="https://hooks.example/"))


@pytest.mark.parametrize("when", ["end", "failure"])
def test_callback_url_without_a_signing_key_is_refused(when):
    told = Callbacks(**{when: Callback(url="https://hooks.example/")})

    with pytest.raises(InvalidOption, match=rf"on_{when} names a URL, and webhooks cannot be signed"):
        Allowed(webhooks=False).check_callbacks_allowed(told)
    Allowed().check_callbacks_allowed(told)
    Allowed(webhooks=False).check_callbacks_allowed(Callbacks(**{when: Callback(job="tidy")}))
    Allowed(webhooks=False).check_callbacks_allowed(None)

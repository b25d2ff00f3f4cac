"""A file of schedules as text: plain values with their places, and nothing that is not meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.domain.jobs.manifest_text import FILE_BYTES_MAX, VALUES_MAX, read_text, write_text
from duly.domain.problems import InvalidManifest


def refused(text):
    with pytest.raises(InvalidManifest) as error:
        read_text(text, "duly.yaml")
    [problem] = error.value.problems
    return (problem.line, problem.column), str(error.value)


def test_manifest_entry_has_the_position_of_its_key():
    document = read_text("source: x\njobs:\n  a:\n    tags: [one,\n      two]\n", "duly.yaml")

    assert document.value == {"source": "x", "jobs": {"a": {"tags": ["one", "two"]}}}
    assert document.places[()] == (1, 1)
    assert document.places[("jobs", "a")] == (3, 3)
    assert document.places[("jobs", "a", "tags")] == (4, 5)
    assert document.places[("jobs", "a", "tags", 1)] == (5, 7)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("yes", "yes"),
        ("on", "on"),
        ("NO", "NO"),
        ("12:30", "12:30"),
        ("2026-01-01", "2026-01-01"),
        ("0123", "0123"),
        ("0x1f", "0x1f"),
        ("1_000", "1_000"),
        (".inf", ".inf"),
        ("'7'", "7"),
        ("!", ""),
        ("7", 7),
        ("-7", -7),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("true", True),
        ("null", None),
        ("~", None),
        ("", None),
        ("|\n  a\n  b", "a\nb"),
    ],
)
def test_yaml_scalar_is_text_unless_json_has_its_type(written, read):
    assert read_text(f"a: {written}", "duly.yaml").value == {"a": read}


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a: b\n c: d: e", (2, 3), "the file is not YAML: mapping values are not allowed"),
        ("a: 1\nb: 2\na: 3", (3, 1), "key 'a' is given twice, first on line 1"),
        ("a: !!python/object:os.system x", (1, 4), "tag 'tag:yaml.org,2002:python/object:os.system'"),
        ("a: !!binary x", (1, 4), "is not supported"),
        ("? [a]\n: b", (1, 3), "a key must be text"),
        ("a: *b", (1, 4), "alias *b"),
        ("a: &a [*a]", (1, 8), "alias *a"),
        ("a: 1\n---\nb: 2", (3, 1), "second document"),
        ("a: " + "9" * 5000, (1, 4), "is too long; put it in quotes"),
        ("[" * 100_000, (1, 70), "nested deeper than 68 levels"),
        ("a: \x01", (None, None), "not YAML"),
        ("a: \ud800", (None, None), "not YAML"),
        ('{"a": "\\ud800"}', (1, 10), "not YAML"),
    ],
)
def test_manifest_text_error_names_its_position(text, place, words):
    found, message = refused(text)
    assert found == place
    assert words in message
    assert message.startswith("duly.yaml")


def test_yaml_aliases_expand_up_to_a_limit_of_values():
    assert read_text("a: &x [1, 2]\nb: *x", "duly.yaml").value == {"a": [1, 2], "b": [1, 2]}
    bomb = "a0: &a0 [1, 1]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    assert f"more than {VALUES_MAX} values" in refused(bomb)[1]


def test_a_file_has_a_limit():
    assert f"larger than {FILE_BYTES_MAX} bytes" in refused("#" * (FILE_BYTES_MAX + 1))[1]
    assert f"larger than {FILE_BYTES_MAX} bytes" in refused("é" * (FILE_BYTES_MAX // 2 + 1))[1]
    assert read_text("a: 1\n" + "#" * (FILE_BYTES_MAX - 5), "duly.yaml").value == {"a": 1}


def test_json_is_read_too_with_its_tabs_and_its_escapes():
    document = read_text('{\n\t"a":\t"\\ud83d\\ude00\\/\\n",\n\t"b": [1, null]\n}\n', "duly.json")
    assert document.value == {"a": "😀/\n", "b": [1, None]}
    assert document.places[("b",)] == (3, 2)


_texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20) | st.sampled_from(
    [
        "yes",
        "1e3",
        "~",
        "null",
        "012",
        "1_0",
        "=",
        "<<",
        "2026-01-01",
        "a: b",
        "- a",
        "",
        " x ",
        "é\n\nb",
        "0x1f",
        "-1",
        "%",
    ]
)
_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_texts, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(_texts, _values, max_size=5))
def test_written_manifest_text_reads_back_to_the_same_value(value):
    assert read_text(write_text(value), "duly.yaml").value == value

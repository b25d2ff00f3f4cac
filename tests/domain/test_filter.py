"""The filter grammar: what is read, and how what cannot be read is refused."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.domain.jobs.filter import (
    DEAD,
    JOBS,
    LENGTH_MAX,
    RUNS,
    TERMS_MAX,
    VALUES_MAX,
    Filter,
    InvalidFilter,
    Span,
    parse,
)

NOVEMBER = datetime(2026, 11, 1, tzinfo=UTC)
STEP = timedelta(microseconds=1)


class TestReading:
    def test_terms_are_joined_by_and(self):
        assert parse('state:paused AND queue:mail AND created_at>"2026-11-01"', JOBS) == Filter(
            words={"state": ("paused",), "queue": ("mail",)}, moments={"created_at": Span(NOVEMBER + STEP)}
        )

    @pytest.mark.parametrize("text", ["", "   ", "\t\n"])
    def test_nothing_asks_for_everything(self, text):
        assert parse(text, JOBS).is_empty

    def test_a_list_is_any_of_them(self):
        assert parse('queue:(mail, "my reports" ,mail)', RUNS).words == {"queue": ("mail", "my reports")}

    def test_repeated_filter_field_requires_both_conditions(self):
        assert parse("queue:(a,b) AND queue:(b,c)", RUNS).words == {"queue": ("b",)}
        assert parse("queue:a AND queue:b", RUNS).words == {"queue": ()}

    def test_a_quoted_word_may_hold_anything(self):
        assert parse(r'reason:"a \"b\" AND c:(d)*"', DEAD).words == {"reason": ('a "b" AND c:(d)*',)}

    def test_an_asterisk_is_all_that_begin_so(self):
        assert parse("name:report*", JOBS).beginnings == {"name": "report"}
        assert parse("name:report* AND name:report-7*", JOBS).beginnings == {"name": "report-7"}
        assert parse("name:a* AND name:b*", JOBS).words == {"name": ()}

    def test_tags_are_all_of_the_single_ones_and_one_of_a_list(self):
        found = parse("tag:a AND tag:b AND tag:(c,d)", JOBS)

        assert (found.tags, found.any_tags) == (("a", "b"), ("c", "d"))

    @pytest.mark.parametrize(
        ("text", "span"),
        [
            ("due_at>2026-11-01", Span(NOVEMBER + STEP)),
            ("due_at>=2026-11-01", Span(NOVEMBER)),
            ("due_at<2026-11-01", Span(None, NOVEMBER)),
            ("due_at<=2026-11-01T01:00:00+01:00", Span(None, NOVEMBER + STEP)),
            ('due_at>="2026-10-01" AND due_at>=2026-11-01T00:00:00Z', Span(NOVEMBER)),
            ('due_at>=2026-11-01 AND due_at<"2026-11-02"', Span(NOVEMBER, NOVEMBER + timedelta(days=1))),
        ],
    )
    def test_moments_make_a_span(self, text, span):
        assert parse(text, RUNS).moments == {"due_at": span}

    def test_a_flag_asks_for_one_word_more(self):
        assert Filter().only("queue", None).is_empty
        assert parse("queue:(a,b)", RUNS).only("queue", "b").words == {"queue": ("b",)}
        assert parse("tag:a", RUNS).only("tag", "b").tags == ("a", "b")


REFUSED = {
    "queu:mail": ("FILTER_FIELD", (0, 4), "queue"),
    "state:actve": ("FILTER_VALUE", (6, 11), "state:active"),
    'queue:"mail': ("FILTER_SYNTAX", (6, 11), "quote"),
    "queue:": ("FILTER_SYNTAX", (6, 7), "queue:mail"),
    "queue": ("FILTER_SYNTAX", (5, 6), "queue:mail"),
    "handler:app:hello": ("FILTER_SYNTAX", (11, 12), '"app:hello"'),
    "queue:a queue:b": ("FILTER_SYNTAX", (8, 13), "AND"),
    "queue:a OR queue:b": ("FILTER_SYNTAX", (8, 10), "queue:(mail,reports)"),
    "queue:a AND": ("FILTER_SYNTAX", (11, 12), None),
    "queue:(a,": ("FILTER_SYNTAX", (9, 10), "queue:(mail,reports)"),
    "queue:(a b)": ("FILTER_SYNTAX", (9, 10), "queue:(mail,reports)"),
    "queue>mail": ("FILTER_OPERATOR", (5, 6), "queue:mail"),
    "created_at:2026-11-01": ("FILTER_OPERATOR", (10, 11), 'created_at>"2026-11-01"'),
    "created_at>soon": ("FILTER_MOMENT", (11, 15), "created_at>"),
    'created_at>"2026-11-01T09:00:00"': ("FILTER_MOMENT", (11, 32), "created_at>"),
    "name:re*port": ("FILTER_VALUE", (5, 12), 'name:"re*port"'),
    "name:(a*,b)": ("FILTER_VALUE", (6, 8), 'name:"a*"'),
    "queue:ma*": ("FILTER_VALUE", (6, 9), 'queue:"ma*"'),
    'queue:"a\nb"': ("FILTER_VALUE", (6, 11), None),
    "tag:(a,b) AND tag:(c,d)": ("FILTER_TERMS", (19, 20), "tag:(a,b)"),
}


class TestRefusing:
    @pytest.mark.parametrize("text", REFUSED)
    def test_filter_refusal_has_a_code_a_span_and_a_hint(self, text):
        code, span, hint = REFUSED[text]

        with pytest.raises(InvalidFilter) as refused:
            parse(text, JOBS)

        error = refused.value
        assert (error.code, error.span) == (code, span)
        assert hint is None or (error.hint is not None and hint in error.hint)
        assert error.as_json()["span"] == list(span)

    def test_an_id_that_is_none_is_refused(self):
        with pytest.raises(InvalidFilter, match="not an id"):
            parse("job_id:7", RUNS)

    def test_a_field_of_another_kind_is_unknown_here(self):
        with pytest.raises(InvalidFilter, match="no field 'buried_at' here; known: state"):
            parse("buried_at>2026-11-01", RUNS)

    def test_length_terms_and_values_are_bounded(self):
        parse("queue:" + "x" * (LENGTH_MAX - 6), JOBS)
        parse(" AND ".join(["queue:x"] * TERMS_MAX), JOBS)
        parse(f"queue:({','.join(['x'] * VALUES_MAX)})", JOBS)

        for text, code in (
            ("queue:" + "x" * (LENGTH_MAX - 5), "FILTER_LENGTH"),
            (" AND ".join(["queue:x"] * (TERMS_MAX + 1)), "FILTER_TERMS"),
            (f"queue:({','.join(['x'] * (VALUES_MAX + 1))})", "FILTER_TERMS"),
        ):
            with pytest.raises(InvalidFilter) as refused:
                parse(text, JOBS)
            assert refused.value.code == code


PIECES = st.sampled_from(
    [*JOBS, *RUNS, ":", "(", ")", ",", ">", "<=", '"', "\\", " ", "AND", "OR", "*", "mail", "2026-11-01", "\0", "é"]
)


@given(st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=60))
def test_filter_text_parses_or_is_refused_with_a_span_inside_it(text):
    try:
        parse(text, JOBS)
    except InvalidFilter as error:
        start, end = error.span
        assert 0 <= start < end <= len(text) + 1

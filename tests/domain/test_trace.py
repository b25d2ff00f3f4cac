from uuid import UUID

import pytest

from duly.domain.runs.trace import ATTEMPT, CLAIM, STAGE, SUBMIT, WEBHOOK, Trace, read_traceparent, trace_of

RUN, OTHER = UUID(int=7), UUID(int=8)
GIVEN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_every_process_computes_the_same_ids():
    assert trace_of(RUN, is_one_shot=True) == trace_of(RUN, is_one_shot=True)
    assert trace_of(RUN, is_one_shot=True).trace_id != trace_of(OTHER, is_one_shot=True).trace_id


def test_each_span_of_a_run_has_an_id_of_its_own_and_each_fence_another():
    trace = trace_of(RUN, is_one_shot=True)
    ids = [trace.span_id(kind, fence) for kind in (SUBMIT, STAGE, CLAIM, ATTEMPT, WEBHOOK) for fence in (0, 1, 2)]
    assert len(set(ids)) == len(ids)
    assert all(0 < one < 2**64 for one in ids)


def test_a_one_shot_continues_the_trace_of_its_caller():
    trace = trace_of(RUN, is_one_shot=True, traceparent=GIVEN)
    assert trace.trace_id == 0x4BF92F3577B34DA6A3CE929D0E0E4736
    assert trace.parent is not None
    assert trace.parent.span_id == 0x00F067AA0BA902B7
    assert trace.root == trace.span_id(SUBMIT)


def test_a_run_of_a_schedule_is_linked_to_its_caller():
    trace = trace_of(RUN, is_one_shot=False, traceparent=GIVEN)
    assert trace.parent is None
    assert trace.link == read_traceparent(GIVEN)
    assert trace.trace_id != 0x4BF92F3577B34DA6A3CE929D0E0E4736
    assert trace.root == trace.span_id(STAGE)


@pytest.mark.parametrize(
    "text", ["", "x", "00-0-0-01", "00-zz-00f067aa0ba902b7-01", "00-" + "0" * 32 + "-00f067aa0ba902b7-01"]
)
def test_an_unreadable_traceparent_is_none(text):
    assert read_traceparent(text) is None
    assert trace_of(RUN, is_one_shot=True, traceparent=text).parent is None


@pytest.mark.parametrize(("flags", "is_sampled"), [("01", True), ("00", False), ("03", True)])
def test_the_caller_decides_whether_a_trace_is_sent(flags, is_sampled):
    trace = trace_of(RUN, is_one_shot=True, traceparent=GIVEN[:-2] + flags)
    assert trace.is_sampled(0.0) is trace.is_sampled(1.0) is is_sampled


def test_a_part_of_the_other_traces_is_sent():
    sent = sum(trace_of(UUID(int=number), is_one_shot=True).is_sampled(0.25) for number in range(4_000))
    assert 800 < sent < 1_200
    assert trace_of(RUN, is_one_shot=True).is_sampled(1.0)
    assert not trace_of(RUN, is_one_shot=True).is_sampled(0.0)


def test_a_receiver_gets_a_traceparent_that_can_be_read():
    trace: Trace = trace_of(RUN, is_one_shot=True, traceparent=GIVEN)
    read = read_traceparent(trace.traceparent(trace.span_id(WEBHOOK, 3), 1.0))
    assert read is not None
    assert (read.trace_id, read.span_id, read.is_sampled) == (trace.trace_id, trace.span_id(WEBHOOK, 3), True)

"""Queues with weights, as a person writes them."""

import pytest

from duly.domain.errors import InvalidOption
from duly.domain.limits.queue_weight import read_queue, read_queues


@pytest.mark.parametrize(
    ("text", "read"),
    [("bulk", ("bulk", 1)), ("critical=5", ("critical", 5)), ("a=b=100", ("a=b", 100)), (" mail =1", ("mail", 1))],
)
def test_a_queue_and_its_weight(text, read):
    assert read_queue(text) == read


@pytest.mark.parametrize("text", ["mail=0", "mail=101", "mail=", "mail=-1", "mail=x", "mail=1.5", "mail=٣"])
def test_a_weight_that_is_none_is_refused(text):
    with pytest.raises(InvalidOption, match="a weight from 1 to 100"):
        read_queue(text)


@pytest.mark.parametrize("text", ["", "=5", "a\nb"])
def test_a_queue_without_a_name_is_refused(text):
    with pytest.raises(InvalidOption, match="is not a name"):
        read_queue(text)


def test_they_keep_their_order_and_the_last_word_counts():
    assert list(read_queues(["b=2", "a", "b=3"]).items()) == [("b", 3), ("a", 1)]

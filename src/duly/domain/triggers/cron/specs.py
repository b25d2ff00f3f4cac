"""The six fields of a cron expression: the range and names of each, and the masks of values that they can hold."""

from __future__ import annotations

import msgspec

_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


class Spec(msgspec.Struct, frozen=True):
    """One of the six fields: `key` is its name in a hash, `title` its name in a sentence."""

    key: str
    title: str
    low: int
    high: int
    names: dict[str, int]
    hash_high: int

    @property
    def written_high(self) -> int:
        """The highest number that may be written: 7 is Sunday again."""
        return 7 if self.key == "dow" else self.high


def _spec(
    key: str, title: str, low: int, high: int, names: list[str] | None = None, hash_high: int | None = None
) -> Spec:
    numbers = {name: low + index for index, name in enumerate(names or [])}
    return Spec(key, title, low, high, numbers, high if hash_high is None else hash_high)


SECOND = _spec("second", "second", 0, 59)
MINUTE = _spec("minute", "minute", 0, 59)
HOUR = _spec("hour", "hour", 0, 23)
# A hash keeps to the days that every month has.
DAY_OF_MONTH = _spec("dom", "day of month", 1, 31, hash_high=28)
MONTH = _spec("month", "month", 1, 12, _MONTHS)
DAY_OF_WEEK = _spec("dow", "day of week", 0, 6, _WEEKDAYS)
FIELDS = (SECOND, MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK)

LAST = 0  # In `nears`: the last weekday. In `weekdays_of_month`: the last one of its kind.


class Term(msgspec.Struct, frozen=True):
    """One item of a list; most are only a mask."""

    mask: int = 0
    last: int | None = None
    near: int | None = None
    weekday_of_month: tuple[int, int] | None = None
    step: int = 1
    is_uneven: bool = False


class Field(msgspec.Struct, frozen=True):
    """A parsed field: plain values as bits, special terms as sorted tuples.

    `lasts` counts days before the last, `nears` names days whose nearest weekday is meant, and `weekdays_of_month`
    holds (weekday, which one of the month).
    """

    mask: int = 0
    lasts: tuple[int, ...] = ()
    nears: tuple[int, ...] = ()
    weekdays_of_month: tuple[tuple[int, int], ...] = ()
    is_star: bool = False
    is_free: bool = False
    uneven_steps: tuple[int, ...] = ()


def mask_of(low: int, high: int, step: int = 1) -> int:
    """Set the bits from `low` to `high`, every `step`-th."""
    return sum(1 << value for value in range(low, high + 1, step))


def folded(spec: Spec, mask: int) -> int:
    """Read Sunday written as 7 as 0."""
    return (mask | mask >> 7) & 0x7F if spec.key == "dow" else mask


def is_uneven(spec: Spec, low: int, step: int) -> bool:
    """Return whether the last step before the field starts again differs from the others."""
    if step == 1:
        return False
    return spec is DAY_OF_MONTH or (spec.high - spec.low + 1) % step != 0 or low - spec.low >= step

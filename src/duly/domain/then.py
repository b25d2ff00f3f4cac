"""Who is told of the end of a run: of every end, of burials alone, or both.

A URL is sent a signed webhook; another job is triggered, and finds the outcome in the field `event` of its payload.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from duly.domain.errors import InvalidOption
from duly.domain.job_name import check_name

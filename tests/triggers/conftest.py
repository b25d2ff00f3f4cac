"""Tests of triggers look at no zone files but those of the pinned package."""

import zoneinfo

zoneinfo.reset_tzpath(to=())
zoneinfo.ZoneInfo.clear_cache()

"""Maintenance: the reaper, vacuum of the hot boxes, partitions and retention."""

"""What keeps the house in order: the reaper, vacuum of the hot boxes, partitions and retention."""

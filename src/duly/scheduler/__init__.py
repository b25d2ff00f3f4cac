"""The loop that decides when: it stages what falls due, for the shards it holds."""

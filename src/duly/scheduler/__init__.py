"""The scheduler: stages runs that are about to be due, for the shards it holds."""

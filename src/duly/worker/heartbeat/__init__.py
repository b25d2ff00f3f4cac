"""The heartbeat of a worker, in a process of its own."""

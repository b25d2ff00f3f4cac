"""Running handlers: on the loop, in threads, in child processes."""

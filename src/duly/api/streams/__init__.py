"""Streams of server-sent events: runs and jobs that change, and logs."""

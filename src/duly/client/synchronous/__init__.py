"""The client for programs without an event loop, made from the one with: see scripts/sync_client.py."""

"""The asynchronous client. The synchronous one is generated from it: see scripts/sync_client.py."""

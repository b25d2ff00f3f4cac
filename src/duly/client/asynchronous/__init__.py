"""The client for programs with an event loop. The one without is made from it: see scripts/sync_client.py."""

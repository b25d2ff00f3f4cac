"""The client for programs without an event loop, made from the one with: see tests/client/twins.py."""

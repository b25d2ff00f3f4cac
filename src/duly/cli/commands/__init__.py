"""The commands: their requests, and what they print of the responses."""

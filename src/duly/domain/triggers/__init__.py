"""Triggers: pure rules that give the next scheduled moment. Fixed-rate intervals and one-shots live here so far."""

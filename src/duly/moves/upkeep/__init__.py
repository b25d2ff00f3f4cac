"""Moves that no caller asks for: the scheduler and maintenance make them."""

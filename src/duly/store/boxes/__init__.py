"""Boxes: the tables that a run moves through, one module each."""

"""Moves of workflows and their nodes."""

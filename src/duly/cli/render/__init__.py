"""Rendering: tables, JSON and sentences."""

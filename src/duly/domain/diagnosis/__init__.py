"""Diagnosis: explain, doctor and the figures that people read."""

"""The HTTP door: health and metrics. Imports nothing by itself, so that other doors can read beside it."""

"""The HTTP API. Imports nothing by itself, so that health and metrics can be read without its routes."""

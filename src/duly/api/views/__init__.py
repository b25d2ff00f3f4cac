"""Runs, jobs and the state of the installation as responses show them."""

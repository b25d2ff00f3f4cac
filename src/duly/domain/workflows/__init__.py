"""Workflows: the graph, its references, and its nodes as responses show them."""

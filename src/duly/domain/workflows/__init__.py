"""Workflows: the graph, its references and its nodes as they are shown."""

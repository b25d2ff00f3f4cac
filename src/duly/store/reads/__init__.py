"""Reads across the boxes: lists, explanations, figures and streams."""

"""Time zones."""

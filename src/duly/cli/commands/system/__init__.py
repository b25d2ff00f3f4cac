"""Commands about this installation: its database, its settings, its shell."""

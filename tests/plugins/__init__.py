"""Our own pytest plugins."""

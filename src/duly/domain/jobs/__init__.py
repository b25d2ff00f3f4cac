"""Jobs: their definition, files of them, plans and filters."""

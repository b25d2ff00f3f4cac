"""Jobs: definitions, files of schedules, plans and filters."""

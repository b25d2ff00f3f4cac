"""Reading requests strictly, and describing them as JSON Schema."""

"""Break the engine on purpose, one line at a time: a test must notice. The power of the tests is measured, not believed."""

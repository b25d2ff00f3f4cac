"""The schema: migrations, functions, and the runner that applies them."""

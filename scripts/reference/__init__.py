"""The generated pages of docs/reference: `python -m scripts.reference` writes them, and a test fails when one is stale."""

"""The description of the API, as OpenAPI."""

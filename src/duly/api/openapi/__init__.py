"""The description of the API: OpenAPI for machines, one page of HTML for people."""

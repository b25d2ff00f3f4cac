"""The shapes that cross HTTP: requests, which are read strictly, responses, and their schemas."""

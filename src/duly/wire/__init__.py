"""The shapes that cross HTTP: what is read strictly, what is written, and how both are described."""

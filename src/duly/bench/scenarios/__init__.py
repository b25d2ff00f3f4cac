"""One file a scenario: its options with the defaults of the published figures, and `measure`, which gives the result."""

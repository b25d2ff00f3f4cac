"""The domain: frozen values and pure rules, without I/O and without a clock."""

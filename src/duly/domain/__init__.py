"""What we know: frozen values and pure rules, with no I/O and no clock."""

"""Jobs as they cross HTTP."""

"""The commands: what each asks for, and what it says of the answer."""

"""Flags, arguments and filters of the command line, parsed and checked."""

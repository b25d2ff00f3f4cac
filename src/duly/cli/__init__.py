"""The command line, and where the parts are built and wired."""

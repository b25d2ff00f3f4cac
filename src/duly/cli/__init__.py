"""The command line, and the place where the parts are built and wired."""

"""The command line: the door for people, and the place where the parts are built and wired."""

"""What is typed: flags, arguments and filters, read and checked."""

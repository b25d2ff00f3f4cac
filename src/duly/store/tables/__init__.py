"""Tables beside the boxes, one module each."""

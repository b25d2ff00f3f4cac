"""The worker: claims runs, holds them until they are due, executes and settles them."""

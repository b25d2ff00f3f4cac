"""`duly up`, and the roles that run alone: `api`, `scheduler` and `worker`."""

"""The store: the only SQL. One file a box in `sql/`, one function a statement."""

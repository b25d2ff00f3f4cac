"""Moves: the transitions of a run, one verb a file. Each move is one transaction, guarded by the rows it deletes."""

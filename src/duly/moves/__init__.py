"""What happens to a run: one verb a file. Each move is one transaction, guarded by what it deletes."""

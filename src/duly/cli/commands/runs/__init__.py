"""`duly run`, `duly runs` and `duly dead`: runs, their logs, and explanations of their state."""

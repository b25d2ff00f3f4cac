"""`duly run`, `duly runs` and `duly dead`: runs, their logs, and why they are where they are."""

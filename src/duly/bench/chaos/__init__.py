"""`duly chaos`: an installation that is struck at random, and judged from inside and outside."""

"""`duly jobs`: schedules, and what is done with them."""

"""The door for Python programs: apps, handlers, and handles on what was submitted. Users import it all from `duly`."""

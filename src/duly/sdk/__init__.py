"""The SDK for Python programs: apps, handlers, and handles on submitted work. Users import it all from `duly`."""

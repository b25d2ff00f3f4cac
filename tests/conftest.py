"""What every test shares."""

pytest_plugins = ["tests.plugins.budget"]

"""What is shown: tables, JSON and sentences."""

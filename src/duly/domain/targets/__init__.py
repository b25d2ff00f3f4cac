"""Targets: functions, webhooks, commands, containers, and the destinations of webhooks."""

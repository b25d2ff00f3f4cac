"""Notifications: channels that receive them, rules that choose them, and the message of a delivery."""

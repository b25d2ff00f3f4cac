"""Measurements that need more than Duly: other systems, installed for the purpose."""

"""Measuring Duly on this machine: each scenario on a scratch database, with processes of its own, beside a bare baseline."""

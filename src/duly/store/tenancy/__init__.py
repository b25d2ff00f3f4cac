"""Tables of tenants: keys, browser sessions, audit entries, stored answers and sealed secrets."""

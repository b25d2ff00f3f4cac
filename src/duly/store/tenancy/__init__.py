"""Tables of tenants: keys, browser sessions, audit entries, stored responses and sealed secrets."""

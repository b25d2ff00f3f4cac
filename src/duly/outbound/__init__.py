"""Every call that leaves for an address a tenant named: the guard, the signature, the transport. Nobody else makes one."""

"""The HTTP server: sockets, connections and bytes, before a request is routed."""

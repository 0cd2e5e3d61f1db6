"""Exchanges, bindings, routes and the topology of a virtual host."""

"""Protocols: roles that exchange messages."""

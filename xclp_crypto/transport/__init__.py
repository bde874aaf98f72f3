"""Drivers that run roles, and what they measure."""

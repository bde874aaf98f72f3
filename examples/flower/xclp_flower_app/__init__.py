"""The example app: roles of the library, and digits for nodes that are simulated."""

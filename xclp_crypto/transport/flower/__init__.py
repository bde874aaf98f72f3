"""Roles over Flower's messages; needs the extra ``flower``.

`records` is how questions and answers of `xclp_crypto.transport.questions` lie in Flower's
messages, `nodes` asks the nodes of a grid for a server's role, and `context` is what a node keeps
between two questions, as Flower starts a process for each.
"""

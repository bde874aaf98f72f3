"""Secure means of model updates in Flower apps, in place of SecAgg+; needs the extra ``flower``.

::

    # client.py                                           # server.py
    from xclp_crypto.flower.client import SecureMeanMod   from xclp_crypto.flower.server import …
    app = ClientApp(mods=[SecureMeanMod()])               strategy.start(SecureMeanGrid(grid), …)

    # or, in apps with a client_fn and a DefaultWorkflow
    app = ClientApp(client_fn, mods=[SecureMeanMod()])
    DefaultWorkflow(fit_workflow=SecureMeanWorkflow())

`records` is what lies in Flower's messages beside the questions and answers of
`xclp_crypto.transport.flower`. See docs/do/deployment.md.
"""

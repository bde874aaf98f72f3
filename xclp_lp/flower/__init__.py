"""Algorithm 1 over Flower: a ServerApp and a ClientApp. Needs the extra ``flower``.

::

    # app/server.py                                  # app/client.py
    from xclp_lp.flower.server import server_app     from xclp_lp.flower.client import client_app
    app = server_app()                               app = client_app()

`settings` is what the configurations of run and node say; messages are carried by
`xclp_crypto.transport.flower`. See docs/do/deployment.md.
"""

"""Algorithm 1 over Flower: a ServerApp and a ClientApp. Needs the extra ``flower``.

::

    # app/server.py                                  # app/client.py
    from xclp_lp.flower.server import server_app     from xclp_lp.flower.client import client_app
    app = server_app()                               app = client_app()

`settings` is what the configurations of run and node say, `records` how questions and answers of
`xclp_crypto.transport.questions` lie in Flower's messages. See docs/do/deployment.md.
"""

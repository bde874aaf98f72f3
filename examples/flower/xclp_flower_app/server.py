"""The ServerApp."""

from xclp_lp.flower.server import server_app

app = server_app()

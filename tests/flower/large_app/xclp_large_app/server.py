"""The ServerApp."""

from xclp_large_app import report_peak, server_role
from xclp_lp.flower import server

server.server_role = server_role
app = server.server_app()
report_peak("ServerApp")

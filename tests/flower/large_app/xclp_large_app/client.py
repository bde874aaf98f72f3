"""The ClientApp."""

from xclp_large_app import client_role, report_peak
from xclp_lp.flower import client

client.client_role = client_role
app = client.client_app()
report_peak("ClientApp")

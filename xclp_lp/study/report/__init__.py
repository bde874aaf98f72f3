"""Reports for people: one HTML file that asks no host for anything, and its pictures as PNG.

Needs the extra ``report`` (``pip install 'xclp[report]'``), and takes a second to load, so nothing
else imports it unless a report is asked for.
"""

from importlib.util import find_spec

from xclp_crypto.errors import ParameterError

if missing := [name for name in ("jinja2", "matplotlib") if find_spec(name) is None]:
    raise ParameterError(
        f"reports need {' and '.join(missing)}; install with: pip install 'xclp[report]'"
    )

from xclp_lp.study.report.build import demo_report, experiment_report, run_report
from xclp_lp.study.report.page import Report
from xclp_lp.study.report.training import training_report

__all__ = ["Report", "demo_report", "experiment_report", "run_report", "training_report"]

"""``python -m xclp_lp`` is the command ``xclp``."""

from xclp_lp.cli.main import main

main()

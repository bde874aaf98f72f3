"""``python -m xclp_lp`` is the command ``xclp``."""

from xclp_lp.cli import main

main()

# PYTHON_ARGCOMPLETE_OK
"""``python -m orchestrator``."""

import sys

if __name__ == "__main__":
    from orchestrator.hidden import hidden

    if hides := hidden():  # before any module that imports them
        sys.exit(hides)
    from orchestrator.cli import entry

    entry()

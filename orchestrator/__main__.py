# PYTHON_ARGCOMPLETE_OK
"""``python -m orchestrator``."""

from orchestrator.cli import entry

if __name__ == "__main__":
    entry()

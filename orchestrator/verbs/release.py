"""``release``: end what a run has left for the next one."""

import argparse
import sys


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments: it has none."""


def execute(arguments: argparse.Namespace) -> int:
    """End the kept Ray and its workers, and say what they held."""
    from orchestrator.kept import release
    from orchestrator.kept_now import holding

    use = release()
    held = f": {holding(use.devices.values())}" if use and use.devices else ""
    sys.stdout.write(f"ended{held}\n" if use else "nothing is kept\n")
    return 0

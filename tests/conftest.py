"""Settings that hold for all tests."""

import os

# Ray reads these when it is first imported. A token in the environment keeps it from writing one to the home directory.
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN", "0" * 64)
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

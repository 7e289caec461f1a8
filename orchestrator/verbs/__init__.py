"""The verbs of the command line, one a file: ``configure(parser)`` and ``execute(arguments)``."""

from collections.abc import Mapping
from types import MappingProxyType

VERBS: Mapping[str, str] = MappingProxyType(
    {
        "run": "plan, measure, rank, print and write a sweep (the default verb)",
        "plan": "say what a sweep would measure, skip and cost; starts nothing",
        "rank": "rank a run again from its shards and print the tables",
        "status": "say how far a run is and what failed",
        "check": "judge a model's shape by the rules for GPUs, and name the nearest values that pass",
        "explain": "say why a Gemm or a run's candidates take their time, and how far to believe it",
        "doctor": "look at every node and GPU that a sweep would use, and name what would spoil it",
        "report": "draw up runs as one HTML file to look at, as Markdown, or as a single plot",
        "compare": "set runs and published tables beside each other, and find what got slower",
        "capacity": "plan a model on GPUs: GEMM time, tokens/s, GPUs needed and their cost, from what was measured",
        "layer": "time the components of a transformer layer on this machine's GPU, with and without FlashAttention",
        "export": "write what was measured in the format of another tool, or as CSV",
        "compact": "merge a run's thousands of shards into few files with the same rows",
        "upload": "send what a store lacks of a run that was measured for it",
        "release": "end the Ray and the workers that a run with --keep has left on this host",
    }
)
"""Name and one line of help. A verb's module is imported only when it is used: ``--help`` stays fast."""

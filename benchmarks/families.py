"""The Families that the benchmarks measure, made by the product's own expansion."""

from orchestrator.config import compose
from orchestrator.schema import Config
from orchestrator.space import expand_space
from tasks.family import Bundle

TABLE = (
    "space.roles=mlp_up",
    "space.h=4096",
    "space.batch=4",
    "space.seq=2048",
    "space.dtype=fp16",
    "space.tp=1,2,4,8",
)
"""The 25-candidate table: d_ff from 10240 to 11776 in steps of 64, M = 8192, h = 4096, tp 1 to 8."""

SEED = ("space.roles=seed_bmm", "space.h=4096", "space.tp=1", "space.batch=4", "space.dtype=fp16")
"""The seed's question: h = 4096, batch 4, d_ff = 10922 ± 100 in steps of 4."""

TOKENS = ("space.roles=attn_out", "space.around=batch", "space.tp=1", "space.dtype=bf16")
TOKENS_OF = {
    "all": ("space.h=4096", "space.a=32", "space.seq=256", "space.batch={start: 1, stop: 80, step: 1}"),
    "small": ("space.h=256", "space.a=4", "space.seq=16", "space.batch={start: 1, stop: 8, step: 1}"),
}
"""M = 256 to 20480 in steps of 256, N = K = 4096: those that the MAMF finder is started with; and few small ones."""


def table(*overrides: str) -> tuple[Config, tuple[Bundle, ...]]:
    """The 25-candidate table as one Bundle per tp."""
    return sweep(*TABLE, "space.d_ff={start: 10240, stop: 11776, step: 64}", *overrides)


def seed(*overrides: str) -> tuple[Config, tuple[Bundle, ...]]:
    """The seed's question as one Bundle."""
    return sweep(*SEED, *overrides)


def tokens(shapes: str = "all", *overrides: str) -> tuple[Config, tuple[Bundle, ...]]:
    """The shapes that differ in M as one Bundle."""
    return sweep(*TOKENS, *TOKENS_OF[shapes], *overrides)


def sweep(*overrides: str) -> tuple[Config, tuple[Bundle, ...]]:
    """A configuration for any GPU, and its Bundles."""
    config = compose("auto", ["cluster.gpu=any", *overrides])
    return config, tuple(expand_space(config).bundles)

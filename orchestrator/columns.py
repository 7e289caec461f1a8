"""The Arrow schemas of a run: the columns of Shards and rankings. Their names carry units."""

import pyarrow as pa

SCHEMA_VERSION = 3
"""2: what is chosen need not be d_ff (``axis``, ``value``). 3: ``slowdown``. In older files newer columns are null."""

_POINT = [
    ("family_id", pa.string()),
    ("role", pa.string()),
    ("h", pa.int64()),
    ("tp", pa.int32()),
    ("batch", pa.int64()),
    ("seq", pa.int64()),
    ("dtype", pa.string()),
    ("d_ff", pa.int64()),
    ("baseline", pa.bool_()),
    ("mlp_params", pa.int64()),  # of one layer's MLP; null where the role is no MLP's
    ("axis", pa.string()),  # the dimension that is chosen; null in version 1: d_ff
    ("value", pa.int64()),  # of that dimension
    ("params", pa.int64()),  # weights of the block that the role is part of, all ranks
    ("passes", pa.string()),
    ("a", pa.int64()),
    ("kv", pa.int64()),
    ("head_dim", pa.int64()),
    ("v", pa.int64()),
    ("experts", pa.int64()),
    ("topk", pa.int64()),
    ("ep", pa.int64()),
    ("layers", pa.int64()),  # of the model; null where they do not count
]

SHARD_SCHEMA = pa.schema(
    [
        # of every row
        ("record", pa.string()),  # "facts": a Family's Candidate's part; "sample": one timed visit
        ("bundle_id", pa.string()),
        ("attempt", pa.int32()),
        ("uuid", pa.string()),
        ("gemm_id", pa.string()),
        # of a sample
        ("round", pa.int32()),
        ("position", pa.int32()),
        ("calls", pa.int32()),
        ("lead_calls", pa.int32()),
        ("seconds", pa.float64()),
        ("slowdown", pa.float32()),
        # of facts: the Point
        *_POINT,
        ("local_dim", pa.int64()),  # what one rank holds of the dimension that the choice aligns
        # of facts: the Gemm and how it went
        ("part", pa.string()),
        ("kind", pa.string()),
        ("b", pa.int64()),
        ("m", pa.int64()),
        ("n", pa.int64()),
        ("k", pa.int64()),
        ("layout", pa.string()),
        ("flops", pa.int64()),
        ("bytes", pa.int64()),
        ("align_m", pa.int64()),
        ("align_n", pa.int64()),
        ("align_k", pa.int64()),
        ("status", pa.string()),
        ("message", pa.string()),
        ("launch", pa.string()),
        ("kernel", pa.string()),
        ("energy_j", pa.float64()),  # of one call
        # of facts: the device
        ("device_kind", pa.string()),
        ("gpu", pa.string()),
        ("host", pa.string()),
        ("sm_count", pa.int32()),
        ("l2_bytes", pa.int64()),
        ("memory_bytes", pa.int64()),
        ("torch", pa.string()),
        ("pci_id", pa.string()),
        ("driver", pa.string()),
        ("runtime", pa.string()),
        ("blas", pa.string()),
        ("power_limit_w", pa.float64()),
        ("sm_clock_max_mhz", pa.float64()),
        ("allow_fp16_reduced_precision_reduction", pa.bool_()),
        ("allow_bf16_reduced_precision_reduction", pa.bool_()),
        # of facts: what the device did during the Bundle's rounds
        ("sm_clock_mean_mhz", pa.float64()),
        ("sm_clock_min_mhz", pa.float64()),
        ("memory_clock_mean_mhz", pa.float64()),
        ("temperature_max_c", pa.float64()),
        ("power_mean_w", pa.float64()),
        ("window_energy_j", pa.float64()),  # of all rounds
        ("power_limited", pa.bool_()),
        ("throttled", pa.bool_()),
        ("reasons", pa.list_(pa.string())),
        # of facts: how it was measured
        ("protocol", pa.string()),
        ("protocol_version", pa.int32()),
        ("l2", pa.string()),
        ("power", pa.string()),
        ("allow_tf32", pa.bool_()),
        ("tie_pct", pa.float64()),
        ("confidence", pa.float64()),
        ("looks", pa.int32()),  # points at which the rounds could have stopped: they share the error
        ("random_seed", pa.int64()),
        ("started_utc", pa.timestamp("us", tz="UTC")),
        ("prepare_s", pa.float64()),
        ("soak_s", pa.float64()),
        ("measuring_s", pa.float64()),
        ("rounds", pa.int32()),
        ("resolved", pa.bool_()),
        ("stop_reason", pa.string()),
        ("redone", pa.int32()),
        ("first_round", pa.int32()),  # samples of earlier rounds were throttled: kept, and not ranked
        ("canary", pa.int32()),  # canaries that the device had measured before; null: the sweep had none
        ("notes", pa.list_(pa.string())),
        ("code_version", pa.string()),
        ("plan_hash", pa.string()),
    ],
    metadata={"schema_version": str(SCHEMA_VERSION)},
)
"""One row per Family, Candidate and part (``record`` "facts"), then one per Sample; columns of the other are null."""

PART_TYPE = pa.struct(
    [
        ("part", pa.string()),
        ("gemm_id", pa.string()),
        ("kind", pa.string()),
        ("b", pa.int64()),
        ("m", pa.int64()),
        ("n", pa.int64()),
        ("k", pa.int64()),
        ("seconds", pa.float64()),
        ("tflops", pa.float64()),
        ("share", pa.float64()),  # of the Candidate's seconds
    ]
)

RANKING_SCHEMA = pa.schema(
    [
        ("gpu", pa.string()),
        *_POINT,
        ("rank", pa.int32()),  # null: not measured
        ("tie_group", pa.int32()),  # 1: cannot be told from the best
        ("seconds", pa.float64()),
        ("tflops", pa.float64()),
        ("relative", pa.float64()),  # cost per FLOP over the best's
        ("relative_low", pa.float64()),
        ("relative_high", pa.float64()),
        ("speedup", pa.float64()),  # the baseline's cost per FLOP over this one's
        ("speedup_low", pa.float64()),
        ("speedup_high", pa.float64()),
        ("p5_s", pa.float64()),
        ("p25_s", pa.float64()),
        ("p75_s", pa.float64()),
        ("p95_s", pa.float64()),
        ("samples", pa.int64()),
        ("rounds", pa.int32()),
        ("cv", pa.float64()),
        ("align_local", pa.int64()),
        ("local_dim", pa.int64()),
        ("parts", pa.list_(PART_TYPE)),
        ("sm_clock_mean_mhz", pa.float64()),
        ("sm_clock_min_mhz", pa.float64()),
        ("temperature_max_c", pa.float64()),
        ("power_mean_w", pa.float64()),
        ("energy_j", pa.float64()),  # of one call of every part
        ("power_limited", pa.bool_()),
        ("throttled", pa.bool_()),
        ("resolved", pa.bool_()),
        ("stop_reason", pa.string()),
        ("launch", pa.string()),
        ("status", pa.string()),
        ("message", pa.string()),
        ("protocol", pa.string()),
        ("protocol_version", pa.int32()),
        ("l2", pa.string()),
        ("power", pa.string()),
        ("devices", pa.list_(pa.string())),
    ],
    metadata={"schema_version": str(SCHEMA_VERSION)},
)
"""One row per Point per GPU model, best first within its Family."""

"""How well the model fits: near 1 where costs follow it, nothing where they are noise."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from orchestrator.explained_run import MeasuredCandidate, MeasuredFamily, MeasuredPart
from orchestrator.explanation import Gpu, Measured
from orchestrator.fit import ALIGNED, ALL, Fit, correlation, fits
from orchestrator.tiles import cost
from tasks.gemm import Gemm

H200 = Gpu(name="NVIDIA H200", sms=132, spec=None)
WIDTHS = range(1000, 3000, 40)
Cost = Callable[[Gemm], float]


def family(
    costs: Cost, values: Sequence[int] = WIDTHS, *, role: str = "mlp_up", tp: int = 1, m: int = 4096, gpu: Gpu = H200
) -> MeasuredFamily:
    gemms = [Gemm(kind="mm", b=1, m=m, n=value, k=1024, dtype="fp16", layout="nt") for value in values]
    found = [costs(gemm) for gemm in gemms]
    candidates = tuple(
        MeasuredCandidate(
            value=gemm.n,
            baseline=False,
            relative=each / min(found),
            parts=(MeasuredPart(name="up", gemm=gemm, measured=Measured(seconds=1.0, tflops=1.0, kernel=None)),),
        )
        for gemm, each in zip(gemms, found, strict=True)
    )
    return MeasuredFamily(gpu=gpu, family_id=f"{role}-m{m}", role=role, tp=tp, axis="d_ff", candidates=candidates)


def model(gemm: Gemm) -> float:
    return cost([gemm], 132)


def noise(seed: int) -> Cost:
    random = np.random.default_rng(seed)
    return lambda gemm: float(np.exp(0.1 * random.standard_normal()))


def noisy(seed: int) -> Cost:
    random = np.random.default_rng(seed)
    return lambda gemm: model(gemm) * float(np.exp(0.05 * random.standard_normal()))


def one(*families: MeasuredFamily, which: str = ALL) -> Fit:
    (found,) = (fit for fit in fits(families) if fit.which == which)
    return found


def test_costs_that_follow_the_model_are_explained() -> None:
    found = one(family(model))
    assert found.pearson is not None
    assert found.rank is not None
    assert found.jumps is not None
    assert found.pearson.value == pytest.approx(1.0)
    assert found.rank.value == pytest.approx(1.0)
    assert found.jumps.value == pytest.approx(1.0)
    assert found.predicted_spread == pytest.approx(found.measured_spread)
    assert found.verdict == "explains 100%"


def test_a_little_noise_leaves_the_relation() -> None:
    found = one(family(noisy(1)))
    assert found.pearson is not None
    assert 0.9 < found.pearson.low < found.pearson.value < found.pearson.high < 1.0
    assert found.verdict.startswith("explains 9")


def test_noise_is_no_relation() -> None:
    verdicts = [one(family(noise(seed))).verdict for seed in range(100)]
    # one in twenty is told from 0 by chance
    assert verdicts.count("no relation") >= 88


def test_the_model_turned_round_is_the_wrong_way() -> None:
    found = one(family(lambda gemm: 1 / model(gemm)))
    assert found.pearson is not None
    assert found.pearson.value == pytest.approx(-1.0)
    assert found.verdict == "wrong way"


def test_what_families_have_in_common_explains_nothing() -> None:
    """Two Families, one dear by the model and as measured: within each the costs are noise."""
    dear = family(noise(3), range(1000, 1100, 2), m=130)
    cheap = family(noise(4), range(1000, 1100, 2), m=128 * 132)
    assert model(dear.candidates[0].gemms[0]) > 1.3 * model(cheap.candidates[0].gemms[0])
    found = one(dear, cheap)
    assert (found.families, found.pairs) == (2, 100)
    assert found.verdict == "no relation"


def test_where_only_k_is_chosen_the_model_finds_all_alike() -> None:
    same = family(noise(5), [1024] * 20)
    found = one(same)
    assert (found.pearson, found.rank, found.jumps, found.verdict) == (None, None, None, "all alike")


def test_few_candidates_say_nothing() -> None:
    found = one(family(model, range(1000, 1280, 40)))
    assert (found.pairs, found.pearson, found.verdict) == (7, None, "too few")


def test_rows_that_are_not_aligned_hide_what_the_model_knows() -> None:
    """Every second Candidate has rows of no whole 16 bytes, and takes thrice as long."""
    values = [value for width in range(1000, 3000, 80) for value in (width, width + 4)]
    mixed = family(lambda gemm: model(gemm) * (1 if gemm.n % 8 == 0 else 3), values)
    assert one(mixed).verdict != "explains 100%"
    found = one(mixed, which=ALIGNED)
    assert (found.pairs, found.verdict) == (25, "explains 100%")


def test_roles_sizes_and_gpus_are_kept_apart_and_a_cpu_has_no_tiles() -> None:
    other = Gpu(name="NVIDIA A100", sms=108, spec=None)
    families = [
        family(model),
        family(model, tp=8),
        family(model, role="mlp"),
        family(model, gpu=other),
        family(model, gpu=Gpu(name="a CPU", sms=None, spec=None)),
    ]
    found = [(fit.gpu, fit.role, fit.tp) for fit in fits(families) if fit.which == ALL]
    assert found == [
        ("NVIDIA A100", "mlp_up", 1),
        ("NVIDIA H200", "mlp", 1),
        ("NVIDIA H200", "mlp_up", 1),
        ("NVIDIA H200", "mlp_up", 8),
    ]


def test_the_interval_is_fishers() -> None:
    x = np.arange(28.0)
    y = x + 20 * np.random.default_rng(0).standard_normal(28)
    found = correlation((x, y), 1)
    assert found is not None
    # half a width of 1.96 / sqrt(28 - 3) in the inverse hyperbolic tangent
    assert np.arctanh(found.high) - np.arctanh(found.value) == pytest.approx(0.392, abs=1e-3)
    assert np.arctanh(found.value) - np.arctanh(found.low) == pytest.approx(0.392, abs=1e-3)
    assert found.value == pytest.approx(float(np.corrcoef(x, y)[0, 1]))


def test_every_further_family_costs_the_interval_a_pair() -> None:
    found = one(family(noisy(1), range(1000, 1560, 40)), family(noisy(2), range(2000, 2560, 40), m=8192))
    assert (found.families, found.pairs) == (2, 28)
    # half a width of 1.96 / sqrt(28 - 2 - 2); a change from one to the next of each Family has no mean taken out
    for each, freedom in ((found.pearson, 24), (found.rank, 24), (found.jumps, 26 - 3)):
        assert each is not None
        half = np.arctanh(each.high) - np.arctanh(each.value)
        assert half == pytest.approx(1.959964 / freedom**0.5, rel=1e-5)


def test_equal_costs_share_a_rank() -> None:
    stats = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(7)
    levels = {value: float(random.integers(1, 5)) for value in WIDTHS}
    found = one(family(lambda gemm: levels[gemm.n]))
    predicted = [model(each.gemms[0]) for each in family(model).candidates]
    expected = stats.spearmanr(np.round(predicted, 9), list(levels.values())).statistic
    assert found.rank is not None
    assert found.rank.value == pytest.approx(expected, abs=1e-6)

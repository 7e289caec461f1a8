"""Which GPU a verb without Ray measures on."""

import pytest

from orchestrator.errors import ClusterError
from orchestrator.one_gpu import choose
from tasks.gpu_facts import GpuFacts, GpuProcess

FREE = GpuFacts(uuid="GPU-free", processes=())
DRAWN_ON = GpuFacts(uuid="GPU-x", processes=(GpuProcess(pid=1, graphics=True),))
BUSY = GpuFacts(uuid="GPU-busy", processes=(GpuProcess(pid=1),))
SLICED = GpuFacts(uuid="GPU-mig", mig=True, slices=(BUSY, FREE))


@pytest.mark.parametrize(
    ("gpus", "before", "chosen", "after"),
    [
        ((), {}, None, {}),
        ((BUSY,), {}, None, {}),  # it is the only one: torch sees one
        ((BUSY, FREE), {}, "GPU-free", {"CUDA_VISIBLE_DEVICES": "GPU-free"}),
        ((BUSY, DRAWN_ON), {}, "GPU-x", {"CUDA_VISIBLE_DEVICES": "GPU-x"}),
        ((SLICED,), {}, "GPU-free", {"CUDA_VISIBLE_DEVICES": "GPU-free"}),
        ((BUSY, FREE), {"CUDA_VISIBLE_DEVICES": "3, 4"}, "3", {"CUDA_VISIBLE_DEVICES": "3"}),
        ((BUSY, FREE), {"CUDA_VISIBLE_DEVICES": "0"}, None, {"CUDA_VISIBLE_DEVICES": "0"}),
        ((BUSY, FREE), {"CUDA_VISIBLE_DEVICES": ""}, None, {"CUDA_VISIBLE_DEVICES": ""}),  # the CPU is meant
    ],
)
def test_one_is_left_visible(
    gpus: tuple[GpuFacts, ...], before: dict[str, str], chosen: str | None, after: dict[str, str]
) -> None:
    environment = dict(before)
    assert choose(gpus, environment) == chosen
    assert environment == after


def test_where_all_are_in_use_the_user_names_one() -> None:
    with pytest.raises(ClusterError, match="all 2 GPUs of this machine are in use; name one by CUDA_VISIBLE_DEVICES"):
        choose((BUSY, BUSY), {})

"""What ``capacity`` plans for: a model, how it is spread over GPUs, and what one step of it is."""

from dataclasses import dataclass

from orchestrator.divisibility import refusals, unsplit
from orchestrator.errors import InvalidValueError
from orchestrator.model import Model
from orchestrator.model_counts import weight_bytes
from orchestrator.roles import ROLES
from orchestrator.shape import Shape
from tasks.gemm import ELEMENT_BYTES

PREFILL, TRAINING, DECODE = "prefill", "training", "decode"
MODES = (PREFILL, TRAINING, DECODE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """A model over tp·pp·dp GPUs; a step takes b sequences of s tokens, in ``decode`` one token of each.

    pp: pipeline stages, of as equally many layers as there can be; the first ones take what is over. dp: replicas.
    """

    model: Model
    tp: int = 1
    pp: int = 1
    dp: int = 1
    b: int = 4
    s: int = 2048
    mode: str = PREFILL
    dtype: str = "bf16"

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        return self.replica_gpus * self.dp

    @property
    def replica_gpus(self) -> int:
        """GPUs of one replica."""
        return self.tp * self.pp

    @property
    def tokens(self) -> int:
        """Tokens of one replica's step."""
        return self.b if self.mode == DECODE else self.b * self.s

    @property
    def dense_layers(self) -> int:
        """Layers with a dense MLP; in a model with experts they are the first ones."""
        return self.model.dense_layers if self.model.experts else self.model.layers

    @property
    def stage_layers(self) -> tuple[int, ...]:
        """Layers of each pipeline stage."""
        least, over = divmod(self.model.layers, self.pp)
        return tuple(least + (i < over) for i in range(self.pp))

    def shape(self, *, dense: bool) -> Shape:
        """The dimensions of a layer as roles see them; d_ff is an expert's where there are experts."""
        model = self.model
        return Shape(
            tp=self.tp,
            batch=self.b,
            dtype=self.dtype,
            h=model.h,
            seq=1 if self.mode == DECODE else self.s,
            d_ff=model.d_ff if dense else model.expert_d_ff,
            a=model.a,
            kv=model.kv,
            head_dim=model.head_dim,
            v=model.v,
            experts=None if dense else model.experts,
            topk=None if dense else model.topk,
        )

    def check(self) -> None:
        """Raise InvalidValueError with everything that cannot be split as asked."""
        model = self.model
        messages = unsplit(model, self.tp)
        if self.dense_layers < model.layers:
            experts = self.shape(dense=False).having("tp", 1)  # what tp divides is told above
            messages += [each[1] for each in refusals(ROLES["experts"], experts)]
            if model.mlp != "swiglu":
                messages.append(f"mlp={model.mlp}: experts are measured with swiglu only")
        if model.layers < self.pp:
            messages.append(f"pp={self.pp} is more than layers={model.layers}")
        if messages:
            raise InvalidValueError("; ".join(messages))

    @property
    def weight_gb(self) -> float:
        """GB of the weights that a GPU holds at least: all of them in ``dtype``, spread evenly."""
        return weight_bytes(self.model, element_bytes=ELEMENT_BYTES[self.dtype]) / self.replica_gpus / 1e9

"""How many parameters a model has whose layers are those of a Point."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.model import Model
from orchestrator.model_counts import parameters
from orchestrator.shape import Shape

MLP: Mapping[str, str] = {"layer": "swiglu", "layer_gelu": "gelu"}
"""The roles that are whole layers of a dense model, with their kind of MLP."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Counted:
    """What a Point does not say of its model. weights: of OTHER_WEIGHTS, what is not as a Model has it by itself."""

    role: str
    weights: Mapping[str, Any]

    def parameters(self, shape: Shape) -> int:
        """All parameters, those of embedding, output layer and norms too; of Columns of Points a Column."""
        model = Model(
            name="",
            h=shape.size("h"),
            layers=shape.size("layers"),
            a=shape.size("a"),
            kv=shape.key_value_heads,
            head_dim=shape.head,
            d_ff=shape.size("d_ff"),
            v=shape.size("v"),
            mlp=MLP[self.role],
            **self.weights,
        )
        return parameters(model).total

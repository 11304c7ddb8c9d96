"""Operations for which a GPU would have to be waited for."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class Reads(TorchDispatchMode):
    """Counts operations for which a GPU would have to be waited for."""

    WAITS = (
        "_local_scalar_dense",
        "nonzero",
        "equal",
        "is_nonzero",
        "_unique2",
        "unique_dim",
        "_ctc_loss",
    )

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = function.overloadpacket.__name__
        if name in self.WAITS or "unique" in name:
            self.names.append(name)
        return function(*args, **(kwargs or {}))

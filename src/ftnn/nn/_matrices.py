"""Parameters and constants, by any name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor, nn


class Matrices(nn.Module):
    """The (in, out) matrices of a layer, by their names in the formula.

    A formula may use names that every module has already (`training`, `type`), which `nn.ParameterDict`
    refuses. The matrices are ordinary parameters and buffers: they appear in `state_dict` and
    `named_parameters`, and `parametrize` works, except for those names, since torch parametrises by adding an
    attribute to the module's class.
    """

    def __init__(self, tensors: Mapping[str, Tensor]):
        super().__init__()
        self._names = tuple(tensors)
        for name, tensor in tensors.items():
            if isinstance(tensor, nn.Parameter):
                self._parameters[name] = tensor
            else:
                self._buffers[name] = tensor

    def __setattr__(self, name: str, value: object) -> None:
        # torch sets a module's attributes this way and, when loading, also its matrices. If a name is both
        # (`training`), the type of the value decides.
        parameters, buffers = self.__dict__.get("_parameters", {}), self.__dict__.get("_buffers", {})
        if name in parameters and isinstance(value, nn.Parameter):
            parameters[name] = value
        elif name in buffers and isinstance(value, Tensor):
            buffers[name] = value
        elif not isinstance(value, Tensor) and (name in self.__dict__ or hasattr(type(self), name)):
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)  # pyright: ignore[reportArgumentType]

    def __getitem__(self, name: str) -> Tensor:
        tensor = self._parameters.get(name)
        if tensor is None:
            tensor = self._buffers.get(name)
        return getattr(self, name) if tensor is None else tensor  # parametrised: computed on access

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __len__(self) -> int:
        return len(self._names)

    def tensors(self) -> list[Tensor]:
        """The matrices, in order."""
        return [self[name] for name in self._names]

    def extra_repr(self) -> str:
        return ", ".join(self._names)

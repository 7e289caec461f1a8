"""A sequence whose items are made when somebody asks for them, each once."""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar, overload

Item = TypeVar("Item", covariant=True)


class Lazy(Sequence[Item], Generic[Item]):
    """So many items; equal to a tuple of the same ones."""

    def __init__(self, count: int, make: Callable[[int], Item]) -> None:
        """Take how many there are, and what makes one by its place."""
        self._count = count
        self._make = make
        self._made: dict[int, Item] = {}

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        """Tell how many there are."""
        return f"{type(self).__name__} of {self._count}"

    @overload
    def __getitem__(self, place: int) -> Item: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Item, ...]: ...
    def __getitem__(self, place: int | slice) -> Item | tuple[Item, ...]:
        if isinstance(place, slice):
            return tuple(self._item(each) for each in range(self._count)[place])
        return self._item(range(self._count)[place])

    def __iter__(self) -> Iterator[Item]:
        return map(self._item, range(self._count))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Lazy, tuple)):
            return NotImplemented
        return len(self) == len(other) and all(mine == yours for mine, yours in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def _item(self, place: int) -> Item:
        if place not in self._made:
            self._made[place] = self._make(place)
        return self._made[place]

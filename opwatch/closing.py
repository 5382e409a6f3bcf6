"""What is open from its construction on, and closed at the end of a `with` at the latest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self


class Closing(ABC):
    """Has close(), which the end of a `with` calls, whatever ended it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None: ...

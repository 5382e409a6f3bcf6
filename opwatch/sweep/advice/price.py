"""The price of capacity. Pure."""

from __future__ import annotations

from dataclasses import dataclass

_TB = 1e12


@dataclass(frozen=True, slots=True)
class CapacityPrice:
    """A price per TB (10^12 bytes) of the drive's capacity. `currency` may be empty."""

    amount: float
    currency: str = ""

    def compute_cost(self, n_bytes: float) -> float:
        """Return the price of this many bytes."""
        return self.amount * n_bytes / _TB

    def format_amount(self, amount: float) -> str:
        """Return an amount with its currency: $17.60, 17.60 EUR, 17.60."""
        text = f"{amount:,.2f}"
        if not self.currency:
            return text
        return f"{text} {self.currency}" if self.currency.isalpha() else f"{self.currency}{text}"

"""Format numbers for people: three significant digits and a unit, in a fixed width."""

from __future__ import annotations


def _format_digits(value: float) -> str:
    """Format with three significant digits, without an exponent: 1.23, 12.3, 123, 1234."""
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def format_ns(ns: float | None) -> str:
    """Format a time in at most 5 characters: 850n, 17.4u, 1.02m, 68.7s. A dash for None."""
    if ns is None:
        return "-"
    # A value that rounds to 1000 uses the next unit.
    if ns < 999.5:
        return f"{ns:.0f}n"
    if ns < 999.5e3:
        return _format_digits(ns / 1e3) + "u"
    if ns < 999.5e6:
        return _format_digits(ns / 1e6) + "m"
    return _format_digits(ns / 1e9) + "s"


def format_rate(per_second: float) -> str:
    """Format events per second in at most 6 characters: 0.50, 12.3, 259342, 1.23M."""
    if per_second >= 999_999.5:
        return f"{_format_digits(per_second / 1e6)}M"
    return _format_digits(per_second)


def format_megabytes(bytes_per_second: float) -> str:
    """Format MB/s (10^6) in at most 6 characters."""
    return _format_digits(bytes_per_second / 1e6)


def format_plain(value: float, digits: int = 2) -> str:
    """Format a number of 0 or more with this many significant digits, without an exponent: 0.31, 19, 268.
    Less than 0.005 is "<0.01".
    """
    if 0 < value < 0.005:
        return "<0.01"
    text = f"{value:.{digits}g}"
    return f"{value:.0f}" if "e" in text else text


def format_with_error(value: float, error: float) -> str:
    """Format a ratio with as many digits as its error allows: 2.31 ± 0.04."""
    if not error:
        return f"{value:.4f} exactly"
    digits = 1 if error >= 0.1 else 2 if error >= 0.01 else 3 if error >= 0.001 else 4
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def format_size(n_bytes: int | None) -> str:
    """Format a request size in at most 5 characters, in powers of 1024: 512, 4k, 1.25M. A dash for None."""
    if n_bytes is None:
        return "-"
    if n_bytes < 1024:
        return str(n_bytes)
    value, unit = n_bytes / 1024, "k"
    for larger in ("M", "G", "T"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f}{unit}" if value == int(value) else f"{_format_digits(value)}{unit}"


def format_binary(n_bytes: int | None, space: str = " ") -> str:
    """Format a size in powers of 1024 with its unit: 512 B, 4 KiB, 1.25 MiB. A dash for None."""
    text = format_size(n_bytes)
    if text == "-" or text[-1].isdecimal():
        return text if text == "-" else f"{text}{space}B"
    return f"{text[:-1]}{space}{text[-1].upper()}iB"


def format_capacity(n_bytes: int) -> str:
    """Format a capacity as drives are sold, in powers of 1000: 960 GB, 1.92 TB."""
    value, unit = float(n_bytes), "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{n_bytes} B" if unit == "B" else f"{_format_digits(value)} {unit}"


def replace_unprintable(text: str) -> str:
    """Replace each character that a terminal would interpret or cannot show with a question mark."""
    if text.isprintable():  # Fast path for almost all text.
        return text
    return "".join(char if char.isprintable() else "?" for char in text)


def shorten(text: str, width: int) -> str:
    """Shorten text to `width` columns, keeping the end, because the end of a path is the most specific
    part."""
    text = replace_unprintable(text)
    return text if len(text) <= width else "…" + text[len(text) - width + 1 :]

"""How figures are written for people, the same in every form of the report."""

MISSING = "\N{EN DASH}"


def write_length(value: float | None) -> str:
    """Tokens per round, `2.31`."""
    return MISSING if value is None else f"{value:.2f}"


def write_percent(value: float | None) -> str:
    """A fraction of one, `61.3 %`, with a space that does not break."""
    return MISSING if value is None else f"{100 * value:.1f}\N{NO-BREAK SPACE}%"


def write_ratio(value: float | None) -> str:
    """A speed-up, 1.52 with a multiplication sign."""
    return MISSING if value is None else f"{value:.2f}\N{MULTIPLICATION SIGN}"


def write_rate(value: float | None) -> str:
    """Tokens per second, `41.2`."""
    return MISSING if value is None else f"{value:,.1f}"


def write_count(value: int) -> str:
    """A count, `12,345`."""
    return f"{value:,}"


def write_interval(interval: tuple[float, float] | None) -> str:
    """An interval of tokens per round, `2.10 to 2.52`, on one line."""
    if interval is None:
        return MISSING
    return "\N{NO-BREAK SPACE}".join((f"{interval[0]:.2f}", "to", f"{interval[1]:.2f}"))


def write_lossless(value: bool | None) -> str:
    """The outcome of the parity check."""
    return {True: "yes", False: "no", None: "not checked"}[value]

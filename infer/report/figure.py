"""Plots as inline SVG: coloured by the page's stylesheet, described in words for those who listen.

Coordinates are those of a 400-wide view box, so text keeps a readable size from a phone to a desk.
"""

from collections.abc import Sequence
from html import escape
from itertools import groupby

WIDTH, HEIGHT = 400.0, 260.0
LEFT, RIGHT, TOP, BOTTOM = 38.0, 394.0, 30.0, 210.0
TEXT_HEIGHT = 13.0
MAX_PRINTED = 18
"""With more columns than this, values no longer fit over them and stand in the table alone."""


def draw_positions(
    survival: Sequence[float | None], conditional_acceptance: Sequence[float | None]
) -> str:
    """Survival as bars and conditional acceptance as a line, by drafted position.

    Both hold fractions of one, None where nothing was measured: no bar, and a gap in the line.
    """
    described = [
        f"Position {k}: survival {_percent_words(s)}, conditional acceptance {_percent_words(c)}."
        for k, (s, c) in enumerate(zip(survival, conditional_acceptance, strict=True))
    ]
    num = len(survival)
    parts = _value_axis(1.0, "% of rounds")
    parts += _category_axis(num, "drafted position (0 is the first)")
    for k, fraction in enumerate(survival):
        if fraction is not None:
            parts.append(_bar(k, num, fraction, f"position {k}: survival {fraction:.1%}"))
    points = [
        (k, _column(k, num), _height(fraction))
        for k, fraction in enumerate(conditional_acceptance)
        if fraction is not None
    ]
    # Consecutive positions share the difference between position and rank: one run of the line.
    for _, run in groupby(enumerate(points), key=lambda ranked: ranked[1][0] - ranked[0]):
        path = " ".join(f"{x:.1f},{y:.1f}" for _, (_, x, y) in run)
        parts.append(f'<polyline class="line" points="{path}"/>')
    parts += [f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for _, x, y in points]
    for k, (bar, dot) in enumerate(zip(survival, conditional_acceptance, strict=True)):
        parts += _position_values(k, num, bar, dot)
    return _svg("positions", "Acceptance by drafted position", " ".join(described), parts)


def draw_histogram(accepted_length_histogram: Sequence[int]) -> str:
    """Share of rounds by the number of drafted tokens they accepted; entry n counts rounds."""
    num_rounds = sum(accepted_length_histogram)
    num = len(accepted_length_histogram)
    shares = [count / num_rounds if num_rounds else 0.0 for count in accepted_length_histogram]
    top = next(step for step in (0.1, 0.2, 0.4, 0.6, 0.8, 1.0) if max(shares) <= step)
    parts = _value_axis(top, "% of rounds")
    parts += _category_axis(num, "drafted tokens accepted in a round")
    described = []
    for n, (count, share) in enumerate(zip(accepted_length_histogram, shares, strict=True)):
        described.append(f"{n} accepted: {count} rounds, {_percent_words(share)}.")
        parts.append(_bar(n, num, share / top, f"{n} accepted: {count} rounds ({share:.1%})"))
        parts += _value(n, num, _height(share / top) - 5, share, "halo")
    return _svg("histogram", "Drafted tokens accepted per round", " ".join(described), parts)


def _svg(name: str, title: str, description: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" '
        f'aria-labelledby="{name}-title {name}-description">'
        f'<title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-description">{escape(description)}</desc>' + "".join(parts) + "</svg>"
    )


def _value_axis(top: float, label: str) -> list[str]:
    parts = [f'<text class="label" x="{LEFT - 30:g}" y="{TOP - 19:g}">{escape(label)}</text>']
    num_steps = 4
    for step in range(num_steps + 1):
        y = _height(step / num_steps)
        kind = "axis" if step == 0 else "grid"
        parts.append(f'<line class="{kind}" x1="{LEFT:g}" x2="{RIGHT:g}" y1="{y:g}" y2="{y:g}"/>')
        value = 100 * top * step / num_steps
        parts.append(
            f'<text class="tick end" x="{LEFT - 7:g}" y="{y + 4:g}">{round(value, 1):g}</text>'
        )
    return parts


def _category_axis(num: int, label: str) -> list[str]:
    stride = -(-num // MAX_PRINTED) if num else 1
    parts = [
        f'<text class="tick middle" x="{_column(k, num):.1f}" y="{BOTTOM + 17:g}">{k}</text>'
        for k in range(0, num, stride)
    ]
    middle = (LEFT + RIGHT) / 2
    parts.append(
        f'<text class="label middle" x="{middle:g}" y="{HEIGHT - 8:g}">{escape(label)}</text>'
    )
    return parts


def _bar(k: int, num: int, fraction: float, tip: str) -> str:
    width = min(0.66 * (RIGHT - LEFT) / num, 46.0)
    y = _height(fraction)
    return (
        f'<rect class="bar" x="{_column(k, num) - width / 2:.1f}" y="{y:.1f}" '
        f'width="{width:.1f}" height="{BOTTOM - y:.1f}" rx="2"><title>{escape(tip)}</title></rect>'
    )


def _position_values(k: int, num: int, bar: float | None, dot: float | None) -> list[str]:
    """The two values of one position, moved apart where bar and dot lie close together."""
    parts = []
    dot_y = None if dot is None else _height(dot) - 8
    if bar is not None:
        inside = _height(bar) + TEXT_HEIGHT + 4
        fits = inside < BOTTOM - 4
        bar_y = inside if fits else _height(bar) - 5
        if dot_y is not None and abs(dot_y - bar_y) < TEXT_HEIGHT:
            # A low bar with its dot on top: both values go above the dot, the bar's first.
            bar_y = min(bar_y, dot_y)
            dot_y = bar_y - TEXT_HEIGHT
        parts += _value(k, num, bar_y, bar, "inside" if fits else "halo")
    if dot is not None and dot_y is not None:
        parts += _value(k, num, dot_y, dot, "halo strong")
    return parts


def _value(k: int, num: int, y: float, fraction: float, kind: str) -> list[str]:
    if num > MAX_PRINTED:
        return []
    small = " small" if num > 9 else ""
    x = _column(k, num)
    return [
        f'<text class="{kind} middle{small}" x="{x:.1f}" y="{y:.1f}">{100 * fraction:.0f}</text>'
    ]


def _column(k: int, num: int) -> float:
    return LEFT + (RIGHT - LEFT) * (k + 0.5) / num


def _height(fraction: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * fraction


def _percent_words(fraction: float | None) -> str:
    return "not measured" if fraction is None else f"{100 * fraction:.1f} percent"

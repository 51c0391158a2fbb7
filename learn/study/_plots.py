"""How the plots look, and how they are written: SVG and PNG with the same bytes for the same numbers."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import _sections, _store

STYLE = {
    "svg.hashsalt": "evenorm",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 9,
    "figure.dpi": 100,
    "savefig.dpi": 80,
    "figure.constrained_layout.use": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
    "legend.frameon": False,
}
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555", "#000000")  # Okabe and Ito's
MARKERS = "os^Dv<>x"


@contextmanager
def styled() -> Iterator[Any]:
    """matplotlib.pyplot without a display, in the study's style, whatever the user's own is."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.style.context(["default", STYLE]):
        yield pyplot
        pyplot.close("all")


def band(axes: Any, x: Sequence[float], spreads: Sequence[dict[str, Any]], label: str, index: int) -> None:
    """Medians as a line, smallest to largest as a band."""
    colour = COLOURS[index % len(COLOURS)]
    axes.plot(x, [one["median"] for one in spreads], color=colour, marker=MARKERS[index % 8], label=label)
    axes.fill_between(
        x, [one["min"] for one in spreads], [one["max"] for one in spreads], color=colour, alpha=0.15, linewidth=0
    )


def losses(axes: Any, steps: int, curves: Sequence[Sequence[float]], label: str, index: int) -> None:
    """The seeds' curves of training losses over all steps, each point a mean of as many steps."""
    width = steps / len(curves[0])
    middles = [width * (at + 0.5) for at in range(len(curves[0]))]
    band(axes, middles, [_sections.spread(one) for one in zip(*curves, strict=True)], label, index)


def write(figure: Any, path: Path) -> None:
    """PATH.svg and PATH.png."""
    for kind, metadata in (("svg", {"Date": None, "Creator": None}), ("png", {"Software": None})):
        content = io.BytesIO()
        figure.savefig(content, format=kind, metadata=metadata)
        _store.write_bytes(path.with_name(f"{path.name}.{kind}"), content.getvalue())

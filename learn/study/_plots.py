"""The style of the plots and how they are written. The same numbers give the same bytes."""

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
    "figure.constrained_layout.use": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
    "legend.frameon": False,
}
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito's
MARKERS = "os^Dv<"


@contextmanager
def styled() -> Iterator[Any]:
    """Yields matplotlib.pyplot without a display and with the study's style instead of the user's."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.style.context(["default", STYLE]):
        yield pyplot
        pyplot.close("all")


def band(axes: Any, x: Sequence[float], seeds: Sequence[Sequence[float]], label: str, index: int, **style: Any) -> None:
    """Draws the seeds' medians as a line and their range as a band. `seeds` has one list over x for each seed."""
    spreads = [_sections.spread(values) for values in zip(*seeds, strict=True)]
    style = {"color": COLOURS[index], "marker": MARKERS[index], **style}
    axes.plot(x, [one.median for one in spreads], label=label, **style)
    low, high = [one.least for one in spreads], [one.most for one in spreads]
    axes.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)


def losses(axes: Any, steps: int, seeds: Sequence[Sequence[float]], label: str, index: int) -> None:
    """Draws the seeds' training losses over all steps. Each point is the mean of equally many steps."""
    width = steps / len(seeds[0])
    band(axes, [width * (at + 0.5) for at in range(len(seeds[0]))], seeds, label, index)


def legend(figure: Any) -> None:
    """Draws one legend for all panels, below them."""
    labels = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(labels.values(), labels.keys(), loc="outside lower center", ncols=min(4, len(labels)))


def write(figure: Any, path: Path) -> None:
    content = io.BytesIO()
    figure.savefig(content, format="svg", metadata={"Date": None, "Creator": None})
    _store.write_bytes(path, content.getvalue())

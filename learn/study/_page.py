"""The report as Markdown: numbers with their range over seeds, lists, tables, and the frame of a section."""

from collections.abc import Iterable, Sequence
from typing import Any

from ._sections import Section, Spread

INTRODUCTION = """# The study

Claims that texts make about layer norm, measured on small networks. `make study` runs the study;
[learn/README.md](../../learn/README.md) describes how. The JSON files next to this page hold the settings, the seeds
and the result of every run. `NAME.machine.json` holds the date, the machine and the versions. This page, including
its verdicts, is computed from the JSON files only.

A number such as 2.1 (1.9 to 2.4) is the median over the seeds, with the smallest and the largest value. Bands in plots
show the same range. "In every seed" compares two networks seed by seed.
"""


def ranged(found: Spread | None, spec: str = ".3g") -> str:
    """Median, smallest and largest value over the seeds, as text."""
    if found is None:
        return "none"
    return f"{found.median:{spec}} ({found.least:{spec}} to {found.most:{spec}})"


def listed(values: Iterable[object]) -> str:
    return ", ".join(map(str, values)) or "none"


def sentences(*parts: str) -> str:
    """Joins the parts that are not empty."""
    return " ".join(part for part in parts if part)


def table(heads: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in lines)


def picture(section: str, name: str, caption: str) -> str:
    return f"![{caption}]({section}-{name}.svg)"


def page_of(section: Section, summary: dict[str, Any], verdicts: dict[str, str]) -> str:
    """A section's claims, text and verdicts, as Markdown."""
    text = section.write(summary, verdicts)
    claims = [f"**Claim {claim.name}.** {claim.text} ({claim.source})" for claim in section.claims]
    found = [f"**{claim.name}: {verdicts[claim.name]}.** {text.because[claim.name]}" for claim in section.claims]
    parts = [f"## {section.title}", *claims, *text.body, "### Verdicts", *found]
    return "\n\n".join(parts) + "\n"

"""The report's text: every number in it is looked up in the section's JSON, by a path, and formatted here.

A template has no numbers of its own: `say("{summary/gap/median:.1%} of ...")`. Names may have digits (bf16), numbers not.
"""

import re
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ._sections import CONDITIONS, FAILS, HOLDS, Section

# A number: digits that no letter precedes, so not those of bf16 or LayerNorm1d.
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
TITLES = {HOLDS: "Holds", CONDITIONS: "Holds under these conditions", FAILS: "Does not hold here"}


def found_at(result: Any, path: str) -> Any:
    """The value at a path like summary/layer/3/median."""
    value = result
    for part in path.split("/"):
        if isinstance(value, Mapping):
            value = value[part]
        elif isinstance(value, Sequence) and not isinstance(value, str):
            value = value[int(part)]
        else:
            raise KeyError(path)
    return value


def formatted(value: Any, spec: str) -> str:
    """A number as the report writes it; text and lists of numbers as they are."""
    if value is None:
        return "none"
    if isinstance(value, list):
        return ", ".join(formatted(one, spec) for one in value) or "none"
    if isinstance(value, str):
        return value
    return format(value, spec or ("," if isinstance(value, int) else ".3g"))


class _Formatter(string.Formatter):
    def __init__(self, result: Any) -> None:
        self.result = result

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[Any, str]:
        return found_at(self.result, field_name), field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        return formatted(value, format_spec)


class Page:
    """The text of one section."""

    def __init__(self, section: Section, result: Any) -> None:
        self.section, self.result = section, result
        self.parts: list[str] = []

    def fill(self, template: str) -> str:
        """The template with its numbers; one that has a number of its own is an error."""
        plain = "".join(literal for literal, *_ in string.Formatter().parse(template))
        typed = NUMBER.search(plain)
        if typed:
            raise ValueError(f"a number typed into the text: {typed[0]!r} in {plain!r}")
        return _Formatter(self.result).format(template)

    def at(self, path: str) -> Any:
        """A value that the text depends on."""
        return found_at(self.result, path)

    def say(self, template: str) -> None:
        self.parts.append(self.fill(template) + "\n")

    def table(self, heads: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
        """Cells are templates."""
        filled = [[self.fill(cell) for cell in row] for row in [list(heads), *map(list, rows)]]
        lines = ["| " + " | ".join(row) + " |" for row in filled]
        self.parts.append("\n".join([lines[0], "|" + " --- |" * len(filled[0]), *lines[1:]]) + "\n")

    def figure(self, name: str, caption: str) -> None:
        self.parts.append(f"![{self.fill(caption)}]({self.section.name}-{name}.svg)\n")

    def condition(self, text: str, claim: str) -> str:
        """The sentence that names the condition under which the claim holds, if it holds under one."""
        return f" Condition: {text}." if self.result["verdicts"][claim] == CONDITIONS else ""

    def whole(self) -> str:
        """The claims, what the section writes, the verdicts."""
        self.parts.append(f"## {self.section.title}\n")
        for index, claim in enumerate(self.result["claims"]):
            where = f"claims/{index}"
            self.say(f"**Claim {claim['name']}.** {{{where}/text}} ({{{where}/source}})")
        because = self.section.write(self)
        self.parts.append("### Verdicts\n")
        for claim in self.section.claims:
            verdict = self.result["verdicts"][claim.name]
            self.say(f"**{claim.name}: {TITLES[verdict]}.** {because[claim.name]}")
        return "\n".join(self.parts)


def range_of(path: str, spec: str = ".3g") -> str:
    """A template for median, smallest and largest of the seeds, as `spread` makes them."""
    return f"{{{path}/median:{spec}}} ({{{path}/min:{spec}}} to {{{path}/max:{spec}}})"

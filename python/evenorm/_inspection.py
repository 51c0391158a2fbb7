"""What inspect() reports of a model's norms, whatever the model is made of."""

import json
import math
import textwrap
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from evenorm._tables import table

WIDTH = 120  # of the table
LEGEND = (
    "  error: in u (|weight| max|xhat| + |bias|), u = 2^-24 (f32), 2^-53 (f64), 2^-8 (bf16), 2^-11 (f16)",
    "  std: what the norm divides by; alone: the bits of 8 rows or samples when computed one by one",
)


@dataclass
class InspectedNorm:
    """A module that is or looks like a norm. Figures are the worst over its calls; None: not measured."""

    name: str
    cls: str
    formula: str | None = None  # what the module was recognised as
    reason: str | None = None  # why the module, or one of its calls, was not measured
    calls: int = 0
    rows: int = 0  # of all calls
    columns: int | None = None
    types: str | None = None  # of x, the weight and y; one if they are equal
    mean_over_std: float | None = None  # largest |mean|/std of a row; std is what the norm divides by, eps included
    x_over_std: float | None = None  # largest |x|/std
    error: float | None = None  # of the module's y against float64, in u (|weight| max|xhat| + |bias|)
    evenorm_error: float | None = None  # of evenorm's norm on the same x
    same_bits_alone: bool | None = None  # whether rows have the same bits when computed alone
    seconds: float = 0.0  # in one forward pass
    share: float = 0.0  # of the pass's time


@dataclass(frozen=True, repr=False)
class Inspection:
    """What inspect() measured, with the largest error first. Its str and repr are a table of at most 120 columns."""

    norms: tuple[InspectedNorm, ...]
    seconds: float  # of one forward pass
    warnings: tuple[str, ...]
    function: str = "evenorm.torch.inspect"

    def json(self) -> str:
        """Returns the measurements as JSON text. An infinite error is the string "inf"."""
        found = asdict(self)
        for norm in found["norms"]:
            norm.update({key: "inf" for key, value in norm.items() if value == math.inf})
        return json.dumps(found)

    def __repr__(self) -> str:
        measured = [one for one in self.norms if one.error is not None]
        share = sum(one.share for one in self.norms)
        ms = f"{self.seconds * 1e3:.3g} ms"
        count = "1 norm takes" if len(self.norms) == 1 else f"{len(self.norms)} norms take"
        lines = [f"{self.function}: {count} {share:.2%} of a forward pass of {ms}"]
        lines += _lines(measured) if measured else ()
        others = [(one.name, f"{one.cls}: {one.reason}") for one in self.norms if one.reason is not None]
        lines += [*table("left", others), *(f"  warning   {text}" for text in self.warnings)]
        wrap = textwrap.TextWrapper(WIDTH, subsequent_indent=" " * 12)
        return "\n".join(line if len(line) <= WIDTH else wrap.fill(line) for line in lines)


def _lines(norms: list[InspectedNorm]) -> Iterable[str]:
    kinds = list(dict.fromkeys((one.cls, one.formula) for one in norms))
    rows = [("error", "evenorm", "mean/std", "|x|/std", "alone", "time", "rows x cols", "types", "#")]
    for one in norms:
        figures = (one.error, one.evenorm_error, one.mean_over_std, one.x_over_std)
        alone = {None: "-", True: "same", False: "differ"}[one.same_bits_alone]
        others = (f"{one.share:.2%}", f"{one.rows} x {one.columns}", one.types, kinds.index((one.cls, one.formula)) + 1)
        rows.append((*(f"{value:.3g}" for value in figures), alone, *map(str, others)))  # type: ignore[arg-type]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    most = WIDTH - sum(widths) - 2 * len(widths) - 2
    names = [(one.name or "(the model)") + (f" ({one.calls} calls)" if one.calls > 1 else "") for one in norms]
    for row, name in zip(rows, ["name", *names], strict=True):
        cells = "  ".join(map(str.rjust, row, widths))
        yield f"  {cells}  {name if len(name) <= most else '...' + name[3 - most :]}"
    yield from (f"  #{i}: {cls} = {formula}" for i, (cls, formula) in enumerate(kinds, 1))
    yield from LEGEND

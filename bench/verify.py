"""Checks a rival's results: some rows against NumPy in a wider type, and all of the parameters' gradients.

The run stops at a wrong result. evenorm must keep its contract (docs/numerics.md). The other libraries may have the error
of sums in their own arithmetic, which grows with the mean of a row relative to its standard deviation.
"""

from __future__ import annotations

import numpy as np
from problem import EPS, UNIT, Inputs, Outputs, widen


class Wrong(Exception):
    """A wrong result. The text names the rival and the result."""


# Limits of errors. evenorm's are in units of the stored type. The other libraries compute in float32: they may have two
# units of the stored type for the last rounding, and units of float32, more of them if the mean is large.
OURS, STORED_UNITS, FLOAT32_UNITS, FAR_UNITS = 6.0, 2.0, 32.0, 1.0


def statistics(x: np.ndarray, kind: str):
    mean = x.mean() if kind == "layer" else x.dtype.type(0)
    return mean, 1 / np.sqrt(np.square(x - mean).mean() + EPS)


def apart(what: str, got: np.ndarray, exact: np.ndarray, scale, unit: float, limit: float) -> None:
    """Raises Wrong if an error is above the limit, in units relative to `scale`."""
    error = np.abs(got - exact) / (unit * scale)
    worst = float(error.max()) if np.isfinite(error).all() else float("inf")
    if not worst <= limit:
        raise Wrong(f"{what} is {worst:.1f} u off, but it should be within {limit:.1f}")


def limit_of(ours: bool, x: np.ndarray, rstd, dtype: str) -> float:
    """The limit in units of the type."""
    if ours:
        return OURS
    far = FAR_UNITS * float(abs(x.mean()) * rstd)
    in_float32 = (FLOAT32_UNITS + far) * max(1.0, len(x) / 4096)
    return STORED_UNITS + in_float32 * min(1.0, UNIT["f32"] / UNIT[dtype])


def rows_of(point) -> list[int]:
    """The rows that are checked one by one: the first, the last and some between."""
    return sorted({int(row) for row in np.linspace(0, point.rows - 1, 31)})


def check_written(what: str, array: np.ndarray, dtype: str) -> None:
    """Raises Wrong if not all of the array was written. It was filled with NaNs before."""
    if dtype != "i8" and not np.isfinite(widen(array, dtype)).all():
        raise Wrong(f"not all of {what} is a number")


def check_y(inputs: Inputs, outputs: Outputs, ours: bool) -> None:
    point = inputs.point
    gamma = widen(inputs.weight, inputs.parameters)
    beta = np.zeros(1) if inputs.bias is None else widen(inputs.bias, inputs.parameters)
    check_written("y", outputs.y, "i8" if point.form == "int8" else point.dtype)
    for index in rows_of(point):
        x = widen(inputs.row(inputs.x, index), point.dtype)
        if point.form == "residual":
            exact = x + widen(inputs.row(inputs.residual, index), point.dtype)
            x = widen(inputs.row(outputs.sum, index), point.dtype)
            apart(f"row {index} of the sum", x, exact, np.abs(exact) + 1e-30, UNIT[point.dtype], 1)
        mean, rstd = statistics(x, point.kind)
        xhat = (x - mean) * rstd
        exact = xhat * gamma + beta
        scale = np.abs(gamma) * np.abs(xhat).max() + np.abs(beta)
        if point.form == "int8":
            largest = np.abs(exact).max()
            apart(
                f"the scale of row {index}",
                outputs.scale[index : index + 1],
                largest / 127,
                largest / 127,
                UNIT["f32"],
                8,
            )
            exact, scale = exact * (127 / largest), 1.0
            apart(f"row {index} of y", inputs.row(outputs.y, index).astype(np.float64), exact, scale, 1.0, 0.51)
            continue
        got = widen(inputs.row(outputs.y, index), point.dtype)
        apart(f"row {index} of y", got, exact, scale, UNIT[point.dtype], limit_of(ours, x, rstd, point.dtype))


def check_dx(inputs: Inputs, outputs: Outputs, ours: bool) -> None:
    point = inputs.point
    gamma = widen(inputs.weight, inputs.parameters)
    check_written("dx", outputs.dx, point.dtype)
    for index in rows_of(point):
        x, dy = (widen(inputs.row(values, index), point.dtype) for values in (inputs.x, inputs.dy))
        mean, rstd = statistics(x, point.kind)
        xhat, g = (x - mean) * rstd, dy * gamma
        k1, k2 = (g.mean() if point.kind == "layer" else 0), (g * xhat).mean()
        scale = rstd * (np.abs(g) + abs(k1) + np.abs(xhat) * np.abs(g * xhat).mean())
        got, unit = widen(inputs.row(outputs.dx, index), point.dtype), UNIT[point.dtype]
        apart(f"row {index} of dx", got, rstd * (g - k1 - xhat * k2), scale, unit, limit_of(ours, x, rstd, point.dtype))


def check_parameters(inputs: Inputs, outputs: Outputs, ours: bool, keeps_sums_narrow: bool) -> None:
    """Checks dweight and dbias, over all rows."""
    point = inputs.point
    sums = inputs.sums_over_rows
    stored, unit = UNIT[inputs.parameters], UNIT["f32"]
    if ours:
        unit, limit = stored, OURS + 2 + (point.rows if inputs.parameters == "f64" else 0)
    elif keeps_sums_narrow:  # PyTorch with 16-bit x is off by some percent of the terms' magnitudes
        limit = 0.05 / unit
    else:  # a sum in float32, row by row, may lose one unit per row
        limit = FLOAT32_UNITS + point.rows + STORED_UNITS * max(1.0, stored / unit)
    wide = ours and inputs.parameters != "f64"  # evenorm's sums are at least as wide as those here
    for name, total, magnitudes in (
        ("dweight", sums.dweight, sums.of_dweight if wide else sums.of_dweight + sums.rounded),
        ("dbias", sums.dbias, sums.of_dbias),
    ):
        got = getattr(outputs, name)
        if got is not None:
            apart(name, widen(got, inputs.parameters), total, magnitudes + 1e-30, unit, limit)


def verify(name: str, inputs: Inputs, outputs: Outputs) -> None:
    """Checks all results of a point. Raises Wrong."""
    ours = name in ("evenorm", "against")
    try:
        if inputs.point.gradients:
            check_dx(inputs, outputs, ours)
            check_parameters(inputs, outputs, ours, name == "torch" and UNIT[inputs.point.dtype] > UNIT["f32"])
        else:
            check_y(inputs, outputs, ours)
    except Wrong as wrong:
        raise Wrong(f"{name}, {inputs.point}: {wrong}") from None

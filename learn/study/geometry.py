"""Runs of the section `geometry`: keys that no query selects, angles to the vector of ones, table 1 of Ba et al."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import evenorm
import evenorm.torch

from ._sections import Run, Settings, grid, seeded

MINILM = Path(__file__).parents[2] / "examples" / "minilm"
SEEDS = (0, 1, 2, 3, 4)
WIDTH = 8  # of the keys: the d of Brody et al.
KEYS = ("plain", "layer", "layer, gamma of any sign", "layer, half of gamma zero", "rms")
NORMS = ("batch", "weight", "layer", "rms")
CHANGES = (
    "weight matrix re-scaled",
    "weight matrix re-centred",
    "weight vector re-scaled",
    "data re-scaled",
    "data re-centred",
    "one case re-scaled",
)
FACTORS = {"a power of two": 4.0, "not a power of two": 3.0}


def runs(smoke: bool) -> list[Run]:
    seeds = SEEDS[:2] if smoke else SEEDS
    counts = (16, 64) if smoke else (8, 16, 32, 64, 128, 256)
    keys = [{"part": "keys", **one} for one in grid(keys=KEYS, number=counts)]
    table = [{"part": "table", **one} for one in grid(dtype=("float32", "float64"), eps=(0.0, 1e-5))]
    return [*seeded(keys, seeds), *seeded([{"part": "angles"}], (0,)), *seeded(table, seeds)]


def run(settings: Settings, seed: int) -> dict[str, Any]:
    if settings["part"] == "keys":
        return unselectable(settings["keys"], settings["number"], seed)
    if settings["part"] == "angles":
        return angles()
    return invariances(getattr(torch, settings["dtype"]), settings["eps"])


def margin(keys: np.ndarray[Any, Any], index: int) -> float:
    """The most by which a query can prefer one key to all others: a linear program.

    max t, such that q . (k - k_j) >= t for every other key k_j, and |q_i| <= 1. It is 0 where k is inside the convex
    hull of the others: then no query gives k the highest score.
    """
    from scipy.optimize import linprog

    others = np.delete(keys, index, axis=0) - keys[index]
    rows = np.hstack([others, np.ones((len(others), 1))])
    goal = np.zeros(keys.shape[1] + 1)
    goal[-1] = -1
    bounds = [(-1, 1)] * keys.shape[1] + [(0, None)]
    found = linprog(goal, A_ub=rows, b_ub=np.zeros(len(rows)), bounds=bounds, method="highs")
    if found.status:
        raise ArithmeticError(f"linprog: {found.message}")
    return float(-found.fun)


def unselectable(kind: str, number: int, seed: int) -> dict[str, Any]:
    """How many of some standard normal keys no query selects, normalised or not."""
    random = np.random.default_rng(seed)
    keys = random.standard_normal((number, WIDTH))
    gamma = random.standard_normal(WIDTH)
    if kind == "rms":
        keys = evenorm.rms_norm(keys, WIDTH)
    elif kind.startswith("layer"):
        weight = {"layer": np.ones(WIDTH), "layer, gamma of any sign": gamma}
        keys = evenorm.layer_norm(keys, WIDTH, weight.get(kind, gamma * (np.arange(WIDTH) % 2)))
    margins = [margin(keys, index) for index in range(number)]
    chosen = [one for one in margins if one > 1e-9]
    return {
        "unselectable": number - len(chosen),
        "share": 1 - len(chosen) / number,
        "smallest margin": min(chosen, default=None),
    }


def degrees(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The angle of each row to the vector of ones."""
    wide = rows.astype(np.float64)
    cosine = wide.sum(1) / (np.sqrt((wide**2).sum(1)) * np.sqrt(rows.shape[1]))
    angles: np.ndarray[Any, Any] = np.degrees(np.arccos(np.clip(cosine, -1, 1)))
    return angles


def told(values: np.ndarray[Any, Any]) -> dict[str, float]:
    quantiles = {"min": 0, "lower quartile": 0.25, "median": 0.5, "upper quartile": 0.75, "max": 1}
    return {name: float(np.quantile(values, at)) for name, at in quantiles.items()}


def angles() -> dict[str, Any]:
    """Of the activations of all-MiniLM-L6-v2 in examples/minilm, before and after the norm that they go into."""
    x, weight, bias = (np.load(MINILM / f"{name}.npy") for name in ("hidden", "weight", "bias"))
    rows = x.reshape(-1, x.shape[-1])
    cols = rows.shape[1]
    layer = evenorm.layer_norm(rows, cols, eps=1e-12)
    rms = evenorm.rms_norm(rows, cols, eps=1e-12)
    normal = np.random.default_rng(0).standard_normal(rows.shape)
    stages = {
        "before the norm": rows,
        "normalised, before gamma and beta": layer,
        "after the norm": evenorm.layer_norm(rows, cols, weight, bias, eps=1e-12),
        "standard normal numbers": normal,
    }
    wide = rows.astype(np.float64)
    along = cols * wide.mean(1) ** 2 / (wide**2).sum(1)
    difference = np.sqrt(((layer.astype(np.float64) - rms) ** 2).mean(1) / (layer.astype(np.float64) ** 2).mean(1))
    found = {name: degrees(values) for name, values in stages.items()}
    edges = np.linspace(75, 105, 61)
    return {
        "rows": len(rows),
        "cols": cols,
        "degrees": {name: told(values) for name, values in found.items()},
        "share of the square along the ones": told(along),
        "layer norm from RMS norm, relative": told(difference),
        "edges": edges.tolist(),
        "histogram": {name: np.histogram(values, edges)[0].tolist() for name, values in found.items()},
    }


def normed(norm: str, weight: Tensor, x: Tensor, eps: float) -> Tensor:
    """The summed inputs x W^T, normalised; for weight normalisation, W is. No gamma, no beta."""
    if norm == "weight":
        return nn.functional.linear(x, weight / weight.square().sum(1, keepdim=True).add(eps).sqrt())
    summed = nn.functional.linear(x, weight)
    if norm == "layer":
        return evenorm.torch.layer_norm(summed, summed.shape[-1:], eps=eps)
    if norm == "rms":
        return evenorm.torch.rms_norm(summed, summed.shape[-1:], eps=eps)
    centred = summed - summed.mean(0)
    return centred / centred.square().mean(0).add(eps).sqrt()


def changed(change: str, factor: float, weight: Tensor, x: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """Table 1's changes. Re-centring a weight matrix adds one vector to the weights of every unit."""
    first = torch.zeros(len(x), 1, dtype=torch.bool)
    first[0] = True
    unit = torch.zeros(len(weight), 1, dtype=torch.bool)
    unit[0] = True
    return {
        "weight matrix re-scaled": lambda: (weight * factor, x),
        "weight matrix re-centred": lambda: (weight + shift * factor, x),
        "weight vector re-scaled": lambda: (torch.where(unit, weight * factor, weight), x),
        "data re-scaled": lambda: (weight, x * factor),
        "data re-centred": lambda: (weight, x + shift * factor),
        "one case re-scaled": lambda: (weight, torch.where(first, x * factor, x)),
    }[change]()


def invariances(dtype: torch.dtype, eps: float) -> dict[str, Any]:
    """How far each change moves what a norm gives: elements whose bits change, and the largest difference."""
    cases, inputs, units = 32, 24, 48
    weight, x = torch.randn(units, inputs, dtype=dtype) / inputs**0.5, torch.randn(cases, inputs, dtype=dtype)
    shift = torch.randn(inputs, dtype=dtype)
    found: dict[str, Any] = {}
    for norm in NORMS:
        before = normed(norm, weight, x, eps)
        found[norm] = {}
        for change in CHANGES:
            found[norm][change] = {}
            for name, factor in FACTORS.items():
                after = normed(norm, *changed(change, factor, weight, x, shift), eps)
                found[norm][change][name] = {
                    "elements whose bits change": int((before != after).sum()),
                    "largest difference": float((before - after).abs().max()),
                }
    return {"elements": cases * units, "norms": found}

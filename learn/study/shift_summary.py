"""The section `shift`: figures of its runs by norm, noise and rate, compared seed by seed."""

import math
from collections.abc import Sequence
from typing import Any

from ._sections import ahead, mean, spread
from .shift import MEASURES, NORMS


def measured(result: Any) -> dict[str, float]:
    """A run's figures; where it diverged, it learns infinitely slowly, and its drift is no number."""
    values = {kind: result[f"{kind} by layer"] for kind in MEASURES}
    finite = result["finite"] and all(None not in one for one in values.values())
    return {
        "loss": result["mean loss"] if result["finite"] else math.inf,
        "accuracy": result["accuracy"],
        **{kind: mean(one) if finite else math.nan for kind, one in values.items()},
        **{f"to {target}": math.inf if step is None else step for target, step in result["steps to"].items()},
    }


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """The rank correlation of numbers without ties."""
    ranks = [[sorted(values).index(one) for one in values] for values in (a, b)]
    squares = sum((one - other) ** 2 for one, other in zip(*ranks, strict=True))
    correlation: float = 1 - 6 * squares / (len(a) * (len(a) ** 2 - 1))
    return correlation


class Results:
    """Figures by norm, size of the noise and rate: a list over seeds."""

    def __init__(self, runs: list[dict[str, Any]]) -> None:
        self.noises: list[float] = list(dict.fromkeys(run["settings"]["noise"] for run in runs))
        self.rates: list[float] = list(dict.fromkeys(run["settings"]["rate"] for run in runs))
        self.of: dict[tuple[str, float, float], list[dict[str, float]]] = {}
        for run in runs:
            key = run["settings"]["norm"], run["settings"]["noise"], run["settings"]["rate"]
            self.of.setdefault(key, []).append(measured(run["result"]))

    def values(self, name: str, norm: str, noise: float, rate: float) -> list[float]:
        return [one[name] for one in self.of[norm, noise, rate]]

    def best(self, norm: str, noise: float) -> float:
        """The rate with the lowest median of the mean loss."""

        def median(rate: float) -> float:
            middle: float = spread(self.values("loss", norm, noise, rate))["median"]
            return middle

        return min(self.rates, key=median)

    @property
    def seeds(self) -> int:
        return min(len(one) for one in self.of.values())

    def compared(self) -> list[float]:
        """Rates at which no run without noise diverged."""
        plain = ["loss", *MEASURES]
        return [
            rate
            for rate in self.rates
            if all(math.isfinite(v) for norm in NORMS for name in plain for v in self.values(name, norm, 0.0, rate))
        ]

    def less(self, name: str, norm: str, noise: float = 0.0) -> list[float]:
        """Rates at which the norm's figure is below the one without norm and noise, in every seed."""
        return [
            rate
            for rate in self.rates
            if ahead(self.values(name, "none", 0.0, rate), self.values(name, norm, noise, rate))
        ]

    def more(self, name: str, norm: str, noise: float = 0.0) -> list[float]:
        return [
            rate
            for rate in self.rates
            if ahead(self.values(name, norm, noise, rate), self.values(name, "none", 0.0, rate))
        ]

    def correlations(self, kind: str, rate: float) -> list[float]:
        """For each seed, the rank correlation of drift and mean loss over the networks that did not diverge."""
        found = []
        for seed in range(self.seeds):
            points = [self.of[norm, noise, rate][seed] for norm in NORMS for noise in self.noises]
            pairs = [(one[kind], one["loss"]) for one in points if math.isfinite(one[kind] + one["loss"])]
            if len(pairs) > 2:
                found.append(spearman(*zip(*pairs, strict=True)))
        return found

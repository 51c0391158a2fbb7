"""Compares what a module gives on rows with what evenorm gives, up to what rounding allows."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ._look_alikes import Recipe
from ._probe import Failure, Seen, some

HALVES = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Outcome:
    """The largest difference between the module and evenorm compared with the allowed one, or another disagreement."""

    ratio: float  # of the difference to what rounding allows, at its largest
    difference: float
    error: str = ""
    share: float = 1.0  # of elements that differ by more

    @property
    def agreed(self) -> bool:
        return self.ratio <= 1 and not self.error

    def reason(self, condition: str, recipe: Recipe) -> str:
        return self.error or f"{condition} it differs by {self.difference:.2g} from {recipe}"


def worst(recipe: Recipe, views: list[Seen] | Failure, gradients: bool = True) -> Outcome:
    found = Outcome(math.inf, math.inf, views) if isinstance(views, Failure) else Outcome(0, 0)
    for one in views if isinstance(views, list) else ():
        outcome = _compare(recipe, one, gradients)
        if outcome.error or not outcome.ratio <= found.ratio:
            found = outcome
        if not found.agreed:
            break
    return found


def _compare(recipe: Recipe, seen: Seen, gradients: bool) -> Outcome:
    if not seen.is_alike:
        mine, ours = (f"{tuple(t.shape)} {str(t.dtype)[6:]}" for t in (seen.y, seen.x))
        return Outcome(math.inf, math.inf, f"its output is {mine} where the norm's is {ours}")
    value, *slopes = _allowed(recipe, seen)
    values = _outcome(*_values(recipe, seen), value)
    if not gradients or not values.agreed:
        return values
    if not seen.y.requires_grad:
        return Outcome(1, 0, "its output has no gradient")
    found = max((_outcome(*triple) for triple in _gradients(recipe, seen, *slopes)), key=lambda one: one.ratio)
    error = f"its values are those of {recipe}, its gradients are not"
    return found if found.agreed else replace(found, ratio=2, error=error)


def agreeing_rows(recipe: Recipe, seen: Seen) -> list[bool]:
    """Which rows agree in their values and gradients."""
    value, *slopes = _allowed(recipe, seen)
    pair = (*_values(recipe, seen), value), _gradients(recipe, seen, *slopes)[0]
    of_values, of_dx = (_ratios(*triple)[0] <= 1 for triple in pair)
    return (of_values & of_dx).all(1).tolist()


Triple = tuple[Tensor | None, Tensor | None, Tensor]  # the module's, evenorm's and the allowed difference


def _values(recipe: Recipe, seen: Seen) -> tuple[Tensor, Tensor]:
    new = recipe.compute(seen.probe, seen.x.detach(), seen.place.axis, "x")
    return some(seen.place.rows(seen.y.detach())), some(seen.place.rows(new))


def _gradients(recipe: Recipe, seen: Seen, slope: Tensor, steep: Tensor) -> list[Triple]:
    """The gradients of x's rows and of the parameters."""
    old = seen.gradients(seen.x, seen.y)
    x = seen.x.detach().clone().requires_grad_()
    new = seen.gradients(x, recipe.compute(seen.probe, x, seen.place.axis, "x"))
    terms = (steep * some(seen.place.rows(seen.dy))).double().abs().amax(1, keepdim=True)
    # PyTorch's own layer norm sums a bf16 weight's gradient over rows in bf16, which is 5% off over these 15 rows.
    summed = torch.tensor(0.25) if seen.dy.dtype in HALVES else slope.amax()
    chance = seen.dy.double().norm() / math.sqrt(seen.place.cols)  # the terms of a single gain's gradient may cancel
    sizes = (0 if t is None else t.double().abs().amax().clamp(min=chance if t.numel() == 1 else 0) for t in new[1:])
    return list(zip(old, new, [slope * terms, *(summed * size for size in sizes)], strict=True))


def is_as_broken(recipe: Recipe, seen: Seen) -> bool:
    """True if the same rows are not finite in both, and the others agree. (evenorm makes the whole row NaN.)"""
    (old, new), value = _values(recipe, seen), _allowed(recipe, seen)[0]
    sound, clean = (t.isfinite().all(1) for t in (some(seen.rows), old))
    return bool(torch.equal(sound, clean)) and bool((_ratios(old, new, value)[0][sound] <= 1).all())


def _allowed(recipe: Recipe, seen: Seen) -> tuple[Tensor, Tensor, Tensor]:
    """How far two correct computations of the norm may differ: the values; gradients, relative to the largest term of
    their row; and a factor of these terms, which are the factor times dy's elements.

    Both may sum in f32, where the error grows with the row's condition, max|x| / std, and for long rows with their
    length, which PyTorch sums in a few parts. In half types each of a few steps may round. So the limits are 16 u of
    f32, plus 1/64 u for each column, plus 4 u of the type for values, twice that for gradients. Subnormal
    intermediate results are rounded to multiples of the smallest number: a value before gamma in x's type, and x - mean
    or x gamma in f32 or wider.
    """
    x = seen.rows.double()
    eps, dtype = recipe.eps_of(seen.probe), seen.x.dtype
    eps = torch.finfo(torch.promote_types(dtype, torch.float32)).eps if eps is None else eps
    var, mean = torch.var_mean(x, 1, correction=0, keepdim=True)
    if recipe.kind == "rms":
        var, mean = var + mean.square(), torch.zeros(())
    rstd = (var + eps).rsqrt()
    low, high = x.aminmax(dim=1, keepdim=True)
    condition = torch.ones(()) if recipe.kind == "rms" else 1 + torch.maximum(high, -low) * rstd
    affine = recipe.affine(seen.probe, seen.x, seen.place.axis)
    gamma, beta = (
        t if given is None else some(seen.place.spread(given.detach())).double().abs()
        for given, t in zip(affine, (torch.ones(()), torch.zeros(())), strict=True)
    )
    xhat, most = ((some(x) - mean) * rstd).abs(), torch.maximum(high - mean, mean - low) * rstd
    single, half = (1 + seen.place.cols / 1024) * 2.0**-24, torch.finfo(dtype).eps / 2 if dtype in HALVES else 0.0
    value = 16 * single * condition * (gamma * most + beta) + 4 * half * (gamma * xhat + beta)
    smallest, wider = (
        torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
        for dtype in (dtype, torch.promote_types(dtype, torch.float32))
    )
    value = value + (smallest + wider * rstd) * (1 + gamma)
    return value, 32 * single * condition + 8 * half, gamma * rstd


def _ratios(old: Tensor | None, new: Tensor | None, allowed: Tensor) -> tuple[Tensor, Tensor]:
    """Differences relative to the allowed ones, and the differences."""
    if old is None or new is None:
        same = torch.tensor(0.0 if old is new else math.inf)  # no gradient of a parameter that is not used
        return same, same
    old, new = old.detach().double(), new.detach().double()
    same = (old == new) | (old.isnan() & new.isnan())
    difference = torch.where(same, 0.0, (old - new).abs())
    return torch.where(same, 0.0, difference / allowed).nan_to_num(nan=math.inf), difference


def _outcome(old: Tensor | None, new: Tensor | None, allowed: Tensor) -> Outcome:
    ratios, differences = (t.flatten() for t in _ratios(old, new, allowed))
    where = int(ratios.argmax())
    difference = float(differences[where].nan_to_num(nan=math.inf))
    return Outcome(float(ratios[where]), difference, share=float((ratios > 1).double().mean()))

"""Decides whether a module computes a norm: compares its forward with evenorm's on random rows and parameters.

Names and classes prove nothing: zero-centred, gated, unbiased and low-precision variants share them, and a forward may
compute something else for other numbers and sizes of axes. A trial changes neither the module nor a random state.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from . import _probe
from ._look_alikes import LAST, Recipe, Types
from ._probe import Prober, Seen, StateChanged

EPS = (1e-5, 1e-6, 1e-12, 1e-8, None, 1e-3)
HALVES = (torch.bfloat16, torch.float16)
TYPES: tuple[Types, ...] = (
    (torch.float32, torch.float32),
    (torch.float64, torch.float64),
    *((half, half) for half in HALVES),
    *((half, torch.float32) for half in HALVES),
)
BOTH = (True, False)  # training and evaluation


@dataclass(frozen=True)
class Outcome:
    """The largest difference between the module and evenorm compared with the allowed one, or another disagreement."""

    ratio: float  # of the difference to what rounding allows, at its largest
    difference: float
    error: str = ""

    @property
    def agreed(self) -> bool:
        return self.ratio <= 1 and not self.error


AGREED = Outcome(0, 0)
Place = tuple[int, int]  # the number of x's axes, and the axis of its rows


def settle(module: nn.Module, recipe: Recipe) -> Recipe | str:
    """Returns the recipe that the module computes, with types and axes; or the reason why there is none."""
    with _probe.surroundings():
        trial = _Trial(module, recipe)
        try:
            return trial.settle()
        except StateChanged as changed:
            return f"its forward changes its state ({changed})"
        finally:
            trial.prober.memory.restore()


class _Trial:
    def __init__(self, module: nn.Module, recipe: Recipe) -> None:
        self.module, self.recipe = module, recipe
        shape = recipe.shape(module)
        self.shapes = [(cols,) for cols in _probe.FREE_COLS] if shape is None else [shape]
        self.outlying_shapes = self.shapes if shape is not None else [*self.shapes, (_probe.LONG_COLS,)]
        self.prober = Prober(module, len(self.shapes[0]))
        self.single: Types = (torch.float32, None if recipe.weight is None else torch.float32)

    def settle(self) -> Recipe | str:
        found = self._first()
        if isinstance(found, str):
            return found
        recipe, place = found
        types = self._limits(recipe, place, self.single) or self._around(recipe, place) or self._types(recipe, place)
        return types if isinstance(types, str) else self._with_axes(replace(recipe, types=types))

    # --- which norm

    def _places(self) -> list[Place]:
        """Places with many rows, the likeliest ones first."""
        counts = _probe.counts(self.shapes[0])
        order = sorted(counts[1:], key=lambda count: (abs(count - counts[0] - 2), -count))
        return [(count, axis) for count in order for axis in _probe.places(count, self.shapes[0])]

    def _first(self) -> tuple[Recipe, Place] | str:
        """Finds the norm that the module computes in float32, and a place where it does."""
        seen: dict[Place, list[Seen]] = {}
        errors = []
        for place in self._places():
            views = self._plain(place, self.single, BOTH)
            if isinstance(views, str):
                errors.append(views)
            else:
                seen[place] = views
        outcomes = []
        for recipe in _recipes(self.module, self.recipe):
            for place, views in seen.items():
                outcome = _worst(recipe, views)
                if outcome.agreed:
                    return recipe, place
                if outcome.error and outcome.ratio < math.inf:
                    return outcome.error
                outcomes.append((outcome, recipe))
        if not outcomes:
            return errors[0]
        best, nearest = min(outcomes, key=lambda pair: pair[0].ratio)
        return best.error or f"on random input it differs by {best.difference:.2g} from the nearest norm, {nearest}"

    def _plain(self, place: Place, types: Types, modes: tuple[bool, ...]) -> list[Seen] | str:
        inputs = [rows for shape in self.shapes for rows in _probe.plain(place[0], shape)]
        return self._see(inputs, place, types, modes, gradients=True)

    def _see(
        self,
        inputs: list[Tensor],
        place: Place,
        types: Types,
        modes: tuple[bool, ...],
        gradients: bool = False,
        factor: float = 1,
    ) -> list[Seen] | str:
        views = []
        for rows in inputs:
            for training in modes:
                one = self.prober.see(rows, place[1], types, training, gradients, factor=factor)
                if isinstance(one, str):
                    return one
                views.append(one)
        return views

    def _values(
        self,
        recipe: Recipe,
        inputs: list[Tensor],
        place: Place,
        types: Types,
        modes: tuple[bool, ...] = (False,),
        factor: float = 1,
    ) -> Outcome:
        views = self._see(inputs, place, types, modes, factor=factor)
        if isinstance(views, str):
            return Outcome(math.inf, math.inf, views)
        return _worst(recipe, views, gradients=False)

    # --- how large and how small x and the parameters may be, and of which types

    def _limits(self, recipe: Recipe, place: Place, types: Types, modes: tuple[bool, ...] = BOTH) -> str | None:
        """Returns a reason if the module differs on rows that are large, small, not finite or have an outlier, or with
        large parameters: it may have a clamp or nan_to_num. Gradients are not compared."""
        count, dtype = place[0], types[0]
        for inputs, factor, condition in (
            ([_probe.large(count, shape, dtype) for shape in self.shapes], 1, "on large input"),
            ([_probe.small(count, shape) for shape in self.shapes], 1, "on small input"),
            ([_probe.outlying(count, shape) for shape in self.outlying_shapes], 1, "on input with outliers"),
            ([_probe.plain(count, self.shapes[0])[0]], _probe.large_factor(dtype), "with large parameters"),
        ):
            outcome = self._values(recipe, inputs, place, types, modes, factor)
            if not outcome.agreed:
                return outcome.error or f"{condition} it differs by {outcome.difference:.2g} from {recipe}"
        for shape in self.shapes:
            broken = self._see([_probe.not_finite(place[0], shape)], place, types, modes)
            if isinstance(broken, str):
                return broken
            if not all(_is_as_broken(recipe, one, len(shape)) for one in broken):
                return f"on rows that are not finite it differs from {recipe}"
        return None

    def _around(self, recipe: Recipe, place: Place) -> str | None:
        """Returns a reason if the module differs when x has another memory order, or in one of PyTorch's modes."""
        rows = _probe.plain(place[0], self.shapes[-1])[0]
        other = self.prober.see(rows, place[1], self.single, training=False, transposed=True)
        if isinstance(other, Seen) and not _worst(recipe, [other], gradients=False).agreed:  # x.view() may refuse it
            return "it computes something else where x is not contiguous"
        for mode, name in (
            (torch.autocast("cpu", torch.bfloat16), "autocast"),
            (torch.inference_mode(), "inference mode"),
        ):
            with mode:
                agreed = self._values(recipe, [rows], place, self.single).agreed
            if not agreed:
                return f"it computes something else under {name}"
        return None

    def _types(self, recipe: Recipe, place: Place) -> frozenset[Types] | str:
        weight = recipe.tensors(self.module)[0]
        own = weight.dtype if weight is not None else None
        reasons: dict[Types, str] = {}
        for types in TYPES:
            if weight is None and types[1] is not types[0]:
                continue
            pair = (types[0], None if weight is None else types[1])
            reasons[pair] = self._type(recipe, place, pair)
        agreed = frozenset(pair for pair, reason in reasons.items() if not reason)
        mine = (own or torch.float32, own)
        if mine in agreed:
            return agreed
        return f"it is {recipe} in float32, but not in {str(mine[0])[6:]}: {reasons.get(mine, 'not tried')}"

    def _type(self, recipe: Recipe, place: Place, types: Types) -> str:
        views = self._plain(place, types, BOTH)
        if isinstance(views, str):
            return views
        outcome = _worst(recipe, views)
        if not outcome.agreed:
            return outcome.error or f"by {outcome.difference:.2g}"
        return self._limits(recipe, place, types, (False,)) or ""

    # --- for which axes

    def _with_axes(self, recipe: Recipe) -> Recipe | str:
        axes, unlike, ordered, square = [], [], [], True
        for count in _probe.counts(self.shapes[0]):
            axis, ran = self._axis(recipe, count)
            if axis is None:
                unlike += [(count, ran)] if ran else []
                continue
            axes.append((count, axis))
            ordered += [count] if self._is_ordered((count, axis)) else []
            square &= all(_probe.square(count, shape) is not None for shape in self.shapes)
        if not axes:
            return f"it is {recipe}, but not for axes of all sizes"
        if axes[-1][0] < len(self.shapes[0]) + 2 and unlike:
            some = ", ".join(f"{count}-D" for count, _ in axes)
            return f"it is {recipe} of {some} x, but not of {unlike[-1][0]}-D x"
        # If rows lie along the first axis, broadcasting to other shapes is hardly intended and is not reported.
        meant = all(axis == LAST for _, axis in axes)
        reported = tuple(count for count, ran in unlike if meant or ran == "same shape")
        return replace(recipe, axes=tuple(axes), ordered=frozenset(ordered), square=square, unlike=reported)

    def _axis(self, recipe: Recipe, count: int) -> tuple[int | None, str]:
        """Returns the axis of rows for this number of axes, or None; and whether the module accepts such x."""
        ran, agreed = "", []
        for axis in _probe.places(count, self.shapes[0]):
            views = self._plain((count, axis), self.single, BOTH)
            if isinstance(views, str):
                continue
            ran = "same shape" if all(one.y.shape == one.x.shape for one in views) else ran or "another shape"
            agreed += [axis] if _worst(recipe, views).agreed else []
        alone = len(agreed) == 1 and self._is_confirmed(recipe, (count, agreed[0]))
        return (agreed[0] if alone else None), ran

    def _is_confirmed(self, recipe: Recipe, place: Place) -> bool:
        """True if the module agrees for other axes of any sizes, in every type, without gradients."""
        for shape in self.shapes:
            square = _probe.square(place[0], shape) or []
            modes = BOTH if all(one.numel() <= _probe.MOST_ELEMENTS for one in square) else (False,)
            sizes = self._values(recipe, [*_probe.of_one(place[0], shape), *square], place, self.single, modes)
            if not sizes.agreed:
                return False
        plain = [rows for shape in self.shapes for rows in _probe.plain(place[0], shape)]
        return all(self._values(recipe, plain, place, types).agreed for types in recipe.types)

    def _is_ordered(self, place: Place) -> bool:
        """True if y has x's memory order when that is not the order of the axes."""
        rows = _probe.plain(place[0], self.shapes[0])[0]
        if rows.dim() < 2:
            return False
        one = self.prober.see(rows, place[1], self.single, training=False, transposed=True)
        return isinstance(one, Seen) and one.y.stride() == one.x.stride()


def _recipes(module: nn.Module, recipe: Recipe) -> Iterator[Recipe]:
    """Yields the kinds, eps and weights to try, starting with the eps attributes of the module."""
    named = [
        (value, name)
        for name, value in vars(module).items()
        if "eps" in name.lower() and (value is None or (isinstance(value, float | int) and not isinstance(value, bool)))
    ]
    for eps, name in (*named, *((value, None) for value in EPS)):
        if eps is not None and eps < torch.finfo(torch.float32).tiny:
            continue  # float32's squares underflow before such an eps counts; the module may do something else there
        for kind in ("rms", "layer"):
            if (kind == "rms" and recipe.bias is not None) or (kind == "layer" and eps is None):
                continue
            for zero_centred in (False, True) if recipe.weight is not None else (False,):
                yield replace(recipe, kind=kind, eps=eps, eps_name=name, zero_centred=zero_centred)


# --- comparing the module with evenorm


def _worst(recipe: Recipe, views: list[Seen], gradients: bool = True) -> Outcome:
    worst = AGREED
    for one in views:
        outcome = _compare(recipe, one, gradients)
        if outcome.error or not outcome.ratio <= worst.ratio:
            worst = outcome
        if not worst.agreed:
            break
    return worst


def _compare(recipe: Recipe, seen: Seen, gradients: bool) -> Outcome:
    if seen.y.shape != seen.x.shape or seen.y.dtype != seen.x.dtype:
        mine, ours = (f"{tuple(t.shape)} {str(t.dtype)[6:]}" for t in (seen.y, seen.x))
        return Outcome(math.inf, math.inf, f"its output is {mine} where the norm's is {ours}")
    shape = tuple(recipe.shape(seen.probe) or seen.rows.shape[-1:])
    # Many rows repeat, so some are enough.
    old, rows = (t.reshape(-1, *shape) for t in (seen.y_rows.detach(), seen.rows))
    if len(rows) > 1024:
        some = torch.arange(64) * (len(rows) - 1) // 63
        old, rows = old[some], rows[some]
    new = recipe.norm(seen.probe, rows.detach())
    value, *slopes = _allowed(recipe, seen.probe, rows, shape)
    outcome = _outcome(old, new, value)
    return _gradients(recipe, seen, shape, slopes) if gradients and outcome.agreed else outcome


def _gradients(recipe: Recipe, seen: Seen, shape: tuple[int, ...], slopes: list[Tensor]) -> Outcome:
    """Compares the gradients of x and of the parameters, once values agree."""
    if not seen.y.requires_grad:
        return Outcome(1, 0, "its output has no gradient")
    dx_old, *rest_old = seen.gradients
    probe, x = seen.probe, seen.rows.detach().clone().requires_grad_()
    dx_new, *rest_new = torch.autograd.grad(recipe.norm(probe, x), [x, *seen.parameters.values()], seen.dy)
    slope, steep = slopes
    dx_old = None if dx_old is None else dx_old.reshape(-1, *shape)
    axes = tuple(range(-len(shape), 0))
    terms = (steep * seen.dy.reshape(-1, *shape)).detach().double().abs().amax(axes, keepdim=True)
    worst = _outcome(dx_old, dx_new.reshape(-1, *shape), slope * terms)
    # PyTorch's own layer norm sums a bf16 weight's gradient over rows in bf16, which is 5% off over these 15 rows.
    summed = torch.tensor(0.25) if seen.dy.dtype in HALVES else slope.amax()
    for g_old, g_new in zip(rest_old, rest_new, strict=True):
        bound = summed * g_new.detach().double().abs().amax()
        worst = max(worst, _outcome(g_old, g_new, bound), key=lambda one: one.ratio)
    if worst.agreed:
        return worst
    return Outcome(2, worst.difference, f"its values are those of {recipe}, its gradients are not")


def _is_as_broken(recipe: Recipe, seen: Seen, axes: int) -> bool:
    """True if the same rows are not finite in both, and the others agree. (evenorm makes the whole row NaN.)"""
    shape = seen.rows.shape[seen.rows.dim() - axes :]
    old, rows = (t.detach().reshape(-1, *shape) for t in (seen.y_rows, seen.rows))
    sound, clean = (t.flatten(1).isfinite().all(1) for t in (rows, old))
    value, *_ = _allowed(recipe, seen.probe, rows[sound], tuple(shape))
    same = _outcome(old[sound], recipe.norm(seen.probe, rows[sound]).detach(), value)
    return same.agreed and bool(torch.equal(sound, clean))


def _allowed(recipe: Recipe, module: nn.Module, x: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """How far two correct computations of the norm may differ: the values; gradients, relative to the largest term of
    their row; and a factor of these terms, which are the factor times dy's elements.

    Both may sum in f32, where the error grows with the row's condition, max|x| / std. In half types each of a few steps
    may round. So the limits are 16 u of f32 plus 4 u of the type for values, twice that for gradients. Subnormal
    intermediate results are rounded to multiples of the smallest number: a value before gamma in x's type, and x - mean
    in f32 or wider.
    """
    axes = tuple(range(-len(shape), 0))
    wide = x.detach().double()
    eps = recipe.eps_of(module)
    eps = torch.finfo(torch.float64 if x.dtype is torch.float64 else torch.float32).eps if eps is None else eps
    mean = wide.mean(axes, keepdim=True) if recipe.kind == "layer" else torch.zeros(())
    rstd = ((wide - mean).square().mean(axes, keepdim=True) + eps).rsqrt()
    condition = 1 + wide.abs().amax(axes, keepdim=True) * rstd if recipe.kind == "layer" else torch.ones(())
    weight, bias = (None if t is None else t.detach().double() for t in recipe.row(module)[:2])
    gamma = torch.ones(()) if weight is None else (weight + recipe.zero_centred).abs()
    beta = torch.zeros(()) if bias is None else bias.abs()
    xhat = ((wide - mean) * rstd).abs()
    single, half = 2.0**-24, torch.finfo(x.dtype).eps / 2 if x.dtype in HALVES else 0.0
    value = 16 * single * condition * (gamma * xhat.amax(axes, keepdim=True) + beta) + 4 * half * (gamma * xhat + beta)
    smallest, wider = (
        torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
        for dtype in (x.dtype, torch.promote_types(x.dtype, torch.float32))
    )
    value = value + smallest * (1 + gamma) + wider * rstd * gamma
    return value, 32 * single * condition + 8 * half, gamma * rstd


def _outcome(old: Tensor | None, new: Tensor, allowed: Tensor) -> Outcome:
    if old is None:
        return Outcome(math.inf, math.inf)
    old, new = old.detach().double(), new.detach().double()
    same = (old == new) | (old.isnan() & new.isnan())
    difference = torch.where(same, 0.0, (old - new).abs())
    ratio = torch.where(same, 0.0, difference / allowed).nan_to_num(nan=math.inf)
    where = int(ratio.flatten().argmax())
    return Outcome(float(ratio.flatten()[where]), float(difference.flatten()[where].nan_to_num(nan=math.inf)))

"""Decides whether a module computes a norm: compares its forward with evenorm's on random rows and parameters.

Names and classes prove nothing: zero-centred, gated, unbiased and low-precision variants share them, and a forward may
compute something else for other numbers and sizes of axes. A trial changes neither the module nor a random state.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from . import _probe
from ._compare import HALVES, Outcome, agreeing_rows, is_as_broken, worst
from ._look_alikes import EACH, GROUPS, LAST, ORDERS, PER_LENGTH, PLAIN, UNUSED, ZERO_CENTRED, Recipe, Types
from ._probe import Failure, Place, Prober, Seen, StateChanged
from ._state import Memory

USUAL_EPS = 1e-5  # compared and reported if no eps explains what the module gives
TYPES: tuple[Types, ...] = (
    (torch.float32, torch.float32),
    (torch.float64, torch.float64),
    *((half, half) for half in HALVES),
    *((half, torch.float32) for half in HALVES),
)
BOTH = (True, False)  # training and evaluation
WIDE = 2**10  # rows that are tried less: each trial takes longer
MOST_HARD_CODED = 6 * 2**10  # longest rows that are tried where a module works for no other length
SCALES = torch.tensor([(10.0**-k, 0) for k in range(15)], dtype=torch.float64)  # of rows that reveal a clamp
MOST_LEAST = 0.03  # a norm that differs for larger rows is another norm, not one with a clamp


Spot = tuple[int, int]  # the number of x's axes, and the place of its rows


def settle(module: nn.Module, recipe: Recipe) -> Recipe | str:
    """Returns the recipe that the module computes, with types and axes; or the reason why there is none."""
    with _probe.surroundings():
        memory = Memory.of_shared(module)
        try:
            first, *others = _alternatives(module, recipe)
            found = _settle(module, first, memory)
            for one in others:  # only if the first one fails
                better = found if isinstance(found, Recipe) else _settle(module, one, memory)
                found = better if isinstance(better, Recipe) else found
            return found
        except StateChanged as changed:
            return f"its forward changes its state ({changed})"
        except Exception as error:  # the module's backward may raise anything
            return f"it raised {type(error).__name__} when tried: {error}"[:200]
        finally:
            memory.restore()


def _alternatives(module: nn.Module, recipe: Recipe) -> list[Recipe]:
    """The recipe; without tensors, which may not be used; and with lengths of rows that attributes may determine."""
    lengths = _probe.lengths(module) if recipe.shape(module) is None else []
    unused = [] if recipe.weight is None else [replace(recipe, form=UNUSED)]
    return [recipe, *unused, *(replace(recipe, cols=cols) for cols in lengths)]


def _settle(module: nn.Module, recipe: Recipe, memory: Memory) -> Recipe | str:
    """Tries a narrower module first, which costs less and proves the same, and then a few rows of the full length."""
    trial, narrow = _Trial(Prober(module, memory), recipe), _probe.narrowed(module, recipe)
    if narrow is None:
        return trial.settle()
    found = _Trial(Prober(narrow[0], memory), narrow[1]).settle()
    if isinstance(found, Recipe):
        return trial.confirm(replace(found, cols=recipe.cols))
    return trial.settle() if math.prod(trial.shapes[0]) <= MOST_HARD_CODED else found


class _Trial:
    def __init__(self, prober: Prober, recipe: Recipe) -> None:
        self.module, self.recipe, self.prober = prober.module, recipe, prober
        shape = recipe.shape(self.module)
        self.shapes = [(cols,) for cols in _probe.FREE_COLS] if shape is None else [shape]
        self.is_wide = math.prod(self.shapes[0]) > WIDE
        self.single: Types = (torch.float32, None if recipe.weight is None else torch.float32)
        weight = recipe.tensors(self.module)[0]
        self.own: Types = (torch.float32, None) if weight is None else (weight.dtype, weight.dtype)

    def settle(self) -> Recipe | str:
        found = self._first()
        if isinstance(found, str):
            return found
        recipe, spot = found
        types = self._limits(recipe, spot, self.single) or self._around(recipe, spot) or self._types(recipe, spot)
        return types if isinstance(types, str) else self._with_axes(replace(recipe, types=types))

    # --- which norm

    def _spots(self) -> list[Spot]:
        """Spots with many rows, the likeliest ones first."""
        counts = _probe.counts(self.shapes[0])
        order = sorted(counts[1:], key=lambda count: (abs(count - counts[0] - 2), -count))
        spots = [(count, axis) for count in order for axis in _probe.axes(count, self.shapes[0])]
        return spots[:6] if self.is_wide else spots  # those of 3 and 4 axes

    def _places(self, recipe: Recipe, spot: Spot) -> list[Place]:
        return [self._place(recipe, spot, shape) for shape in self.shapes]

    def _place(self, recipe: Recipe, spot: Spot, shape: tuple[int, ...], leading: tuple[int, ...] = ()) -> Place:
        count, axis = spot
        groups = recipe.groups_of(self.module, shape[0]) if axis == GROUPS else 1
        return _probe.place(axis, leading or _probe.leading(axis, count, shape, groups), shape, groups)

    def _first(self) -> tuple[Recipe, Spot] | str:
        """Finds the norm that the module computes in float32, and a spot where it does."""
        failures, nearest, likely, wrong = [], [], None, ""
        for spot in self._spots():
            for base in self._grouped(spot):
                views = self._plain(base, spot, self.single, BOTH)
                if isinstance(views, str):
                    failures.append(views)
                    continue
                for recipe in self._recipes(base, spot):
                    outcome = worst(recipe, self._plain(recipe, spot, self.single, BOTH) if recipe.least else views)
                    if outcome.agreed and self._values(recipe, self._small(recipe, spot), self.single).agreed:
                        return recipe, spot
                    likely = likely or ((recipe, spot) if outcome.agreed else None)
                    wrong = wrong or (outcome.error if outcome.ratio < math.inf else "")
                    nearest.append((outcome, recipe))
        if wrong or likely is not None:
            return wrong or likely  # type: ignore[return-value]  # _limits() reports how it differs
        if not nearest:
            return max(failures, key=lambda failure: failure.line)
        best, recipe = min(nearest, key=lambda pair: (pair[0].share + (pair[1].kind == "group") / 8, pair[0].ratio))
        return best.error or f"on random input it differs by {best.difference:.2g} from the nearest norm, {recipe}"

    def _grouped(self, spot: Spot) -> list[Recipe]:
        """The recipe, or those of group norm with each number of groups that it may have."""
        if spot[1] != GROUPS:
            return [self.recipe]
        if _is_scalar(self.recipe, self.module):
            return []  # group norm has a weight for each channel
        channels = self.shapes[0][0]
        attributes: dict[Any, Any] = vars(self.module)
        named = {name: value for name, value in attributes.items() if "group" in name and type(value) is int}
        numbers = named | {1: 1, EACH: channels}
        return [
            replace(self.recipe, kind="group", groups=groups)
            for groups, number in numbers.items()
            if number > 0 and channels % number == 0 and (spot[0] > 2 or channels >= 4 * number)
        ]

    def _recipes(self, base: Recipe, spot: Spot) -> Iterator[Recipe]:
        """Yields the norms to compare with the module, each with the eps that explains the norm of a tiny row, and then
        RMS norms of rows that are larger than a clamp."""
        place = self._places(base, spot)[-1]
        seen = self.prober.see(_probe.balanced(place), place, self.single, gradients=True, factors=(1, 0))
        fixed = base.weight is None or base.form == UNUSED
        forms = (base.form,) if fixed else (PLAIN, ZERO_CENTRED, PER_LENGTH)[: 2 + _is_scalar(base, self.module)]
        kinds = ("group",) if spot[1] == GROUPS else ("rms", "layer") if base.bias is None else ("layer", "rms")
        recipes = [replace(base, kind=kind, form=form) for kind in kinds for form in forms]
        for recipe in recipes:
            for eps, name in _eps(self.module, recipe, seen):
                yield replace(recipe, eps=eps, eps_name=name)
        for recipe in recipes:
            least = self._least(replace(recipe, eps=0.0), spot) if recipe.kind == "rms" else 0
            if least:
                yield replace(recipe, eps=0.0, least=least)

    def _least(self, recipe: Recipe, spot: Spot) -> float:
        """The root mean square from which on all rows agree, if it is small; else 0."""
        least = 0.0
        for place in self._places(recipe, spot):
            seen = self.prober.see(_probe.rows(SCALES, place), place, self.single, gradients=True)
            if isinstance(seen, str) or not seen.is_alike or not seen.y.requires_grad:
                return 0
            agreed = (*agreeing_rows(recipe, seen)[: len(SCALES)], False).index(False)
            least = max(least, 2 * float(SCALES[agreed - 1, 0])) if agreed else math.inf
        return least if least < MOST_LEAST else 0

    # --- what the module gives

    Inputs = list[tuple[Tensor, Place]]

    def _small(self, recipe: Recipe, spot: Spot) -> Inputs:
        kinds = _probe.SMALL_ROWS
        return [(_probe.rows(kinds, place, recipe.least), place) for place in self._places(recipe, spot)]

    def _plain(self, recipe: Recipe, spot: Spot, types: Types, modes: Sequence[bool]) -> list[Seen] | Failure:
        places = self._places(recipe, spot)
        inputs = [(rows, place) for place in places for rows in _probe.plain(place, recipe.least)]
        return self._see(inputs, types, modes, gradients=True)

    def _see(self, inputs: Inputs, types: Types, modes: Sequence[bool], **options: Any) -> list[Seen] | Failure:
        views = []
        for rows, place in inputs:
            for training in modes:
                one = self.prober.see(rows, place, types, training, **options)
                if isinstance(one, Failure):
                    return one
                views.append(one)
        return views

    def _values(
        self, recipe: Recipe, inputs: Inputs, types: Types, modes: Sequence[bool] = (False,), factor: float = 1
    ) -> Outcome:
        return worst(recipe, self._see(inputs, types, modes, factors=(factor, factor)), gradients=False)

    # --- how large and how small x and the parameters may be, and of which types

    def _limits(self, recipe: Recipe, spot: Spot, types: Types, modes: Sequence[bool] = BOTH) -> str | None:
        """Returns a reason if the module differs on rows that are large, small, not finite or have an outlier, or with
        large parameters: it may have a clamp or nan_to_num. Gradients are not compared."""
        places = self._places(recipe, spot)
        free = len(self.shapes) > 1
        long = [self._place(recipe, spot, (_probe.LONG_COLS,), (2, *[1] * (spot[0] - 2)))] if free else []
        normal = [(_probe.plain(places[0], recipe.least)[0], places[0])]
        for inputs, factor, condition in (
            ([(_probe.large(place, types[0]), place) for place in places], 1, "on large input"),
            (self._small(recipe, spot), 1, "on small input"),
            ([(_probe.outlying(place), place) for place in (*places, *long)], 1, "on input with outliers"),
            (normal, 2.0**8 if types[0] is torch.float16 else 2.0**20, "with large parameters"),
        ):
            outcome = self._values(recipe, inputs, types, modes, factor)
            if not outcome.agreed:
                return outcome.reason(condition, recipe)
        broken = self._see([(_probe.not_finite(place), place) for place in places], types, modes)
        if isinstance(broken, str):
            return broken
        as_broken = all(is_as_broken(recipe, one) for one in broken)
        return None if as_broken else f"on rows that are not finite it differs from {recipe}"

    def _around(self, recipe: Recipe, spot: Spot) -> str | None:
        """Returns a reason if the module differs when x has another memory order, or in one of PyTorch's modes."""
        place = self._places(recipe, spot)[-1]
        rows = _probe.plain(place, recipe.least)[0]
        if not worst(recipe, self._in_orders(recipe, spot), gradients=False).agreed:
            return "it computes something else where x is not contiguous"
        modes: dict[str, Any] = {
            "autocast": torch.autocast("cpu", torch.bfloat16),
            "inference mode": torch.inference_mode(),
        }
        for name, mode in modes.items():
            with mode:
                agreed = self._values(recipe, [(rows, place)], self.single).agreed
            if not agreed:
                return f"it computes something else under {name}"
        return None

    def _types(self, recipe: Recipe, spot: Spot) -> frozenset[Types] | str:
        pairs: Sequence[Types] = (
            TYPES if recipe.weight is not None else [(x, None) for x, weight in TYPES if x is weight]
        )
        pairs = [self.single, self.own] if self.is_wide else pairs
        reasons = {pair: self._type(recipe, spot, pair) for pair in pairs}
        agreed = frozenset(pair for pair, reason in reasons.items() if not reason)
        if self.own in agreed:
            return agreed
        why = reasons.get(self.own, "not tried")
        return f"it is {recipe} in float32, but not in {str(self.own[0])[6:]}: {why}"

    def _type(self, recipe: Recipe, spot: Spot, types: Types) -> str:
        outcome = worst(recipe, self._plain(recipe, spot, types, BOTH))
        if not outcome.agreed:
            return outcome.error or f"by {outcome.difference:.2g}"
        return self._limits(recipe, spot, types, (False,)) or ""

    # --- for which axes

    def _with_axes(self, recipe: Recipe) -> Recipe | str:
        axes: list[tuple[int, int, str, bool]] = []
        unlike: list[tuple[int, str]] = []
        square = True
        for count in _probe.counts(self.shapes[0]):
            axis, ran = self._axis(recipe, count)
            types = frozenset() if axis is None else self._agreed_types(recipe, (count, axis))
            order = self._order(recipe, (count, axis)) if types and axis is not None else None
            if axis is None or order is None:
                unlike += [(count, ran)] if ran else []
                continue
            recipe = replace(recipe, types=types)
            axes.append((count, axis, *order))
            square &= axis == GROUPS or all(_probe.square(count, shape) is not None for shape in self.shapes)
        if not axes:
            return f"it is {recipe}, but not for axes of all sizes"
        if axes[-1][0] < len(self.shapes[0]) + 2 and unlike:
            some = ", ".join(f"{count}-D" for count, *_ in axes)
            other = max((count for count, _ in unlike if count < 5), default=unlike[-1][0])
            return f"it is {recipe} of {some} x, but not of {other}-D x"
        # If rows lie along the first axis, broadcasting to other shapes is hardly intended and is not reported.
        meant = all(axis == LAST for _, axis, *_ in axes)
        reported = tuple(count for count, ran in unlike if meant or ran == "same shape")
        return replace(recipe, axes=tuple(axes), square=square, unlike=reported)

    def _axis(self, recipe: Recipe, count: int) -> tuple[int | None, str]:
        """Returns the place of rows for this number of axes, or None; and whether the module accepts such x."""
        ran, agreed = "", []
        for axis in _probe.axes(count, self.shapes[0]):
            few = axis == GROUPS and self._place(recipe, (count, axis), self.shapes[0]).cols < 4
            if few or (axis == GROUPS) != (recipe.kind == "group"):
                continue
            views = self._plain(recipe, (count, axis), self.single, BOTH)
            if isinstance(views, str):
                continue
            ran = "same shape" if all(one.y.shape == one.x.shape for one in views) else ran or "another shape"
            agreed += [axis] if worst(recipe, views).agreed else []
        return (agreed[0] if len(agreed) == 1 else None), ran

    def _agreed_types(self, recipe: Recipe, spot: Spot) -> frozenset[Types]:
        """The types for which the module agrees without gradients; none if not its own, or not for all sizes."""
        for shape in self.shapes:
            sizes = [(1,) * (spot[0] - len(shape)), *(_probe.square(spot[0], shape) or [])]
            places = [self._place(recipe, spot, shape, leading) for leading in sizes]
            inputs = [(_probe.rows(_probe.ROWS[2:], place, recipe.least), place) for place in places if place.cols > 1]
            modes = BOTH if all(rows.numel() <= _probe.MOST_ELEMENTS for rows, _ in inputs) else (False,)
            if not self._values(recipe, inputs, self.single, modes).agreed:
                return frozenset()
        plain = [(rows, place) for place in self._places(recipe, spot) for rows in _probe.plain(place, recipe.least)]
        types = frozenset(types for types in recipe.types if self._values(recipe, plain, types).agreed)
        return types if self.own in types else frozenset()

    def _order(self, recipe: Recipe, spot: Spot) -> tuple[str, bool] | None:
        """Returns y's memory order, and whether it is so for contiguous x only; None if evenorm cannot keep it."""
        seen = self._in_orders(recipe, spot)
        for views, contiguous in ((seen, False), (seen[:1], True)):
            for order in ORDERS:
                ours = [recipe.compute(one.probe, one.x, spot[1], order) for one in views]
                if [_strides(y) for y in ours] == [_strides(one.y) for one in views]:
                    return order, contiguous
        return None

    def _in_orders(self, recipe: Recipe, spot: Spot) -> list[Seen]:
        """Views of x that is contiguous in memory, and with the last two axes swapped, the first one after the batch's
        last, and all axes reversed. x.view() may refuse them."""
        axes = list(range(spot[0]))
        orders = [axes, [*axes[:-2], *axes[:-3:-1]], [*axes[:1], *axes[2:], *axes[1:2]], axes[::-1]]
        place = self._places(recipe, spot)[-1]
        rows = _probe.plain(place, recipe.least)[0]
        views = [self.prober.see(rows, place, self.single, order=order) for order in orders]
        return [one for one in views if isinstance(one, Seen)]

    # --- at full length

    def confirm(self, recipe: Recipe) -> Recipe | str:
        """Compares a few rows of the module's own length, for what a narrower module settled."""
        shape = self.shapes[0]
        eps = recipe.eps_of(self.module)
        small = torch.tensor(
            [[math.sqrt(torch.finfo(torch.float32).eps if eps is None else eps), 0]]
        )  # eps counts here
        for count, axis, *_ in recipe.axes:
            leading = (1, 3, 5, 2)[: count - 1] if axis == GROUPS else (1,) * (count - len(shape))
            place = self._place(recipe, (count, axis), shape, leading)
            if place.cols == 1:
                continue
            first = count == recipe.axes[0][0]
            views = self._see([(_probe.rows(_probe.ROWS[2:3], place), place)], self.own, (False,), gradients=first)
            outcome = worst(recipe, views, first)
            if first and outcome.agreed:
                outcome = self._values(recipe, [(_probe.outlying(place), place)], self.own)
            if first and outcome.agreed:
                outcome = self._values(recipe, [(_probe.rows(small.double(), place, recipe.least), place)], self.own)
            if not outcome.agreed:
                return outcome.reason(f"with rows of {place.cols} elements", recipe)
        return recipe


def _is_scalar(recipe: Recipe, module: nn.Module) -> bool:
    weight = recipe.tensors(module)[0]
    return weight is not None and weight.numel() == 1 and recipe.form != UNUSED


def _strides(t: Tensor) -> list[int]:
    return [stride for stride, size in zip(t.stride(), t.shape, strict=True) if size > 1]


def _eps(module: nn.Module, recipe: Recipe, seen: Seen | Failure) -> list[tuple[float | None, str | None]]:
    """The eps that explain the norm of tiny rows, with the name of an attribute that holds it: x weight / y is the root
    of the mean of squares + eps."""
    if isinstance(seen, str) or not seen.is_alike:
        return [(USUAL_EPS, None)]
    weight = recipe.affine(seen.probe, seen.x, seen.place.axis)[0]
    x, y = seen.rows.double(), seen.place.rows(seen.y.detach()).double()
    x = x if weight is None else x * seen.place.spread(weight.detach().double())
    sums = ((x / y)[x != 0]).square()
    eps = float(sums.nanmedian()) - float(seen.rows.double().square().mean())
    if not torch.finfo(torch.float32).tiny < eps < math.inf or not sums.max() < 1.1 * sums.min():
        return [(USUAL_EPS, None)]  # smaller ones do not count in float32

    def fits(value: Any) -> bool:
        value = torch.finfo(torch.float32).eps if value is None and recipe.kind == "rms" else value
        return type(value) in (float, int) and 0.999 * eps < value < 1.001 * eps

    named = [(value, name) for name, value in vars(module).items() if "eps" in name.lower() and fits(value)]
    default = [(value, None) for value in (None, torch.finfo(torch.float32).eps) if fits(value)]
    return [*named, *default, (float(f"{eps:.3g}"), None)]

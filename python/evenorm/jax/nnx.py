"""LayerNorm and RMSNorm for flax.nnx: parameters, options and types of results are Flax's."""

from typing import Any

import jax
from flax import nnx

from ._flax import compute, normalized_axes
from ._norms import layer_norm, rms_norm

__all__ = ["LayerNorm", "RMSNorm"]


def _reshaped(parameter: Any, x: Any, axes: tuple[int, ...]) -> Any:
    return None if parameter is None else parameter[...].reshape([x.shape[axis] for axis in axes])


class _ZeroCentered(nnx.Module):
    """The option zero_centered."""

    def __init__(self, *arguments: Any, zero_centered: bool = False, **options: Any) -> None:
        defaults = {"scale_init": nnx.initializers.zeros} if zero_centered else {}
        super().__init__(*arguments, **{**defaults, **options})
        self.zero_centered = zero_centered


class LayerNorm(_ZeroCentered, nnx.LayerNorm):
    """A flax.nnx.LayerNorm that evenorm computes.

    With `zero_centered`, it multiplies by 1 + scale, and `scale_init` is zeros by default.

    Flax computes what evenorm does not support: masks, `axis_name`, and `feature_axes` other than `reduction_axes`. It
    lacks `zero_centered`: a ValueError. `use_fast_variance` changes nothing, because evenorm's accuracy does not depend on
    it. x and the parameters are not rounded to `dtype` before they are used. So `promote_dtype` is not called.

    >>> from flax import nnx
    >>> norm = LayerNorm(2, epsilon=0, rngs=nnx.Rngs(0))
    >>> print(norm(jax.numpy.array([[1.0, 2], [1, 5]])))
    [[-1.  1.]
     [-1.  1.]]
    """

    def __call__(self, x: Any, *, mask: jax.Array | None = None) -> Any:
        axes = normalized_axes(self, x, mask)
        if axes is None:
            return super().__call__(x, mask=mask)
        return compute(layer_norm, self, x, axes, _reshaped(self.scale, x, axes), _reshaped(self.bias, x, axes))


class RMSNorm(_ZeroCentered, nnx.RMSNorm):
    """A flax.nnx.RMSNorm that evenorm computes, like `LayerNorm`.

    >>> from flax import nnx
    >>> norm = RMSNorm(2, epsilon=0, rngs=nnx.Rngs(0))
    >>> print(norm(jax.numpy.array([[3.0, 3], [-2, 2]])))
    [[ 1.  1.]
     [-1.  1.]]
    """

    def __call__(self, x: Any, mask: jax.Array | None = None) -> Any:
        axes = normalized_axes(self, x, mask)
        if axes is None:
            return super().__call__(x, mask=mask)
        return compute(rms_norm, self, x, axes, _reshaped(self.scale, x, axes), None)

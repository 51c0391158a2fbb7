"""LayerNorm and RMSNorm for flax.linen: parameters, options and types of results are Flax's."""

from typing import Any

import flax.linen as nn
import jax

from ._flax import compute, normalized_axes
from ._norms import layer_norm, rms_norm

__all__ = ["LayerNorm", "RMSNorm"]


def _parameters(module: Any, x: Any, axes: tuple[int, ...], use_bias: bool) -> tuple[Any, Any]:
    """The module's scale and bias. Call it inside of a compact method."""
    shape = tuple(x.shape[axis] for axis in axes)
    by_default = module.zero_centered and module.scale_init is nn.initializers.ones
    init = nn.initializers.zeros if by_default else module.scale_init
    scale = module.param("scale", init, shape, module.param_dtype) if module.use_scale else None
    return scale, module.param("bias", module.bias_init, shape, module.param_dtype) if use_bias else None


class LayerNorm(nn.LayerNorm):
    """A flax.linen.LayerNorm that evenorm computes.

    With `zero_centered`, it multiplies by 1 + scale, and `scale_init` is zeros by default.

    Flax computes what evenorm does not support: masks, `axis_name`, and `feature_axes` other than `reduction_axes`. It
    lacks `zero_centered`: a ValueError. `use_fast_variance` and `force_float32_reductions` change nothing, because
    evenorm's accuracy does not depend on them.

    >>> import jax
    >>> x = jax.numpy.array([[1.0, 2], [1, 5]])
    >>> norm = LayerNorm(epsilon=0)
    >>> print(norm.apply(norm.init(jax.random.key(0), x), x))
    [[-1.  1.]
     [-1.  1.]]
    """

    zero_centered: bool = False

    @nn.compact
    def __call__(self, x: Any, *, mask: jax.Array | None = None) -> Any:
        axes = normalized_axes(self, x, mask)
        if axes is None:
            return super().__call__(x, mask=mask)
        return compute(layer_norm, self, x, axes, *_parameters(self, x, axes, self.use_bias))


class RMSNorm(nn.RMSNorm):
    """A flax.linen.RMSNorm that evenorm computes, like `LayerNorm`.

    >>> import jax
    >>> x = jax.numpy.array([[3.0, 3], [-2, 2]])
    >>> norm = RMSNorm(epsilon=0)
    >>> print(norm.apply(norm.init(jax.random.key(0), x), x))
    [[ 1.  1.]
     [-1.  1.]]
    """

    zero_centered: bool = False

    @nn.compact
    def __call__(self, x: Any, *, mask: jax.Array | None = None) -> Any:
        axes = normalized_axes(self, x, mask)
        if axes is None:
            return super().__call__(x, mask=mask)
        return compute(rms_norm, self, x, axes, *_parameters(self, x, axes, False))

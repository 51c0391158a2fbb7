"""evenorm for JAX on the CPU: layer norm and RMS norm under jit, grad, vmap and shard_map.

import evenorm.jax
y = evenorm.jax.layer_norm(x, 768, weight, bias)

The modules for Flax are in `evenorm.jax.linen` and `evenorm.jax.nnx`, which are imported separately.
"""

from . import _calls as _calls  # first, because it reports what is missing
from ._norms import layer_norm, rms_norm

__all__ = ["layer_norm", "rms_norm"]

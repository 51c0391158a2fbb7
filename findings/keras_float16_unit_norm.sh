#!/bin/sh
# Keras squares in float16 where it normalises to unit length: rows of 300 become 0, although LayerNormalization is
# right.
#
# Keras 3.15.1 on JAX and TensorFlow. LayerNormalization and RMSNormalization compute float16 in float32.
# UnitNormalization and keras.ops.normalize do not: the squares overflow, and the row is divided by infinity.
# keras.ops.moments computes in float32, but returns a variance of at most 65504: of +-60000 it is 3.6e9. evenorm
# computes float16 rows in float32, and its statistics are float64.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip --disable-pip-version-check install --quiet keras==3.15.1 jax==0.10.2 numpy==2.4.6
cat >"$folder/check.py" <<'END'
import keras
import numpy as np

for value in (100, 300):
    x = np.full((1, 4), value, np.float16)
    for layer in (keras.layers.UnitNormalization(dtype="float16"), keras.layers.RMSNormalization(dtype="float16")):
        print(f"{type(layer).__name__} of {value}: {float(layer(x)[0, 0])}")
_, variance = keras.ops.moments(np.array([[60000, -60000] * 2], np.float16), [1])
print(f"variance of +-60000: {float(variance[0])}")
END
export KERAS_BACKEND=jax
"$python" -W ignore "$folder/check.py" 2>"$folder/errors" >"$folder/seen" || { cat "$folder/errors"; exit 1; }
cat "$folder/seen"
diff "$folder/seen" - <<'END'
UnitNormalization of 100: 0.5
RMSNormalization of 100: 1.0
UnitNormalization of 300: 0.0
RMSNormalization of 300: 1.0
variance of +-60000: 65504.0
END

#!/bin/sh
# The demo: the layer norm of a real model's first block on its real activations, through the library and then through
# the command line, which must give the same bytes. What is shown comes from examples/minilm_demo.cpp.
set -eu
cd "$(dirname "$0")/.."
data=examples/minilm
mkdir -p build/demo

build/minilm_demo $data/hidden.npy $data/weight.npy $data/bias.npy $data/expected.npy build/demo/output.npy

echo
echo "The same through the command line:"
set -- build/evenorm apply $data/hidden.npy -o build/demo/apply.npy --weight $data/weight.npy --bias $data/bias.npy \
  --eps 1e-12
echo "  $*"
"$@"
cmp build/demo/output.npy build/demo/apply.npy
echo "  build/demo/apply.npy and build/demo/output.npy are equal byte for byte"

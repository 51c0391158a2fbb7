#!/bin/sh
# Runs the demo: a real model's layer norm on its activations, through the library (examples/minilm_demo.cpp) and then
# through the command line. Both must give the same bytes.
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

#!/usr/bin/env bash
# A CUDA compiler without a system toolkit: pinned wheels from the Python package index, unpacked into
# build/cuda-toolchain. About 100 MB to fetch and 280 MB on disk, once; afterwards it works offline. No driver is needed.
#
#   scripts/cuda_toolchain.sh             installs what is missing and prints the toolkit's root
#   scripts/cuda_toolchain.sh --find      prints the root of a toolkit that is already here; exit status 1 if none is
#
# A system toolkit (CUDA_HOME, nvcc on PATH, /usr/local/cuda) of CUDA 12.4 or newer is preferred to fetching one.
# NVIDIA's wheels are proprietary and only compile: nothing of them but the static runtime gets into what is built.
set -eu
cd "$(dirname "$0")/.."

# All name their version: left to themselves they mix, and the compiler rejects its own headers. The last two disassemble.
packages='nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-cccl==13.0.85
nvidia-cuda-runtime==13.0.96 nvidia-cuda-cuobjdump==13.2.51 nvidia-cuda-nvdisasm==13.2.51'
folder=$PWD/build/cuda-toolchain
stamp=$folder/.complete

is_new_enough() {
  [ -x "$1/bin/nvcc" ] || return 1
  "$1/bin/nvcc" --version 2>/dev/null | awk -F'release |,' '/release/ { split($2, v, "."); exit !(v[1] * 100 + v[2] >= 1204) }'
}

find_system() {
  local root
  for root in "${CUDA_HOME:-}" "$(dirname "$(dirname "$(readlink -f "$(command -v nvcc || echo /none/bin/nvcc)")")")" \
              /usr/local/cuda; do
    if [ -n "$root" ] && is_new_enough "$root" && [ -e "$root/include/cuda_runtime.h" ]; then
      echo "$root"
      return 0
    fi
  done
  return 1
}

# The folder that the wheels share.
fetched_root() { dirname "$(dirname "$(find "$folder" -path '*/nvidia/cu13/bin/nvcc' | head -n 1)")"; }

find_fetched() { [ "$(cat "$stamp" 2>/dev/null)" = "$packages" ] && fetched_root; }

find_system || find_fetched && exit 0
[ "${1:-}" = --find ] && exit 1

python=.venv/bin/python
[ -x "$python" ] || python=python3
rm -rf "$folder"
mkdir -p "$folder"
log=$folder/install.log
# shellcheck disable=SC2086  # one word for each package
if ! "$python" -m pip --disable-pip-version-check install --quiet --no-deps --only-binary=:all: --target "$folder/wheels" \
  $packages >"$log" 2>&1; then
  echo "flashmob: the package index has no CUDA compiler for this machine (wanted: $(echo $packages));" >&2
  echo "flashmob: install a CUDA toolkit of 12.4 or newer and set CUDA_HOME, or go on without. pip said:" >&2
  tail -n 5 "$log" >&2
  exit 1
fi
root=$(fetched_root)
# nvcc looks for lib64, and its linker for a libcudart without a version.
ln -sfn lib "$root/lib64"
ln -sf libcudart.so.13 "$root/lib/libcudart.so"
printf '%s' "$packages" >"$stamp"
echo "$root"

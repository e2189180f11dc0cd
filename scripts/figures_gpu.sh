#!/usr/bin/env bash
# SwarmIO's evaluation of the SSD whose engine runs on the GPU, within 8 minutes: builds the kernels, runs the tests that
# need a GPU, then all sweeps, as JSON and a figure in out/gpu-figures. A result of a real GPU is kept under
# bench/results. Where there is no GPU it says so and runs the sweeps small, in virtual time.
. "$(dirname "$0")/step.sh"
if command -v nvidia-smi >/dev/null 2>&1; then
  gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1)
  step "cuda compiler" scripts/cuda_toolchain.sh || exit 1
  # For this GPU and for one policy: the others are no part of the evaluation.
  architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)
  step "build" bash -c "cmake --preset release -DFLASHMOB_CUDA=ON '-DFLASHMOB_CUDA_ARCHITECTURES=$architecture' -DFLASHMOB_CUDA_EVERY_POLICY=OFF && cmake --build --preset release -j $jobs --target flashmob_cuda gpu_cuda_test" || exit 1
  export FLASHMOB_CUDA_LIBRARY=$PWD/build/release/gpu/cuda/libflashmob_cuda.so
  step "gpu tests" timeout -k 10 60 ctest --preset release -R '^gpu_cuda_test$' || exit 1
fi
# A kernel that does not end is stopped by the engine's host; if that fails, by the end of its process.
timeout -k 10 420 .venv/bin/flashmob gpu figures --out out/gpu-figures || failed=$((failed + 1))
if [ -n "${gpu:-}" ]; then
  name=$(echo "$gpu" | tr -cs 'A-Za-z0-9' '-' | tr 'A-Z' 'a-z')
  mkdir -p bench/results
  cp out/gpu-figures/gpu-figures.json "bench/results/gpu-figures-${name%-}-$(date -u +%Y-%m-%d).json" && ls bench/results
fi
[ "$failed" -eq 0 ]

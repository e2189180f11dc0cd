#!/usr/bin/env bash
# Everything about GPUs that this machine can show, within 8 minutes: the GPU tests, then every workload with data
# checks, as JSON and figures in out/gpu. Where there is no GPU it says so and runs on the CPU at small sizes.
. "$(dirname "$0")/step.sh"
cuda=OFF
command -v nvidia-smi >/dev/null 2>&1 && cuda=ON
if [ "$cuda" = ON ]; then
  echo "GPU found: $(nvidia-smi --query-gpu=name --format=csv,noheader | head -1)"
else
  echo "no GPU found: nvidia-smi is not there; the CPU stands in, at small sizes"
fi
targets=(simt_test gpu_host_test)
for folder in gpu/tests/*/; do
  compgen -G "$folder*.cpp" >/dev/null && targets+=("gpu_$(basename "$folder")_test")
done
if [ "$cuda" = ON ]; then
  step "cuda compiler" scripts/cuda_toolchain.sh || exit 1
  targets+=(flashmob_cuda flashmob_cuda_test)
fi

step "build" bash -c "cmake --preset release -DFLASHMOB_CUDA=$cuda && cmake --build --preset release -j $jobs --target ${targets[*]}" || exit 1
step "gpu tests" timeout 180 ctest --preset release -j "$jobs" -R '^(simt|gpu_[a-z_]+)_test$' && closing_line "gpu tests" 'tests passed'
[ "$cuda" = ON ] && export FLASHMOB_CUDA_LIBRARY=$PWD/build/release/gpu/cuda/libflashmob_cuda.so
timeout 240 .venv/bin/flashmob gpu check --out out/gpu || failed=$((failed + 1))
[ "$failed" -eq 0 ]

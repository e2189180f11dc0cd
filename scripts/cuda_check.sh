#!/usr/bin/env bash
# Compiles all device code with nvcc for every architecture we support, without warnings, and writes down the registers
# that each kernel takes; the service kernel has a bar, and so have fences that reach beyond the GPU. Needs no GPU. Where no CUDA compiler can be had it says so and is
# content, but not in continuous integration: nobody reads there what was left out.
. "$(dirname "$0")/step.sh"

if ! scripts/cuda_toolchain.sh >build/logs/cuda-toolchain.log 2>&1; then
  printf '%-22s skipped          no CUDA compiler: build/logs/cuda-toolchain.log\n' "cuda kernels"
  tail -n 5 build/logs/cuda-toolchain.log
  [ "${CI:-}" != true ]
  exit
fi
# Continuous integration has little time: one architecture, and the workloads for one cache policy.
options="'-DFLASHMOB_CUDA_ARCHITECTURES=80;90' -DFLASHMOB_CUDA_EVERY_POLICY=ON"
[ "${CI:-}" = true ] && options="-DFLASHMOB_CUDA_ARCHITECTURES=90 -DFLASHMOB_CUDA_EVERY_POLICY=OFF"
step "cuda kernels" bash -c "cmake --preset release -DFLASHMOB_CUDA=ON $options && cmake --build --preset release --target flashmob_cuda flashmob_cuda_test -j $jobs" || exit 1
table=build/logs/cuda-registers.txt
.venv/bin/python scripts/cuda_registers.py --json build/logs/cuda-registers.json build/release/gpu/cuda/*.ptxas >$table || exit 1
printf '%s registers a thread (all %d kernels: %s)\n' "$(awk '/ ServiceKernel / { print "service kernel:", $3 }' $table)" \
  $(($(wc -l <$table) - 1)) $table
objects=build/release/gpu/cuda
cuobjdump=$(scripts/cuda_toolchain.sh --find)/bin/cuobjdump
if [ -x "$cuobjdump" ]; then
  step "cuda fences" scripts/cuda_fences.py "$cuobjdump" $objects/engine.o $objects/evaluation.o $objects/queues.o || exit 1
else
  printf '%-22s skipped          this CUDA toolkit has no cuobjdump\n' "cuda fences"
  [ "${CI:-}" != true ]
fi

#!/usr/bin/env bash
# The first hour on a GPU: steps of less than 10 minutes each, from what hangs soonest to what is worth measuring. Each
# leaves out/gpu-first-hour/STEP.json and a log; one that has passed is not done again, so that the hour may be cut up.
#
#   scripts/gpu_first_hour.sh                 on this machine's GPU
#   scripts/gpu_first_hour.sh --stand-in      the same steps on a library that stands in for a GPU: rehearsal, no figures
#   scripts/gpu_first_hour.sh --list          the steps, and what each needs
#   scripts/gpu_first_hour.sh [...] STEP...   these steps alone, whether they have passed or not
. "$(dirname "$0")/step.sh"

all="build costs vocabulary sanitizer rules suites one-unit workloads sweeps profile"
needs_gpu="costs sanitizer profile"
where=gpu
chosen=
for word in "$@"; do
  case $word in
    --stand-in) where=stand-in ;;
    --list) where=list ;;
    *)
      case " $all " in
        *" $word "*) chosen="$chosen $word" ;;
        *) echo "there is no step $word: use $all" >&2; exit 2 ;;
      esac ;;
  esac
done

about() {
  case $1 in
    build) echo "kernels for this GPU, the tests' runners, the flashmob command" ;;
    costs) echo "what the operations of device code take on this GPU, and its clock's step, as JSON" ;;
    vocabulary) echo "warp functions, atomics, shared memory, the clock's comparison" ;;
    sanitizer) echo "the same under compute-sanitizer" ;;
    rules) echo "what CUDA demands of the host's side, on the stand-in wherever it runs" ;;
    suites) echo "the tests of queues, cache and arrays through the CUDA backend" ;;
    one-unit) echo "the engine, a service and an application, each block verified; the clock's step is in the JSON" ;;
    workloads) echo "CTC, random I/O, graphs and DLRM, compared with plain computations; a figure" ;;
    sweeps) echo "rates at target, threads, queues and block sizes, with a copy kernel's bound of the same run; a figure" ;;
    profile) echo "one point under Nsight Systems" ;;
  esac
}

if [ "$where" = list ]; then
  for name in $all; do
    also=
    [[ " $needs_gpu " == *" $name "* ]] && also=" (needs a GPU)"
    printf '%-12s %s%s\n' "$name" "$(about "$name")" "$also"
  done
  exit 0
fi
if [ "$where" = gpu ] && ! nvidia-smi --query-gpu=name --format=csv,noheader >/dev/null 2>&1; then
  echo "there is no GPU on this machine (nvidia-smi finds none): rehearse with scripts/gpu_first_hour.sh --stand-in, or make gpu-first-hour STAND_IN=1"
  exit 1
fi

out=out/gpu-first-hour
[ "$where" = stand-in ] && out=out/gpu-first-hour-stand-in
mkdir -p "$out"
limit=${GPU_STEP_SECONDS:-590}
tests="gpu_cuda_test gpu_rules_test gpu_on_stand_in_test gpu_stand_in_test gpu_array_test gpu_queue_test gpu_cache_test"
release=$PWD/build/release/gpu
stand_in=$release/tests/stand_in/libflashmob_cuda_stand_in.so
if [ "$where" = gpu ]; then
  gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1)
  export FLASHMOB_CUDA_LIBRARY=$release/cuda/libflashmob_cuda.so
else
  gpu="stand-in (simulated)"
  export FLASHMOB_CUDA_LIBRARY=$stand_in
fi
echo "$gpu: steps in $out"

do_build() {
  if [ "$where" = gpu ]; then
    local architecture
    architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)
    scripts/cuda_toolchain.sh &&
      cmake --preset release -DFLASHMOB_CUDA=ON "-DFLASHMOB_CUDA_ARCHITECTURES=$architecture" -DFLASHMOB_CUDA_EVERY_POLICY=OFF &&
      cmake --build --preset release -j "$jobs" --target flashmob_cuda flashmob_gpu_costs flashmob_cuda_test flashmob_cuda_stand_in $tests
  else
    cmake --preset release && cmake --build --preset release -j "$jobs" --target flashmob_cuda_stand_in $tests
  fi
}

do_suites() {
  local library=$FLASHMOB_CUDA_LIBRARY suite
  [ "$where" = gpu ] && library=$release/cuda/libflashmob_cuda_test.so
  for suite in array queue cache; do
    local filter='*OnBackend.*'
    [ "$suite" = array ] && filter='*'
    # Thousands of lanes that only compute take the stand-in minutes.
    [ "$suite" = array ] && [ "$where" = stand-in ] && filter='Array.*:Striped.*:Replicated.*'
    FLASHMOB_GPU_TEST_BACKEND=cuda FLASHMOB_CUDA_LIBRARY=$library \
      "$release/gpu_${suite}_test" --gtest_brief=1 "--gtest_filter=$filter" || return 1
  done
}

do_step() {
  local flashmob=.venv/bin/flashmob quick=
  [ "$where" = stand-in ] && quick=--quick
  case $1 in
    build) do_build ;;
    costs) "$release/cuda/bench_gpu_operation_costs" >"$out/operation-costs.json" && cat "$out/operation-costs.json" ;;
    vocabulary) "$release/gpu_cuda_test" --gtest_brief=1 ;;
    sanitizer) compute-sanitizer --error-exitcode 9 "$release/gpu_cuda_test" --gtest_brief=1 ;;
    rules)
      "$release/gpu_stand_in_test" --gtest_brief=1 &&
        FLASHMOB_CUDA_LIBRARY=$stand_in "$release/gpu_rules_test" --gtest_brief=1 &&
        FLASHMOB_CUDA_LIBRARY=$stand_in "$release/gpu_on_stand_in_test" --gtest_brief=1 ;;
    suites) do_suites ;;
    one-unit) $flashmob gpu figures --quick --backend cuda --out "$out/one-unit" ;;
    workloads) $flashmob gpu check $quick --backend cuda --out "$out/workloads" ;;
    sweeps) $flashmob gpu figures $quick --backend cuda --out "$out/sweeps" ;;
    profile) nsys profile --force-overwrite true -o "$out/profile" $flashmob gpu figures --quick --backend cuda --out "$out/profiled" ;;
  esac
}

# STEP.json: whether the step has passed, in how many seconds, on what, and where its log is.
note() {
  printf '{"schema": "flashmob-gpu-first-hour", "step": "%s", "passed": %s, "seconds": %d, "device": "%s", "simulated": %s, "date": "%s", "log": "%s"}\n' \
    "$1" "$2" "$3" "$gpu" "$([ "$where" = gpu ] && echo false || echo true)" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$out/$1.log" >"$out/$1.json"
}

export -f do_step do_build do_suites
export where out release stand_in tests jobs
for name in ${chosen:-$all}; do
  if [ "$where" = stand-in ] && [[ " $needs_gpu " == *" $name "* ]]; then
    printf '%-12s needs a GPU: %s\n' "$name" "$(about "$name")"
    continue
  fi
  if [ -z "$chosen" ] && grep -qs '"passed": true' "$out/$name.json"; then
    printf '%-12s has passed before\n' "$name"
    continue
  fi
  started=$SECONDS
  if timeout -k 10 "$limit" bash -c "do_step $name" >"$out/$name.log" 2>&1 </dev/null; then
    note "$name" true $((SECONDS - started))
    printf '%-12s ok      %4d s   %s\n' "$name" $((SECONDS - started)) "$(tail -n 1 "$out/$name.log" | cut -c1-100)"
  else
    note "$name" false $((SECONDS - started))
    failed=$((failed + 1))
    printf '%-12s FAILED  %4d s   whole log: %s\n' "$name" $((SECONDS - started)) "$out/$name.log"
    tail -n "${STEP_TAIL:-20}" "$out/$name.log"
    # Nothing can be run that has not been built.
    [ "$name" = build ] && exit 1
  fi
done
# All steps' notes, one a line.
for name in $all; do cat "$out/$name.json" 2>/dev/null; done >"$out/steps.jsonl"
[ "$failed" -eq 0 ]

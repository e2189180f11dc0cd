#!/usr/bin/env bash
# Builds the programs of bench/ and runs them one after the other: scripts/bench.sh [NAME...]
# They want both cores of a small machine for themselves; each says how quiet the machine was.
. "$(dirname "$0")/step.sh"
step "bench build" bash -c "cmake --preset release && cmake --build --preset release -j $jobs --target benchmarks" || exit 1

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  for source in bench/*.cpp; do names+=("$(basename "$source" .cpp)"); done
  for source in bench/gpu/*.cpp; do names+=("gpu_$(basename "$source" .cpp)"); done
fi
for name in "${names[@]}"; do
  printf '\n== %s\n' "$name"
  program=build/release/bench/bench_$name
  [ -x "$program" ] || program=build/release/bench/gpu/bench_$name
  "$program" || failed=$((failed + 1))
done
[ "$failed" -eq 0 ]

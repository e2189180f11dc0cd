#!/usr/bin/env bash
# Every test, one line each: C++ in release (gcc), under ASan and UBSan, the threaded rooms under TSan (both clang);
# device code with nvcc; fuzzers; Python; style.
# All of them run even when one fails; the exit status tells.
. "$(dirname "$0")/step.sh"

# suite PRESET [PREFIX...]: configures, builds and runs one CMake preset.
suite() {
  local preset=$1
  shift
  step "$preset build" bash -c "cmake --preset $preset && cmake --build --preset $preset -j $jobs" || return
  step "$preset tests" "$@" ctest --preset "$preset" -j "$jobs" && closing_line "$preset tests" 'tests passed'
}

# Where address-space randomisation is strong, gcc's TSan finds its shadow memory taken; it needs a plain layout.
plain_layout=()
setarch "$(uname -m)" -R true 2>/dev/null && plain_layout=(setarch "$(uname -m)" -R)

scripts/lint.sh quick || failed=$((failed + 1))
scripts/cuda_check.sh || failed=$((failed + 1))
suite release
scripts/outside_check.sh || failed=$((failed + 1))
scripts/fio_engine.sh || { [ $? -eq 3 ] && [ "${CI:-}" != true ]; } || failed=$((failed + 1))
# A file's tests share what they have started.
step "python tests" .venv/bin/python -m pytest -q -n "$jobs" --dist loadfile && closing_line "python tests" 'passed'
suite asan
suite tsan "${plain_layout[@]}"
scripts/fuzz.sh || failed=$((failed + 1))

if [ "$failed" -gt 0 ]; then
  echo "$failed of the steps above failed"
  exit 1
fi
echo "all tests passed in $((SECONDS / 60)) min $((SECONDS % 60)) s"

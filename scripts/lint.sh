#!/usr/bin/env bash
# Style and static checks, changing nothing: scripts/lint.sh [quick]. `quick` leaves out clang-tidy, the slow one.
. "$(dirname "$0")/step.sh"
bin=.venv/bin
mapfile -t cpp < <(find include src gpu fio tests bench examples -regex '.*\.\(h\|cuh\|inl\|cpp\|cu\)' 2>/dev/null | sort)

step "ruff" "$bin/ruff" check -q .
step "ruff format" "$bin/ruff" format --check -q .
step "mypy" "$bin/mypy"
step "clang-format" "$bin/clang-format" --dry-run -Werror "${cpp[@]}"
if [ "${1:-}" != quick ]; then
  # Tests are left out: GoogleTest's macros take most of the time and give most of the noise.
  # So is the example that stands outside the tree, which this build does not compile.
  mapfile -t sources < <(find src gpu bench examples -name '*.cpp' ! -name '*_test.cpp' ! -path '*/bindings/*' \
    ! -path 'gpu/tests/*' ! -path 'examples/gpu_project/*' | sort)
  # The static analyzer takes three quarters of the time: by hand, not in continuous integration.
  checks=()
  [ "${CI:-}" = true ] && checks=('--checks=-clang-analyzer-*')
  # The builds say which of their compilers' warnings are errors; clang has others of what gcc compiles.
  checks+=(--extra-arg=-Wno-error)
  # It looks at each source by itself, whatever the builds compile as one.
  if FLASHMOB_UNITY=OFF step "clang-tidy configure" cmake --preset release -B build/tidy; then
    STEP_TAIL=100 step "clang-tidy" xargs -a <(printf '%s\n' "${sources[@]}") -P "$jobs" -n 4 \
      "$bin/clang-tidy" -p build/tidy --quiet "${checks[@]}" --extra-arg=-Wno-unknown-warning-option
  fi
fi
[ "$failed" -eq 0 ]

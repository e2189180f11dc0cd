#!/usr/bin/env bash
# Builds the fuzzers and runs each for FUZZ_SECONDS, two at a time: scripts/fuzz.sh [NAME...]
#
# Seeds are read from tests/fuzz/corpus/NAME; what the fuzzer finds worth keeping goes to build/fuzz/corpus/NAME, and a
# failing input to build/fuzz/NAME-crash-... Copy that into the seeds together with the mend: the release, ASan and
# UBSan tests replay all seeds.
. "$(dirname "$0")/step.sh"
seconds=${FUZZ_SECONDS:-10}
if ! FUZZ_CXX=$(scripts/find_clang.sh); then
  echo "no clang with libFuzzer here: scripts/bootstrap.sh test says what to install"
  exit 1
fi
export FUZZ_CXX

step "fuzz build" bash -c "cmake --preset fuzz && cmake --build --preset fuzz -j $jobs" || exit 1

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  for source in tests/fuzz/*_fuzz.cpp; do names+=("$(basename "$source" .cpp)"); done
fi
for name in "${names[@]}"; do mkdir -p "build/fuzz/corpus/$name"; done

fuzz_one() {
  local name=$1
  shift
  build/fuzz/tests/fuzz/"$name" -max_total_time="$1" -timeout=20 -rss_limit_mb=3072 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/$name-" "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name" >"build/logs/$name.log" 2>&1
}

started=$SECONDS
running=()
for ((i = 0; i < ${#names[@]}; i += 2)); do
  for name in "${names[@]:i:2}"; do
    fuzz_one "$name" "$seconds" &
    running+=("$name:$!")
  done
  for job in "${running[@]}"; do
    name=${job%:*}
    if wait "${job#*:}"; then
      executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "build/logs/$name.log")
      printf '%-22s ok      %4d s   %s inputs\n' "$name" "$seconds" "${executed:-0}"
    else
      failed=$((failed + 1))
      printf '%-22s FAILED           whole log: %s\n' "$name" "build/logs/$name.log"
      tail -n 40 "build/logs/$name.log"
    fi
  done
  running=()
done
[ "$failed" -eq 0 ]

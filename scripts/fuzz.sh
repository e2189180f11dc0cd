#!/usr/bin/env bash
# Builds the fuzzers (of the asan preset) and runs each for FUZZ_SECONDS: scripts/fuzz.sh [NAME...]
#
# Seeds are read from tests/fuzz/corpus/NAME; what the fuzzer finds worth keeping goes to build/fuzz/corpus/NAME, and a
# failing input to build/fuzz/NAME-crash-... Copy that into the seeds together with the mend: every build's tests replay
# all seeds.
. "$(dirname "$0")/step.sh"
export seconds=${FUZZ_SECONDS:-10}
# The fuzzers that talk through sockets wait half of their time, so there may be more fuzzers than cores.
at_once=$((jobs + jobs / 2))

step "fuzz build" bash -c "cmake --preset asan && cmake --build --preset asan -j $jobs --target fuzzers" || exit 1

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  for source in tests/fuzz/*_fuzz.cpp; do names+=("$(basename "$source" .cpp)"); done
fi

fuzz_one() {
  local name=$1 log=build/logs/$1.log executed
  mkdir -p "build/fuzz/corpus/$name"
  if build/asan/tests/fuzz/"$name" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=3072 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/$name-" "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name" >"$log" 2>&1 </dev/null; then
    executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    printf '%-22s ok      %4d s   %s inputs\n' "$name" "$seconds" "${executed:-0}"
    return 0
  fi
  printf '%-22s FAILED           whole log: %s\n%s\n' "$name" "$log" "$(tail -n 40 "$log")"
  return 1
}
export -f fuzz_one
# xargs starts the next one as soon as one ends, and remembers whether any failed.
printf '%s\n' "${names[@]}" | xargs -P "$at_once" -I NAME bash -c 'fuzz_one NAME'

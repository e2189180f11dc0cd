#!/usr/bin/env bash
# All fuzzers for FUZZ_NIGHT_MINUTES together (480), each with an equal share of the cores: scripts/fuzz_night.sh [NAME...]
#
# build/fuzz/corpus/NAME grows from night to night. In the end it is minimised: of inputs that reach the same, the
# smallest stays. A fuzzer that fails leaves its input in build/fuzz (scripts/fuzz.sh says what to do with it), and the
# others go on.
. "$(dirname "$0")/step.sh"
minutes=${FUZZ_NIGHT_MINUTES:-480}

step "fuzz build" bash -c "cmake --preset asan && cmake --build --preset asan -j $jobs --target fuzzers" || exit 1

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  for source in tests/fuzz/*_fuzz.cpp; do names+=("$(basename "$source" .cpp)"); done
fi
seconds=$((minutes * 60 * jobs / ${#names[@]}))
[ "$seconds" -ge 1 ] || seconds=1

printf '%s\n' "${names[@]}" | xargs -P "$jobs" -I NAME scripts/fuzz_one.sh NAME "$seconds"
failed=$?

minimise() {
  local name=$1 all=build/fuzz/corpus/$1 least=build/fuzz/least-$1 before
  before=$(find "$all" -type f | wc -l)
  rm -rf "$least"
  mkdir -p "$least"
  if build/asan/tests/fuzz/"$name" -merge=1 -timeout=20 -rss_limit_mb=3072 -artifact_prefix="build/fuzz/$name-" \
    "$least" "$all" "tests/fuzz/corpus/$name" >"build/logs/$name-merge.log" 2>&1 </dev/null; then
    rm -rf "$all" && mv "$least" "$all"
    printf '%-24s %6d inputs kept of %d\n' "$name" "$(find "$all" -type f | wc -l)" "$before"
  else
    printf '%-24s not minimised      whole log: build/logs/%s-merge.log\n' "$name" "$name"
    return 1
  fi
}
export -f minimise
printf '%s\n' "${names[@]}" | xargs -P "$jobs" -I NAME bash -c 'minimise NAME' || failed=1
exit "$((failed != 0))"

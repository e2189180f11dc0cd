#!/usr/bin/env bash
# All fuzzers for FUZZ_NIGHT_MINUTES together (480), each with an equal share of the cores: scripts/fuzz_night.sh [NAME...]
#
# The night has FUZZ_NIGHT_ROUNDS rounds (8). Three quarters of a round go to the build without sanitizers, which sees
# about twice as many inputs; then the sanitized build runs all that has been found so far, and looks further from
# there for the last quarter. build/fuzz/corpus/NAME grows from night to night. In the end it is minimised: of inputs
# that reach the same, the smallest stays. A fuzzer that fails leaves its input in build/fuzz (scripts/fuzz.sh says what
# to do with it) and starts again in the next round; the others go on.
. "$(dirname "$0")/step.sh"
minutes=${FUZZ_NIGHT_MINUTES:-480}
rounds=${FUZZ_NIGHT_ROUNDS:-8}

for build in fuzz asan; do
  step "$build build" bash -c "cmake --preset $build && cmake --build --preset $build -j $jobs --target fuzzers" || exit 1
done

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  for source in tests/fuzz/*_fuzz.cpp; do names+=("$(basename "$source" .cpp)"); done
fi
quarter=$((minutes * 60 * jobs / ${#names[@]} / rounds / 4))
[ "$quarter" -ge 1 ] || quarter=1

# fuzz BUILD SECONDS: what it says of each failure is said again in the end.
said=build/logs/fuzz-night.log
fuzz() {
  printf '%s\n' "${names[@]}" | FUZZ_BUILD=$1 xargs -P "$jobs" -I NAME scripts/fuzz_one.sh NAME "$2" | tee -a "$said"
  [ "${PIPESTATUS[1]}" -eq 0 ] || failed=1
}
: >"$said"
for ((round = 1; round <= rounds; ++round)); do
  echo "round $round of $rounds"
  fuzz fuzz $((3 * quarter))
  fuzz asan "$quarter"
done

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
grep -E ' FAILED |^(the input|again|sanitized): ' "$said"
exit "$((failed != 0))"

#!/usr/bin/env bash
# Runs one fuzzer that is built, of the preset FUZZ_BUILD (asan), and says in one line what came of it:
# scripts/fuzz_one.sh NAME SECONDS
#
# Before it looks further, it runs all seeds and all that build/fuzz/corpus/NAME holds, however long that takes.
# In the fast build libFuzzer does not weigh finds by how rare what they reach is: with every sixth input a find, that
# took a sixth of the time of vfio_user_fuzz, and as many inputs reached no more. The sanitized build does.
name=$1 seconds=$2
build=${FUZZ_BUILD:-asan}
cd "$(dirname "$0")/.." || exit 1
log=build/logs/$name-$build.log
program=tests/fuzz/$name
mkdir -p "build/fuzz/corpus/$name" build/logs
entropic=1
if [ "$build" = fuzz ]; then entropic=0; fi
if build/"$build/$program" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=3072 -print_final_stats=1 -print_funcs=0 \
  -entropic=$entropic \
  -artifact_prefix="build/fuzz/$name-" "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name" >"$log" 2>&1 </dev/null; then
  executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  edges=$(grep -o 'cov: [0-9]*' "$log" | tail -n 1)
  printf '%-24s ok      %-4s %5d s   %9d inputs   %7d a second   %s\n' "$name" "$build" "$seconds" "${executed:-0}" \
    $((${executed:-0} / seconds)) "$edges"
  exit 0
fi
input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
printf '%-24s FAILED  %-4s whole log: %s\n%s\n' "$name" "$build" "$log" "$(tail -n 40 "$log")"
if [ -n "$input" ]; then
  printf 'the input: %s\nagain:     build/%s %s\n' "$input" "$build/$program" "$input"
  if [ "$build" != asan ]; then printf 'sanitized: build/asan/%s %s\n' "$program" "$input"; fi
fi
exit 1

#!/usr/bin/env bash
# Runs one fuzzer that is built, and says in one line what came of it: scripts/fuzz_one.sh NAME SECONDS
name=$1 seconds=$2
cd "$(dirname "$0")/.." || exit 1
log=build/logs/$name.log
mkdir -p "build/fuzz/corpus/$name" build/logs
if build/asan/tests/fuzz/"$name" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=3072 -print_final_stats=1 \
  -artifact_prefix="build/fuzz/$name-" "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name" >"$log" 2>&1 </dev/null; then
  executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  edges=$(grep -o 'cov: [0-9]*' "$log" | tail -n 1)
  printf '%-24s ok      %5d s   %9d inputs   %7d a second   %s\n' "$name" "$seconds" "${executed:-0}" \
    $((${executed:-0} / seconds)) "$edges"
  exit 0
fi
printf '%-24s FAILED             whole log: %s\n%s\n' "$name" "$log" "$(tail -n 40 "$log")"
exit 1

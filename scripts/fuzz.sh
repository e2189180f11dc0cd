#!/usr/bin/env bash
# Builds the fuzzers and runs each for FUZZ_SECONDS: scripts/fuzz.sh [NAME...]
#
# FUZZ_BUILD=asan, the default: under AddressSanitizer and UndefinedBehaviorSanitizer. FUZZ_BUILD=fuzz: without them,
# about twice as fast, with every check of the code's own and the fuzzers'.
#
# Seeds are read from tests/fuzz/corpus/NAME; what the fuzzer finds worth keeping goes to build/fuzz/corpus/NAME, and a
# failing input to build/fuzz/NAME-crash-... Copy that into the seeds together with the mend: every build's tests replay
# all seeds. A whole night of it: scripts/fuzz_night.sh. What the inputs reach: scripts/fuzz_coverage.sh.
. "$(dirname "$0")/step.sh"
seconds=${FUZZ_SECONDS:-10}
at_once=$jobs
export FUZZ_BUILD=${FUZZ_BUILD:-asan}

step "fuzz build" bash -c "cmake --preset $FUZZ_BUILD && cmake --build --preset $FUZZ_BUILD -j $jobs --target fuzzers" || exit 1

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  for source in tests/fuzz/*_fuzz.cpp; do names+=("$(basename "$source" .cpp)"); done
fi
# xargs starts the next one as soon as one ends, and remembers whether any failed.
printf '%s\n' "${names[@]}" | xargs -P "$at_once" -I NAME scripts/fuzz_one.sh NAME "$seconds"

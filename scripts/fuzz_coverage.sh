#!/usr/bin/env bash
# What the fuzzers' inputs reach: replays the seeds, and what build/fuzz/corpus holds besides, in a build that counts, and
# prints the lines reached of the parsers and state machines by file: scripts/fuzz_coverage.sh [NAME...]
#
# build/fuzz/coverage/ gets report.txt (that table), unreached.txt (functions that no input calls) and lines.txt (every
# line with how often it ran).
. "$(dirname "$0")/step.sh"
out=build/fuzz/coverage
rooms=(src/vfio src/transport src/fabrics src/controller src/command_set)

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  for source in tests/fuzz/*_fuzz.cpp; do names+=("$(basename "$source" .cpp)"); done
fi
step "coverage build" bash -c "cmake --preset coverage && cmake --build --preset coverage -j $jobs --target ${names[*]}" ||
  exit 1
# The tools that belong to the compiler.
tools=$(dirname "$(readlink -f "$(scripts/find_clang.sh)")")
for tool in llvm-profdata llvm-cov; do
  [ -x "$tools/$tool" ] || { echo "there is no $tools/$tool: install the llvm package of that version"; exit 1; }
done

replay() {
  local name=$1 folders=()
  for folder in "tests/fuzz/corpus/$name" "build/fuzz/corpus/$name"; do
    [ -d "$folder" ] && folders+=("$folder")
  done
  LLVM_PROFILE_FILE="$out/$name.profraw" build/coverage/tests/fuzz/"$name" "${folders[@]}"
}
mkdir -p "$out"
rm -f "$out"/*
objects=()
for name in "${names[@]}"; do
  step "replay $name" replay "$name"
  objects+=(-object "build/coverage/tests/fuzz/$name")
done
"$tools/llvm-profdata" merge -sparse "$out"/*.profraw -o "$out/all.profdata" || exit 1
objects=("${objects[@]:1:1}" "${objects[@]:2}")

of_rooms() { "$tools/llvm-cov" "$@" -instr-profile="$out/all.profdata" "${objects[@]}" "${rooms[@]}"; }
of_rooms report -show-region-summary=false -show-branch-summary=false >"$out/report.txt"
of_rooms show -use-color=0 >"$out/lines.txt"
# A function's line: its name, regions, regions missed, share, lines, lines missed, share.
of_rooms report -show-functions -show-branch-summary=false -use-color=0 |
  awk '/^File /{file=$2} NF>=7 && $(NF-2)>0 && $(NF-1)==$(NF-2) && !/^TOTAL/{print file, $1}' |
  "$tools/llvm-cxxfilt" | sort >"$out/unreached.txt"
cat "$out/report.txt"
echo "$(wc -l <"$out/unreached.txt") functions are not reached: $out/unreached.txt"
exit "$((failed != 0))"

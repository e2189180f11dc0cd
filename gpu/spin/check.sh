#!/bin/sh
# Checks the protocol models with spin: every line "run: FLAGS" of a model must hold, every "must fail: FLAGS" (a fault
# planted in the model) must be found.
#
#   gpu/spin/check.sh [MODEL.pml...]    all models of this folder by default
#
# Exits with 77 and says why if spin or a C compiler is missing.
set -eu

folder=$(cd "$(dirname "$0")" && pwd)
for tool in spin cc; do
    command -v "$tool" >/dev/null 2>&1 || {
        echo "skipped: $tool is not installed (scripts/bootstrap.sh test installs it)"
        exit 77
    }
done
[ $# -gt 0 ] || set -- "$folder"/*.pml

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# check MODEL FLAGS EXPECTED: EXPECTED is "holds" or "fails".
check() {
    (cd "$work" && spin $2 -a "$1" >spin.log && cc -O2 -w -DSAFETY -DCOLLAPSE -DMEMLIM=2000 -o pan pan.c &&
        ./pan -m1000000 -w24 >pan.log) || {
        cat "$work/spin.log"
        echo "FAILED: $(basename "$1") $2 could not be run"
        failures=$((failures + 1))
        return
    }
    states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' "$work/pan.log")
    if grep -q 'max search depth too small\|pan: reached -DMEMLIM\|out of memory' "$work/pan.log"; then
        found="is not decided"
    elif grep -q 'errors: 0' "$work/pan.log"; then
        found=holds
    else
        found=fails
    fi
    if [ "$found" = "$3" ]; then
        echo "ok: $(basename "$1") $2 $found ($states states)"
    else
        grep -m1 '^pan:1:' "$work/pan.log" || true
        echo "FAILED: $(basename "$1") $2 $found"
        failures=$((failures + 1))
    fi
}

for model in "$@"; do
    case $model in /*) ;; *) model=$PWD/$model ;; esac
    sed -n 's/^ \* run: //p' "$model" >"$work/runs"
    sed -n 's/^ \* must fail: //p' "$model" >"$work/faults"
    while read -r flags; do check "$model" "$flags" holds; done <"$work/runs"
    while read -r flags; do check "$model" "$flags" fails; done <"$work/faults"
done
exit $((failures != 0))

#!/bin/sh
# Prints the newest clang++ on this machine that comes with libFuzzer's and the sanitizers' run-time libraries; exits 1
# if there is none. Debian and Ubuntu number their clangs, and an unnumbered one may lack the libraries.
set -eu
for name in ${FUZZ_CXX:-} clang++-22 clang++-21 clang++-20 clang++-19 clang++-18 clang++-17 clang++-16 clang++-15 \
    clang++-14 clang++; do
    command -v "$name" >/dev/null 2>&1 || continue
    for library in "$("$name" -print-resource-dir)"/lib/*/libclang_rt.fuzzer*.a; do
        if [ -e "$library" ]; then
            echo "$name"
            exit 0
        fi
    done
done
exit 1

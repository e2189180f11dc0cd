#!/usr/bin/env bash
# Lays out all C++ and Python code as `make lint` wants it.
. "$(dirname "$0")/step.sh"
mapfile -t cpp < <(find include src gpu fio tests bench examples -regex '.*\.\(h\|cuh\|inl\|cpp\|cu\)' 2>/dev/null | sort)
step "clang-format" .venv/bin/clang-format -i "${cpp[@]}"
step "ruff" .venv/bin/ruff check -q --fix .
step "ruff format" .venv/bin/ruff format -q .
[ "$failed" -eq 0 ]

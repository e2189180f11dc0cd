#!/usr/bin/env bash
# The tests with real hosts: Linux guests, firmware. Arguments go to pytest: scripts/test_hosts.sh -k fio
# Without arguments both doors are tested at the same time, each with guests of its own: most of it is waiting.
. "$(dirname "$0")/step.sh"

step "guest environment" tests/hosts/environment.sh
status=$?
if [ "$status" -ne 0 ] && [ "${CI:-}" = true ]; then exit 1; fi
# What a guest runs of ours, whose processor is older than this machine's.
step "guest program" bash -c "cmake --preset release && cmake --build --preset release --target pci_host -j $jobs" || exit 1
# Where the environment cannot be had, pytest itself says why each test was skipped.
if [ $# -gt 0 ]; then exec .venv/bin/python -m pytest -q -rs tests/hosts "$@"; fi

# Jobs of their own: else they would not hear Ctrl-C, and leave guests behind.
set -m
trap 'kill -INT "${running[@]}"; wait; exit 130' INT TERM
doors=(vfio-user nvme-tcp)
running=()
for door in "${doors[@]}"; do
  .venv/bin/python -m pytest -q -rs --durations=5 --doors "$door" tests/hosts >"build/logs/hosts-$door.log" 2>&1 &
  running+=($!)
done
for i in "${!doors[@]}"; do
  log=build/logs/hosts-${doors[i]}.log
  wait "${running[i]}" || failed=$((failed + 1))
  printf '%-22s %s\n' "hosts ${doors[i]}" "$(tail -n 1 "$log")"
  grep -E '^(SKIPPED|FAILED|ERROR)' "$log"
  [ "$failed" -eq 0 ] || tail -n "${STEP_TAIL:-80}" "$log"
done
[ "$failed" -eq 0 ]

#!/usr/bin/env bash
# The tests with real hosts: Linux guests, firmware. Arguments go to pytest: scripts/test_hosts.sh -k fio
. "$(dirname "$0")/step.sh"

step "guest environment" tests/hosts/environment.sh
status=$?
if [ "$status" -ne 0 ] && [ "${CI:-}" = true ]; then exit 1; fi
# Where the environment cannot be had, pytest itself says why each test was skipped.
.venv/bin/python -m pytest -q -rs tests/hosts "$@"

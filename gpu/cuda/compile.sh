#!/bin/sh
# compile.sh REPORT COMMAND...: runs the compiler with its messages in REPORT, and shows them if it fails.
report=$1
shift
"$@" >"$report" 2>&1 || {
  cat "$report" >&2
  rm -f "$report"
  exit 1
}

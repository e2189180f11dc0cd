# Sourced by the scripts here: `step NAME COMMAND...` runs a command with its output in build/logs/NAME.log and says in
# one line how it went; when it failed, the end of the log follows. `failed` counts the steps that failed.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
mkdir -p build/logs
failed=0

step() {
  local name=$1 log started=$SECONDS
  shift
  log=build/logs/${name// /-}.log
  if "$@" >"$log" 2>&1 </dev/null; then
    printf '%-22s ok      %4d s\n' "$name" $((SECONDS - started))
    return 0
  fi
  failed=$((failed + 1))
  printf '%-22s FAILED  %4d s   whole log: %s\n' "$name" $((SECONDS - started)) "$log"
  tail -n "${STEP_TAIL:-40}" "$log"
  return 1
}

# Prints a test runner's own closing line.
closing_line() {
  grep -hE "$2" "build/logs/${1// /-}.log" | tail -n 1
}

jobs=${JOBS:-$(nproc)}
# One name for the compiler and one locale: ccache tells compilers apart by their names and outputs apart by the locale,
# and the Python build would find another compiler and set a locale of its own.
export CXX=${CXX:-g++} LC_ALL=C.UTF-8
if command -v ccache >/dev/null 2>&1; then
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache
  # The tests' precompiled headers hold no macro that a test could change, and no code here uses the time of day.
  export CCACHE_SLOPPINESS=pch_defines,time_macros
  # One clone's objects serve another: paths below the clone are told apart by what follows it.
  export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=true
fi

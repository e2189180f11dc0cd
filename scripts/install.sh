#!/usr/bin/env bash
# Builds the package and installs it, with the tools for its development, into .venv. Incremental: the CMake build lives
# in build/python, and the virtual environment must exist (scripts/bootstrap.sh makes it).
. "$(dirname "$0")/step.sh"
pip() { .venv/bin/python -m pip --disable-pip-version-check "$@"; }

step "python tools" pip install -q scikit-build-core nanobind || exit 1
[ -d build/python ] || echo "flashmob: building (a few minutes the first time)"
package() { pip install --no-build-isolation --config-settings=build-dir=build/python ".[dev,plot,polars,calibrate]"; }
# What a package says of itself is read before it is built and again after, and must be the same. Whoever has edited it
# meanwhile has not broken anything: what was compiled is still there.
metadata() { cat pyproject.toml README.md LICENSE CMakeLists.txt | cksum; }
unless_edited() {
  local before
  before=$(metadata)
  "$@" || { [ "$before" != "$(metadata)" ] && "$@"; }
}
step "python package" unless_edited package || exit 1
touch .venv/.installed

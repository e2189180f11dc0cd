#!/usr/bin/env bash
# Uses flashmob as another project does: installs libraries and headers, finds them from examples/gpu_project in a folder
# of its own, compiles that project's kernel with nvcc where there is one, and runs it. Then the same project with
# FetchContent, which would compile all libraries once more: it is configured, and no more. After the release build.
. "$(dirname "$0")/step.sh"

work=$PWD/build/outside
toolkit=$(scripts/cuda_toolchain.sh --find) && export CUDA_HOME=$toolkit
rm -rf "$work"
cp -r examples/gpu_project "$work"

installed() {
  cmake --install build/release --component dev --prefix "$work/prefix" >"$work/install.log" &&
    cmake -S "$work" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release &&
    cmake --build "$work/build" && "$work/build/sums"
}
fetched() {
  cmake -S "$work" -B "$work/fetched" -DFLASHMOB_SOURCE="$PWD" -DCMAKE_BUILD_TYPE=Release &&
    cmake --build "$work/fetched" --target help | grep -w flashmob_gpu_host
}

step "outside installed" installed
step "outside fetched" fetched
[ "$failed" -eq 0 ]

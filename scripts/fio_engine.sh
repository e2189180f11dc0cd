#!/usr/bin/env bash
# Builds build/libflashmob_fio.so, an external ioengine for the fio that is installed here:
#
#   fio --ioengine=external:build/libflashmob_fio.so --thread --ssd=d7-ps1010 --name=job --rw=randread --iodepth=32
#
# fio's headers are of its own licence and version and are not part of this project. FIO_SOURCE may name a folder with
# the sources of this fio; else its source package comes from the mirror that this machine's apt uses, as Debian and
# Ubuntu have it. Exit status 3, with the reason in one line, says that it cannot be built here.
. "$(dirname "$0")/step.sh"

cannot() {
  echo "flashmob: no ioengine for fio: $*" >&2
  exit 3
}
command -v fio >/dev/null || cannot "fio is not installed; on Debian and Ubuntu: sudo apt-get install fio"
version=$(fio --version) version=${version#fio-}
folder=$PWD/build/fio-source
source=${FIO_SOURCE:-}
if [ -z "$source" ]; then
  source=$(ls -d "$folder/fio-$version"*/ 2>/dev/null | head -n 1) || true
  source=${source%/}
fi

# The source package of the same version, through a list of sources of our own.
fetch() {
  local lists=$folder/apt suites mirror
  mirror=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' | grep -E '/(debian|ubuntu)/? ' | sort -u)
  mkdir -p "$lists/lists/partial" "$lists/cache/archives/partial"
  awk '{ print "deb-src " $1 " " $2 " main" }' <<<"$mirror" >"$folder/sources.list"
  local options=(-q -o "Dir::State::lists=$lists/lists" -o "Dir::Cache=$lists/cache" -o APT::Sandbox::User=
    -o "Dir::Etc::sourcelist=$folder/sources.list" -o Dir::Etc::sourceparts=/dev/null)
  apt-get "${options[@]}" update && (cd "$folder" && apt-get "${options[@]}" source --download-only "fio=$version*" ||
    cd "$folder" && apt-get "${options[@]}" source --download-only fio) &&
    tar -C "$folder" -xf "$folder"/fio_"$version"*.orig.tar.*z
}
if [ -z "$source" ]; then
  command -v apt-get >/dev/null || cannot "set FIO_SOURCE to the sources of fio $version"
  mkdir -p "$folder"
  step "fio's sources" fetch || cannot "the sources of fio $version do not come; set FIO_SOURCE to a folder of them"
  source=$(ls -d "$folder/fio-$version"*/ 2>/dev/null | head -n 1)
  source=${source%/}
fi
[ -e "$source/ioengines.h" ] || cannot "$source holds no sources of fio $version"
[ -e "$source/config-host.h" ] || step "fio's configuration" bash -c "cd '$source' && ./configure" || exit 1
build() {
  cmake -G Ninja -S . -B build/fio -DCMAKE_BUILD_TYPE=Release -DCMAKE_UNITY_BUILD="${FLASHMOB_UNITY:-ON}" \
    -DFLASHMOB_WERROR="${FLASHMOB_WERROR:-OFF}" -DFLASHMOB_BUILD_TESTS=OFF -DFLASHMOB_BUILD_BENCH=OFF \
    -DFLASHMOB_FIO_SOURCE="$source" && cmake --build build/fio --target flashmob_fio -j "$jobs" &&
    cp build/fio/fio/libflashmob_fio.so build/libflashmob_fio.so
}
step "fio's ioengine" build && echo "build/libflashmob_fio.so is for fio $version"

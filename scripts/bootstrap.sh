#!/bin/sh
# Finds what flashmob needs on this machine and installs what is missing.
#
#   scripts/bootstrap.sh demo     what building and running need
#   scripts/bootstrap.sh test     that, and what the tests need (GoogleTest, libnvme's headers, clang's fuzzers, spin,
#                                 programs of ext4 and XFS)
#
# As root on a Debian or Ubuntu machine it installs with apt; else it prints one line that says what to install, and
# exits 1. Afterwards .venv exists, made with the interpreter chosen here. Silent and quick when nothing is missing.
set -eu
cd "$(dirname "$0")/.."
purpose=${1:-demo}

# The interpreter to build for: at least 3.11, able to make virtual environments, with its C headers.
find_python() {
    for candidate in python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3; do
        command -v "$candidate" >/dev/null 2>&1 || continue
        "$candidate" - 2>/dev/null <<'PY' && { command -v "$candidate"; return 0; }
import os, sys, sysconfig
import ensurepip, venv
sys.exit(sys.version_info < (3, 11) or not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))
PY
    done
    return 1
}

venv_works() {
    .venv/bin/python -c 'import os, sys, sysconfig
sys.exit(sys.version_info < (3, 11) or not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' \
        2>/dev/null
}

gxx_is_new_enough() {
    version=$(g++ -dumpversion 2>/dev/null | cut -d. -f1)
    [ "${version:-0}" -ge 12 ]
}

cmake_is_new_enough() {
    version=$(cmake --version 2>/dev/null | sed -n '1s/[^0-9]*\([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
    [ -n "$version" ] && [ $(( ${version% *} * 100 + ${version#* } )) -ge 325 ]
}

# Prints the names of the missing packages, as Debian calls them.
missing_packages() {
    gxx_is_new_enough || echo g++
    cmake_is_new_enough || echo cmake
    command -v ninja >/dev/null 2>&1 || echo ninja-build
    venv_works || find_python >/dev/null || echo python3 python3-venv python3-dev
    [ -e /usr/include/openssl/evp.h ] || [ -e /usr/local/include/openssl/evp.h ] || echo libssl-dev
    [ -e /usr/include/boost/context/fiber.hpp ] || [ -e /usr/local/include/boost/context/fiber.hpp ] || echo libboost-context-dev
    [ "$purpose" = test ] || return 0
    command -v ccache >/dev/null 2>&1 || echo ccache
    command -v git >/dev/null 2>&1 || echo git
    command -v spin >/dev/null 2>&1 || echo spin
    command -v fio >/dev/null 2>&1 || echo fio
    [ -e /usr/include/gtest/gtest.h ] || [ -e /usr/local/include/gtest/gtest.h ] || echo libgtest-dev
    [ -e /usr/include/libnvme.h ] || [ -e /usr/local/include/libnvme.h ] || echo libnvme-dev
    # File systems that tests of extents make and compare with; their programs may lie in an administrator's folders.
    PATH="$PATH:/usr/sbin:/sbin" command -v debugfs >/dev/null 2>&1 || echo e2fsprogs
    PATH="$PATH:/usr/sbin:/sbin" command -v xfs_db >/dev/null 2>&1 || echo xfsprogs
    scripts/find_clang.sh >/dev/null || newest_clang
}

# The newest clang of this distribution that comes with libFuzzer, at most the version we format and lint with.
newest_clang() {
    for version in 19 18 17 16 15 14; do
        if apt-cache show "libclang-rt-$version-dev" >/dev/null 2>&1; then
            # Its llvm has the symbolizer: without it a sanitizer's report names no function.
            echo "clang-$version" "libclang-rt-$version-dev" "llvm-$version"
            return 0
        fi
    done
    echo clang libclang-rt-dev llvm
}

explain() {
    echo "flashmob: $*" >&2
    exit 1
}

too_old() {
    found="g++ $(g++ -dumpfullversion 2>/dev/null || echo none)"
    found="$found, CMake $(cmake --version 2>/dev/null | sed -n '1s/[^0-9]*//p')"
    found="$found, Python $(python3 -V 2>/dev/null | cut -d' ' -f2)"
    explain "this system is too old or incomplete: needed are g++ 12, CMake 3.25, Python 3.11 with venv and C headers;" \
        "here are $found (Debian 12 and Ubuntu 24.04 have what is needed)"
}

missing=$(missing_packages | tr '\n' ' ' | sed 's/ *$//')
if [ -n "$missing" ]; then
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 ||
        explain "g++ >= 12, CMake >= 3.25, Python >= 3.11 and a few tools are needed; run:" \
            "sudo apt-get install --no-install-recommends $missing"
    mkdir -p build
    log=build/bootstrap.log
    export DEBIAN_FRONTEND=noninteractive
    apt-get -o DPkg::Lock::Timeout=120 -q update >"$log" 2>&1 || true
    # Asked again, because only now does apt know which clang there is.
    missing=$(missing_packages | tr '\n' ' ' | sed 's/ *$//')
    echo "flashmob: installing $missing"
    # shellcheck disable=SC2086  # one word for each package
    apt-get -o DPkg::Lock::Timeout=120 -q install -y --no-install-recommends $missing >>"$log" 2>&1 || {
        tail -n 5 "$log" >&2
        explain "apt could not install: $missing (whole log: $log)"
    }
    [ -z "$(missing_packages)" ] || too_old
fi

if ! venv_works; then
    python=$(find_python) || too_old
    rm -rf .venv
    "$python" -m venv .venv
fi

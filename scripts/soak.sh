#!/usr/bin/env bash
# scripts/soak.sh: everything at once for SOAK_MINUTES (60): tests/soak/soak.py, whose options it takes.
# scripts/soak.sh vfio-user|nvme-tcp [OPTIONS...]: one door of a running `flashmob serve`, such as --kills 1000 --minutes 10
# --clients 8 (all of them: tests/soak/soak.cpp). About a quarter of an hour unless told otherwise.
# DOORS_SOAK names a doors_soak that is built already.
. "$(dirname "$0")/step.sh"
build() {
  step "soak build" bash -c "cmake --preset release && cmake --build --preset release -j $jobs --target $1" || exit 1
}
case "${1:-}" in
  vfio-user | nvme-tcp)
    door=$1
    shift
    ;;
  *)
    build soak_host
    exec .venv/bin/python tests/soak/soak.py --minutes "${SOAK_MINUTES:-60}" "$@"
    ;;
esac
soak=${DOORS_SOAK:-build/release/tests/doors_soak}
if [ -z "${DOORS_SOAK:-}" ]; then
  build doors_soak
fi

folder=$(mktemp -d)
touch "$folder/log"
.venv/bin/flashmob serve optane-p4800x --name soak --size 64M --vfio-user "$folder" --tcp 127.0.0.1:0 \
  >"$folder/log" 2>&1 </dev/null &
server=$!
trap 'kill -INT $server; wait $server; rm -rf "$folder"' EXIT
for _ in $(seq 300); do
  grep -qx ready "$folder/log" && break
  kill -0 $server 2>/dev/null || break
  sleep 0.1
done
target=$(sed -n "s|^soak \($door:.*\)$|\1|p" "$folder/log")
if [ -z "$target" ]; then
  cat "$folder/log"
  exit 1
fi
"$soak" --target "$target" --pid $server "$@"

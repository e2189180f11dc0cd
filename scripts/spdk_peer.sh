#!/usr/bin/env bash
# SPDK's perf tool against our doors and against SPDK's own target, windows in turn, so that like is compared with like.
#   SPDK_DIR=/path/to/built/spdk scripts/spdk_peer.sh [WINDOWS] [SECONDS]
# The targets run on core 0, perf on core 1: leave both alone. Random reads of 512 B and 4 KiB, depth 128, of 1 GiB that
# was written before. Every window is printed, then the median, least and most of each. docs/guide/spdk.md explains.
# QD=32, BYTES=4096, DOORS=nvme-tcp and FLASHMOB=/path/to/flashmob choose others.
set -u
windows=${1:-5} seconds=${2:-2} depth=${QD:-128}
flashmob=${FLASHMOB:-$(dirname "$0")/../.venv/bin/flashmob}
bin=${SPDK_DIR:?name the folder of a built SPDK}/build/bin
for program in "$bin/spdk_nvme_perf" "$bin/nvmf_tgt" "$flashmob"; do
  [ -x "$program" ] || { echo "$program is not there" >&2; exit 1; }
done
[ "$(nproc)" -ge 2 ] || { echo "two cores are needed" >&2; exit 1; }

# 2 MiB pages: 850 for SPDK's target, 200 for perf. Without them SPDK takes ordinary memory.
if [ "$(awk '/HugePages_Free/ {print $2}' /proc/meminfo)" -ge 1060 ]; then
  perf_memory=(-g -s 384) target_memory=(-s 1700)
else
  perf_memory=(--no-huge -s 384) target_memory=(--no-huge -s 1700)
fi

folder=$(mktemp -d)
pids=()
finish() {
  for pid in "${pids[@]}"; do kill "$pid" && kill -CONT "$pid"; done 2>/dev/null
  wait
  rm -rf "$folder"
}
trap finish EXIT
trap 'exit 130' INT TERM

# SPDK's target: a malloc and a null device of 1 GiB, each behind both doors.
device() { # NAME PORT
  local nqn=nqn.2019-07.io.spdk:$1
  local listener='{"method":"nvmf_subsystem_add_listener","params":{"nqn":"%s","listen_address":%s}}'
  mkdir -p "$folder/$1"
  printf ',{"method":"nvmf_create_subsystem","params":{"nqn":"%s","allow_any_host":true}}' "$nqn"
  printf ',{"method":"nvmf_subsystem_add_ns","params":{"nqn":"%s","namespace":{"bdev_name":"%s"}}}' "$nqn" "$1"
  printf ",$listener" "$nqn" '{"trtype":"VFIOUSER","traddr":"'"$folder/$1"'","trsvcid":"0"}'
  printf ",$listener" "$nqn" '{"trtype":"TCP","adrfam":"IPv4","traddr":"127.0.0.1","trsvcid":"'"$2"'"}'
}
size='"num_blocks":2097152,"block_size":512'
cat >"$folder/target.json" <<JSON
{"subsystems":[{"subsystem":"bdev","config":[
  {"method":"bdev_malloc_create","params":{"name":"malloc",$size}},
  {"method":"bdev_null_create","params":{"name":"null",$size}}]},
 {"subsystem":"nvmf","config":[
  {"method":"nvmf_create_transport","params":{"trtype":"VFIOUSER"}},
  {"method":"nvmf_create_transport","params":{"trtype":"TCP"}}$(device malloc 4521)$(device null 4522)]}]}
JSON

start() { # NAME COMMAND...
  local log=$folder/$1.log
  shift
  : >"$log"
  "$@" >"$log" 2>&1 </dev/null &
  pids+=($!)
}
# One SSD for each door: one that is served over the network alone sleeps at once where it shares its core.
serve=(taskset -c 0 "$flashmob" serve unlimited --size 1G)
start memory "${serve[@]}" --vfio-user "$folder" --name memory
start no-data "${serve[@]}" --vfio-user "$folder" --name no-data --set engine.move_data=false
start network "${serve[@]}" --tcp 0 --name network
start spdk "$bin/nvmf_tgt" -m 0x1 "${target_memory[@]}" -c "$folder/target.json"
spdk=${pids[3]}
logs=("$folder/memory.log" "$folder/no-data.log" "$folder/network.log" "$folder/spdk.log")
all_up() { [ "$(grep -lE '^ready|port 4522' "${logs[@]}" | wc -l)" -eq 4 ]; }
for ((i = 0; i < 100; ++i)); do
  all_up && break
  sleep 0.2
done
all_up || { tail -n 5 "${logs[@]}" >&2; exit 1; }

host=nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555
address() { # DOOR NAME NQN PORT
  case $1 in
    vfio-user) echo "trtype:VFIOUSER traddr:$folder/$2 subnqn:$3" ;;
    nvme-tcp) echo "trtype:TCP adrfam:IPv4 traddr:127.0.0.1 trsvcid:$4 subnqn:$3 hostnqn:$host" ;;
  esac
}
ours() { # DOOR NAME
  local port nqn
  if [ "$1" = vfio-user ]; then
    address vfio-user "$2" nqn.2026-01.org.flashmob:any
    return
  fi
  IFS=/ read -r port nqn < <(sed -n 's/.* nvme-tcp:127.0.0.1://p' "$folder/network.log")
  address nvme-tcp network "$nqn" "$port"
}
theirs() { address "$1" "$2" "nqn.2019-07.io.spdk:$2" "$3"; } # DOOR NAME PORT

perf() { # SECONDS DEPTH WORKLOAD BYTES ADDRESS
  timeout $(($1 + 20)) "$bin/spdk_nvme_perf" "${perf_memory[@]}" -t "$1" -q "$2" -w "$3" -o "$4" -c 0x2 -r "$5" \
    2>>"$folder/perf.log" | awk '/^Total/ {print $3}'
}
window() { # NAME BYTES ADDRESS
  local iops
  iops=$(perf "$seconds" "$depth" randread "$2" "$3")
  printf '%-36s %12s\n' "$1, $2 B" "${iops:-failed}" | tee -a "$folder/windows"
}
round() { # DOOR BYTES
  window "$1: flashmob, memory" "$2" "$(ours "$1" memory)"
  [ "$1" = nvme-tcp ] || window "$1: flashmob, no data" "$2" "$(ours "$1" no-data)"
  # SPDK's target polls, idle or not: it stands still while it is not measured, because its core is the others', too.
  kill -CONT "$spdk"
  window "$1: SPDK, malloc" "$2" "$(theirs "$1" malloc 4521)"
  [ "$1" = nvme-tcp ] || window "$1: SPDK, null" "$2" "$(theirs "$1" null 4522)"
  kill -STOP "$spdk"
}

perf 3 16 write 131072 "$(theirs vfio-user malloc 4521)" >"$folder/filled"
kill -STOP "$spdk"
perf 3 16 write 131072 "$(ours vfio-user memory)" >>"$folder/filled"
perf 3 16 write 131072 "$(ours nvme-tcp network)" >>"$folder/filled"
for ((i = 0; i < windows; ++i)); do
  for bytes in ${BYTES:-512 4096}; do
    for door in ${DOORS:-vfio-user nvme-tcp}; do round "$door" "$bytes"; done
  done
done
printf '\n%-36s %12s %12s %12s\n' "IOPS at depth $depth" median least most
cut -c1-36 "$folder/windows" | sort -u | while IFS= read -r name; do
  grep -F "$name" "$folder/windows" | awk '{print $NF}' | sort -g |
    awk -v name="$name" '{v[NR] = $1} END {printf "%-36s %12d %12d %12d\n", name, v[int((NR + 1) / 2)], v[1], v[NR]}'
done

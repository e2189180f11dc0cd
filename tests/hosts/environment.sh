#!/usr/bin/env bash
# Builds what the tests with real hosts run on, from Debian's packages, and prints the folder that holds it.
#
#   tests/hosts/environment.sh [FOLDER]      default: ${XDG_CACHE_HOME:-~/.cache}/flashmob-hosts
#
#   qemu/             QEMU with vfio-user-pci, its libraries and firmware (SeaBIOS, OVMF, U-Boot), started by bin/qemu
#   vmlinuz           Debian's stock kernel for clouds, with its own NVMe drivers
#   initramfs.cpio    nvme-cli, tlshd, fio, xfsprogs, e2fsprogs, BusyBox and the kernel's modules
#
# Nothing is installed: apt resolves and verifies the packages in a state of its own, and they are only unpacked. So it
# needs no root, and it works in containers. What is there already is kept as long as this script and init stay as they
# are. The mirror is the one that this machine's apt uses. Exit status 3, with the reason in one line, says that this
# machine cannot have the environment; 1 says that building it failed.
set -euo pipefail
umask 022
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/flashmob-hosts}

suite=trixie
newer_suite=trixie-backports # the first with a QEMU that speaks vfio-user (10.1)
host_packages=(qemu-system-x86 ovmf u-boot-qemu)
guest_packages=(nvme-cli ktls-utils fio xfsprogs e2fsprogs util-linux kmod busybox-static pciutils)
programs=(usr/sbin/nvme usr/sbin/tlshd usr/bin/fio usr/sbin/mkfs.xfs usr/sbin/xfs_repair usr/sbin/mke2fs usr/sbin/e2fsck
  usr/sbin/blkdiscard usr/bin/lspci)
modules=(vfio-pci vfio_iommu_type1 nvme nvme-tcp tls gcm ghash-generic virtio_net xfs nvmet-tcp loop) # the last two are a target to try the tests themselves with
triplet=x86_64-linux-gnu

say() { echo "flashmob: $*" >&2; }
cannot() {
  say "no guest environment: $*"
  exit 3
}

[ "$(uname -m)" = x86_64 ] || cannot "the packages are for x86_64, and this machine is $(uname -m)"
for tool in apt-get apt-cache dpkg-deb tar; do
  command -v "$tool" >/dev/null || cannot "$tool is missing; Debian and Ubuntu have it"
done
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$keyring" ] || cannot "$keyring is missing; run: sudo apt-get install debian-archive-keyring"

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
exec 9>"$folder/lock"
if command -v flock >/dev/null; then flock 9; fi
version=$(cat "$here/environment.sh" "$here/init" | cksum | tr ' ' -)
if [ "$(cat "$folder/version" 2>/dev/null)" = "$version" ]; then
  echo "$folder"
  exit 0
fi
say "building the guest environment in $folder (about 160 MB of Debian packages, the first time)"
rm -f "$folder/version"

# The mirror of Debian that this machine's apt is set up with, else Debian's own name for all of them.
mirror() {
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
    sed -n 's,\(^https\?://.*/debian\)/\?$,\1,p' | grep . | head -n 1 || echo http://deb.debian.org/debian
}

state=$folder/apt
rm -rf "$state"
mkdir -p "$state/lists/partial" "$state/cache" "$state/sources" "$folder/packages"
: >"$state/status"
cat >"$state/sources/debian.sources" <<SOURCES
Types: deb
URIs: $(mirror)
Suites: $suite $suite-updates $newer_suite
Components: main
Architectures: amd64
Signed-By: $keyring
SOURCES
apt_options=(-qq -o "Dir::State=$state" -o "Dir::State::status=$state/status" -o "Dir::Cache=$state/cache"
  -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$state/sources" -o Dir::Etc::preferences=/dev/null
  -o Dir::Etc::preferencesparts=/dev/null -o APT::Architecture=amd64 -o APT::Architectures::=amd64
  -o APT::Install-Recommends=false -o APT::Sandbox::User= -o Acquire::Languages=none -o Acquire::Retries=3
  -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o APT::Update::Post-Invoke=
  -o Debug::NoLocking=true)
log=$folder/build.log
: >"$log"
run() {
  "$@" >>"$log" 2>&1 || {
    tail -n 5 "$log" >&2
    say "failed: ${*: -3} (whole log: $log)"
    exit 1
  }
}

# unpack NAME SUITE PACKAGE...: brings the packages with all that they depend on, and unpacks them into FOLDER/NAME.
unpack() {
  local name=$1 from=$2 archives=$folder/packages/$1 package
  shift 2
  mkdir -p "$archives/partial"
  run apt-get "${apt_options[@]}" -o "Dir::Cache::archives=$archives" -o APT::Keep-Downloaded-Packages=true -y \
    --download-only -t "$from" install "$@"
  rm -rf "${folder:?}/$name"
  mkdir -p "$folder/$name/usr"/{bin,sbin,lib,lib64}
  for place in bin sbin lib lib64; do ln -s "usr/$place" "$folder/$name/$place"; done
  # Only the packages chosen now: an older version may lie beside them from an earlier build.
  apt-get "${apt_options[@]}" -o "Dir::Cache::archives=$archives" -t "$from" -s install "$@" 2>>"$log" |
    awk '$1 == "Inst" { print $2, substr($3, 2) }' >"$archives/chosen"
  while read -r package chosen_version; do
    run tar -C "$folder/$name" --keep-directory-symlink --no-same-owner -xf \
      <(dpkg-deb --fsys-tarfile "$archives/${package}_${chosen_version//:/%3a}_"*.deb)
  done <"$archives/chosen"
}

run apt-get "${apt_options[@]}" update
unpack qemu "$newer_suite" "${host_packages[@]}"
unpack guest "$suite" "${guest_packages[@]}"

# The kernel without its dependencies, which are about installing it.
kernel=$(apt-cache "${apt_options[@]}" -t "$suite" depends linux-image-cloud-amd64 |
  sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | sort -V | head -n 1)
[ -n "$kernel" ] || { say "apt finds no kernel in $suite"; exit 1; }
mkdir -p "$folder/packages/kernel"
(cd "$folder/packages/kernel" && rm -f ./*.deb && run apt-get "${apt_options[@]}" download "$kernel")
rm -rf "$folder/kernel"
run dpkg-deb -x "$folder/packages/kernel"/*.deb "$folder/kernel"
cp "$folder/kernel/boot/vmlinuz-"* "$folder/vmlinuz"

# QEMU runs with the libraries that it was built for, whatever this machine has.
mkdir -p "$folder/bin"
cat >"$folder/bin/qemu" <<'QEMU'
#!/bin/sh
# Starts the QEMU of this folder with its own libraries and firmware.
root=$(cd "$(dirname "$0")/../qemu" && pwd)
export QEMU_MODULE_DIR="$root/usr/lib/x86_64-linux-gnu/qemu"
exec "$root/lib64/ld-linux-x86-64.so.2" --library-path "$root/usr/lib/x86_64-linux-gnu" \
  "$root/usr/bin/qemu-system-x86_64" -L "$root/usr/share/seabios" -L "$root/usr/share/qemu" \
  -L "$root/usr/lib/ipxe/qemu" "$@"
QEMU
chmod +x "$folder/bin/qemu"

guest=$folder/guest
busybox=$guest/usr/bin/busybox
loader=("$guest/lib64/ld-linux-x86-64.so.2" --library-path "$guest/usr/lib/$triplet:$guest/usr/lib/$triplet/ceph")
tree=$folder/initramfs
rm -rf "$tree"
mkdir -p "$tree"/{bin,dev,proc,sys,run,tmp,mnt,root,lib64,etc/nvme} "$tree/usr/lib"
cp "$busybox" "$tree/bin/busybox"
cp "$here/init" "$tree/init"
chmod 755 "$tree/init"
cp "$guest/lib64/ld-linux-x86-64.so.2" "$tree/lib64/"
for program in "${programs[@]}"; do
  mkdir -p "$tree/${program%/*}"
  cp "$guest/$program" "$tree/$program"
  "${loader[@]}" --list "$guest/$program" | awk -v root="$guest/" \
    'index($3, root) == 1 { print substr($3, length(root) + 1) }'
done | sort -u >"$folder/libraries"
while read -r library; do
  mkdir -p "$tree/${library%/*}"
  cp -L "$guest/$library" "$tree/$library"
done <"$folder/libraries"
[ -e "$tree/usr/lib/$triplet/libc.so.6" ] || { say "found no libraries for the guest's programs"; exit 1; }

# The modules with what they depend on, unpacked: the guest has better things to do.
release=$(basename "$(echo "$folder"/kernel/usr/lib/modules/*)")
all=$folder/kernel/usr/lib/modules/$release
"$busybox" find "$all" -name '*.ko.xz' -exec "$busybox" unxz "{}" ";"
"${loader[@]:0:1}" --argv0 depmod "${loader[@]:1}" "$guest/usr/bin/kmod" -b "$folder/kernel/usr" "$release" 2>>"$log"
mkdir -p "$tree/lib/modules/$release"
for module in "${modules[@]}"; do
  sed -n "s,^\([^:]*/$module\.ko\):,\1,p" "$all/modules.dep" | tr ' ' '\n'
done | sort -u | grep . | while read -r file; do
  mkdir -p "$tree/lib/modules/$release/${file%/*}"
  cp "$all/$file" "$tree/lib/modules/$release/$file"
done
cp "$all"/modules.{builtin,builtin.modinfo,order} "$tree/lib/modules/$release/"
"${loader[@]:0:1}" --argv0 depmod "${loader[@]:1}" "$guest/usr/bin/kmod" -b "$tree" "$release" 2>>"$log"
(cd "$tree" && "$busybox" find . | "$busybox" cpio -o -H newc -R 0:0 2>>"$log") >"$folder/initramfs.cpio"

"$folder/bin/qemu" -device vfio-user-pci,help >>"$log" 2>&1 || { say "this QEMU has no vfio-user-pci"; exit 1; }
rm -rf "$guest" "$folder/kernel" "$tree" "$state" "$folder/libraries"
echo "$version" >"$folder/version"
echo "$folder"

#!/bin/bash
# Run the installed packages on Debian 12's own kernel, in a virtual machine without any network. As root.
#
#   tests/packaging/vm.sh DIR              DIR holds the packages, as packaging/build.sh makes them
#   tests/packaging/vm.sh DIR --no-suite   without the part of the suite that it runs there
#
# What is tried there, and in which order, is in vm-guest.sh. The machine is emulated, so nothing is asked of this one but qemu;
# that takes some ten times as long.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd -P)
. "$here/../../packaging/setup.sh"
. "$here/machine.sh"

[ $# -ge 1 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || die "the machine is made as root: sudo $0 $*"
packages=$(realpath "$1")
suite=${2:-suite}
need_packages debootstrap e2fsprogs qemu-system-x86 util-linux
top=$(cd "$here/../.." && pwd -P)

work=$(mktemp -d /var/tmp/landbox-vm.XXXXXX)
chmod 0755 "$work"
trap 'machine_end; rm -rf --one-file-system "$work"' EXIT
root=$work/root

say "== installing"
make_debian /srv/landbox-tests/debian-12
cp -a --reflink=auto /srv/landbox-tests/debian-12 "$root"
mkdir -p "$root/srv/packages" "$root/srv/tests/bin"
cp "$packages"/landbox_*.deb "$packages"/landbox-helper_*.deb "$root/srv/packages"
machine_start "$root"
inside apt-get -qq update
inside env DEBIAN_FRONTEND=noninteractive sh -c "apt-get -qq install -y --no-install-recommends linux-image-amd64 apparmor kmod \
  ${RUN_PACKAGES[*]} ${TEST_PACKAGES[*]} /srv/packages/landbox_*.deb /srv/packages/landbox-helper_*.deb" >/dev/null
inside useradd --create-home --uid 1000 ada
machine_end
machine_pid=

cp "$here/vm-guest.sh" "$root/srv/guest"
cp "$here/../../packaging/apparmor/landbox-helper" "$root/srv/profile"
if [ "$suite" = suite ]; then
  need_cargo
  say "== building the tests"
  cd "$top"
  host=$(rustc -vV | sed -n 's/^host: //p')
  RUSTFLAGS="-C target-feature=+crt-static" cargo build --quiet --locked --package landbox-tests --bin prober \
    --target "$host" --target-dir target/prober
  install -m 0755 "target/prober/$host/debug/prober" "$root/srv/tests/bin"
  # The programs of the tests, and what they read beside their sources.
  cargo test --quiet --locked --package landbox-tests --no-run --message-format json |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | while read -r program; do
      name=${program##*/}
      strip --strip-debug -o "$root/srv/tests/${name%-*}" "$program"
    done
  mkdir -p "$root$top/tests"
  cp -r tests/fixtures "$root$top/tests"
fi

kernel=$(echo "$root"/boot/vmlinuz-*)
initrd=$(echo "$root"/boot/initrd.img-*)
cp "$kernel" "$work/kernel"
cp "$initrd" "$work/initrd"
rm -rf "$root"/boot/* "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/*
mke2fs -q -t ext4 -d "$root" "$work/disk" 4G
say "== Linux ${kernel##*/vmlinuz-}, emulated"
qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 2G -nic none -display none -monitor none -no-reboot \
  -drive "file=$work/disk,format=raw,if=virtio,cache=unsafe" -kernel "$work/kernel" -initrd "$work/initrd" \
  -append "console=ttyS0 quiet root=/dev/vda rw init=/srv/guest panic=-1 random.trust_cpu=on" -serial stdio </dev/null |
  sed -u 's|\r$||' | tee "$work/said" >&2
grep -qx '== kernel: all passed' "$work/said" || die "not all passed"

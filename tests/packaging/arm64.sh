#!/bin/bash
# Build for 64-bit Arm, and run of it what an emulator of programs can run: the programs' first words, and the unit tests of shared
# and seccomp. As root.
#
#   tests/packaging/arm64.sh
#
# In a Debian 12 of its own, with Debian's compilers and arm64 libraries, and the crates that cargo has on this machine. Sessions are not
# run: an emulator of programs has no namespaces, mounts or filters of its own to give.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd -P)
. "$here/../../packaging/setup.sh"
. "$here/machine.sh"

[ $# -eq 0 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || die "the machine is made as root: sudo $0"
need_packages debootstrap git util-linux
need_cargo
top=$(cd "$here/../.." && pwd -P)

work=$(mktemp -d /var/tmp/landbox-arm64.XXXXXX)
chmod 0755 "$work"
trap 'machine_end; rm -rf --one-file-system "$work"' EXIT
root=$work/root

say "== installing"
make_debian /srv/landbox-tests/debian-12
cp -a --reflink=auto /srv/landbox-tests/debian-12 "$root"
# The Rust that is new enough came with a security update.
security=$(known_mirror bookworm-security)
[ -z "$security" ] || echo "deb $security bookworm-security main" >>"$root/etc/apt/sources.list"
machine_start "$root"
inside dpkg --add-architecture arm64
inside apt-get -qq update
inside env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends rustc-web cargo-web libstd-rust-web-dev:arm64 \
  gcc libc6-dev gcc-aarch64-linux-gnu libc6-dev-arm64-cross libnftnl-dev:arm64 libmnl-dev:arm64 pkg-config qemu-user >/dev/null

say "== fetching the crates"
(cd "$top" && git -c safe.directory='*' ls-files -z | xargs -0 cp --parents -t "$root/srv")
(cd "$top" && cargo fetch --quiet --locked)
mkdir -p "$root/root/.cargo"
cp -a --reflink=auto "${CARGO_HOME:-$HOME/.cargo}/registry" "$root/root/.cargo"

target=aarch64-unknown-linux-gnu
arm() {
  inside env --chdir=/srv CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=qemu-aarch64 PKG_CONFIG_ALLOW_CROSS=1 \
    PKG_CONFIG_LIBDIR=/usr/lib/aarch64-linux-gnu/pkgconfig "$@"
}
say "== building"
arm cargo build --quiet --locked --offline --target $target
for program in landbox landbox-helper landbox-audit; do
  readelf --file-header "$root/srv/target/$target/debug/$program" | grep -q 'Machine: *AArch64$' || die "$program is not for arm64"
  arm qemu-aarch64 target/$target/debug/$program --version >&2
done
say "== unit tests, emulated"
# Not the one that has the kernel obey a filter: the emulator's own calls would have to, and it refuses.
arm cargo test --quiet --locked --offline --target $target --package landbox-shared --package landbox-seccomp --lib -- \
  --skip the_kernel_takes_the_programs_and_obeys >&2
say "== arm64: all passed"

# Functions shared by quickstart.sh, tests/run.sh and .ci/run: what must be on the machine before anything is built.
# Sourced by bash; never run.

say() { printf '%s\n' "$*" >&2; }
die() { say "$0: $*"; exit 1; }

# What building needs, what running needs on hosts without a usable kernel overlay, what the tests look with, what makes
# packages, and what tries them.
BUILD_PACKAGES=(ca-certificates gcc libc6-dev libnftnl-dev libmnl-dev pkg-config)
RUN_PACKAGES=(fuse-overlayfs slirp4netns git)
TEST_PACKAGES=(acl attr btrfs-progs bubblewrap fish iproute2 libcap2-bin mandoc nftables procps python3 ripgrep strace tmux util-linux zsh)
PACKAGING_PACKAGES=(dpkg-dev python3)
DISTRIBUTION_PACKAGES=(apparmor debootstrap dpkg-dev libcap2-bin lintian procps rpm util-linux)

# need_packages NAME..: installs what is missing, as root or with passwordless sudo; else prints the one line to type.
need_packages() {
  local missing=() name
  command -v dpkg-query >/dev/null || { say "Not a Debian system: make sure that these are installed: $*"; return; }
  for name in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing+=("$name")
  done
  [ ${#missing[@]} -eq 0 ] && return
  # A machine that was just made has no lists; a stale list names versions that are gone. Who has to type it types it once:
  # what Rust needs is in it.
  if ! find_cargo && [ "$(id -u)" -ne 0 ]; then
    for name in rustc-web cargo-web; do
      [[ " ${missing[*]} " = *" $name "* ]] || missing+=("$name")
    done
  fi
  as_root "sudo apt-get update && sudo apt-get install -y ${missing[*]}" install -y --no-install-recommends "${missing[@]}" ||
    newest_packages "${missing[@]}"
}

# newest_packages NAME..: the same with lists fetched anew, also for packages that are there in an older version.
newest_packages() {
  local line="sudo apt-get update && sudo apt-get install -y $*"
  as_root "$line" update && as_root "$line" install -y --no-install-recommends "$@" || die "can't install $*"
}

# as_root LINE ARG..: apt-get ARG.., or LINE as what to type where that is not allowed.
as_root() {
  local line=$1 sudo=()
  shift
  if [ "$(id -u)" -ne 0 ]; then
    if sudo -n true 2>/dev/null; then
      sudo=(sudo -n)
    else
      say "Packages are missing. Type this line, then start again:"
      say "    $line"
      exit 1
    fi
  fi
  say "apt-get $*"
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o Dpkg::Use-Pty=0 -qq "$@" >/dev/null
}

# need_cargo: makes `cargo` a toolchain that is new enough: the one on PATH, rustup's, or Debian's rustc-web.
need_cargo() {
  find_cargo && return
  need_packages rustc-web cargo-web
  # Security updates bring the new ones: a list from before them knows only the first.
  cargo_is_new_enough || newest_packages rustc-web cargo-web
  cargo_is_new_enough || die "Rust 1.91 or newer is needed; found: $(rustc --version 2>&1)"
}

find_cargo() {
  cargo_is_new_enough && return
  [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ] && PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
  cargo_is_new_enough
}

cargo_is_new_enough() {
  local version
  version=$(cargo --version 2>/dev/null | sed -n 's/^cargo \([0-9]*\)\.\([0-9]*\)\..*/\1 \2/p')
  [ -n "$version" ] || return 1
  set -- $version
  [ "$1" -gt 1 ] || [ "$2" -ge 91 ]
}

# build_release DIR [PROGRAM..]: builds programs of the checkout, by default helper and controller, into DIR/target/release.
# As static as the libraries allow: every session starts both, and finding and relocating shared ones is a good part of that.
# Debian has no static libmnl, so there the helper shares that and the C library (a third of a millisecond a start);
# libnftnl is linked in.
build_release() {
  local manifest=$1/Cargo.toml links=$(realpath "$1")/target/links static=() helper=() nftnl program unwinder
  shift
  [ $# -gt 0 ] || set -- landbox-helper landbox
  links_static && static=(-C target-feature=+crt-static)
  nftnl=$(gcc -print-file-name=libnftnl.a)
  # libnftnl leans on libmnl, which a shared one names itself and an archive does not. Last, for linkers that go by order.
  if links_static -lnftnl -lmnl; then
    helper=("${static[@]}" -C link-arg=-Wl,-Bstatic,--start-group,-lmnl,-lc,--end-group)
  elif [ -f "$nftnl" ]; then
    mkdir -p "$links"
    ln -sf "$nftnl" "$links/libnftnl.a"
    # So is what the standard library wants of the C compiler, where that brings it as an archive.
    unwinder=$(gcc -print-file-name=libgcc_eh.a)
    rm -f "$links/libgcc_s.a"
    [ -f "$unwinder" ] && ln -s "$unwinder" "$links/libgcc_s.a"
    LIBNFTNL_LIB_DIR=$(realpath "$links") && export LIBNFTNL_LIB_DIR
    helper=(-C link-arg=-lmnl)
  fi
  for program in "$@"; do
    case $program in
      landbox) release landbox landbox "${static[@]}" ;;
      *) release landbox-helper "$program" "${helper[@]}" ;;
    esac
  done
}

# release PACKAGE PROGRAM FLAG..: builds one program of `build_release`.
# Who looks on sees how far it is.
release() {
  local quiet=(--quiet)
  if [ -t 2 ]; then quiet=(); fi
  cargo rustc "${quiet[@]}" --release --locked --manifest-path "$manifest" --package "$1" --bin "$2" -- "${@:3}"
}

# build_for_package DIR PROGRAM..: the same as bytes that do not depend on where the checkout, the crates and the compiler lie.
# Says in which folder they are.
build_for_package() {
  local top flags=() home
  top=$(realpath "$1")
  shift
  home=$(realpath "${CARGO_HOME:-$HOME/.cargo}")
  flags+=("--remap-path-prefix=$home=/cargo" "--remap-path-prefix=$(rustc --print sysroot)=/rust")
  flags+=("--remap-path-prefix=$top=/landbox")
  (
    # Not RUSTFLAGS, which is split at blanks; an own folder, because other flags would rebuild all.
    CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f' && printf '%s' "${flags[*]}")
    export CARGO_ENCODED_RUSTFLAGS CARGO_TARGET_DIR=$top/target/package/build
    unset RUSTFLAGS
    build_release "$top" "$@" >&2
  )
  printf '%s\n' "$top/target/package/build/release"
}

# links_static FLAG..: whether a position-independent program can be linked without shared libraries.
links_static() {
  echo 'int main(void) { return 0; }' | gcc -static-pie -x c -o /dev/null - "$@" 2>/dev/null
}

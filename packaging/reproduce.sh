#!/bin/bash
# Build twice, in two folders that have nothing in common, and compare the bytes.
#
#   packaging/reproduce.sh             the Debian packages
#   packaging/reproduce.sh PROGRAM..   these programs alone: landbox-helper, landbox-audit, landbox
#
# The second build also has another umask, time zone, language and home for cargo. Prints the digests; fails where they differ.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd -P)
. "$top/packaging/setup.sh"
case ${1:-} in -*) sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2 ;; esac

need_packages "${BUILD_PACKAGES[@]}" "${PACKAGING_PACKAGES[@]}"
need_cargo
work=$(mktemp -d "${TMPDIR:-/var/tmp}/landbox-reproduce.XXXXXX")
trap 'rm -rf "$work"' EXIT
first=$work/one second=$work/another/place/with-a-longer-name

# build DIR PROGRAM..: in the copy of the checkout there; what comes of it goes to DIR/out.
build() {
  local dir=$1 programs program
  shift
  mkdir -p "$dir/out"
  (cd "$top" && git -c safe.directory='*' ls-files -z | xargs -0 cp --parents -t "$dir")
  if [ $# -eq 0 ]; then
    "$dir/packaging/build.sh" "$dir/out"
    return
  fi
  programs=$(build_for_package "$dir" "$@")
  for program in "$@"; do
    cp "$programs/$program" "$dir/out"
  done
}

say "== first build"
build "$first" "$@"
say "== second build"
crates=$work/crates
cp -a "${CARGO_HOME:-$HOME/.cargo}" "$crates"
(
  umask 077
  export TZ=Pacific/Auckland LANG=C LC_ALL=C CARGO_HOME=$crates
  build "$second" "$@"
)
cd "$first/out"
sha256sum * | tee "$work/digests"
cd "$second/out"
sha256sum --check --quiet "$work/digests" || die "the two builds differ"
say "== the two builds are equal, byte by byte"

#!/bin/bash
# Build the Debian packages landbox and landbox-helper.
#
#   packaging/build.sh [--programs DIR] [OUT]
#   packaging/build.sh --release [OUT]
#
# They come to OUT, by default target/package. The same sources give the same bytes, wherever they lie: see
# packaging/reproduce.sh. --programs packs programs that were built before, instead of building them.
#
# LANDBOX_PUBLISHER="NAME <ADDRESS>" is who answers for the packages. Without it they name an address that nobody has, which
# will do on machines of one's own. --release refuses that, and sources that are not what was committed.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd -P)
. "$top/packaging/setup.sh"

nobody='Landbox developers <landbox@packages.example.org>'
publisher=${LANDBOX_PUBLISHER:-$nobody}
[[ $publisher =~ ^[^\<\>]+\ \<[^\<\>@[:space:]]+@[^\<\>@[:space:]]+\>$ ]] || die "LANDBOX_PUBLISHER is not of the form NAME <ADDRESS>"
release=
if [ "${1:-}" = "--release" ]; then
  [[ $publisher != *example.* ]] || die "a release needs a publisher who can be reached: LANDBOX_PUBLISHER=\"NAME <ADDRESS>\""
  [ -z "$(git -C "$top" status --porcelain 2>&1)" ] || die "a release is made of what was committed: see git status"
  release=1
  shift
fi
programs=
if [ -z "$release" ] && [ "${1:-}" = "--programs" ]; then
  [ $# -ge 2 ] || die "--programs needs a folder"
  programs=$(realpath "$2")
  shift 2
fi
if [ $# -gt 1 ] || [[ ${1:-} = -* ]]; then
  sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
out=${1:-$top/target/package}
mkdir -p "$out"
out=$(realpath "$out")

need_packages "${BUILD_PACKAGES[@]}" "${PACKAGING_PACKAGES[@]}"
need_cargo
cd "$top"
export LC_ALL=C.UTF-8 TZ=UTC
umask 022

source_name=$(dpkg-parsechangelog -l packaging/debian/changelog -S Source)
version=$(dpkg-parsechangelog -l packaging/debian/changelog -S Version)
[ "${version%-*}" = "$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)" ] || die "Cargo.toml has another version than the changelog"
export SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH=$(dpkg-parsechangelog -l packaging/debian/changelog -S Timestamp)
date=$(date -u -d "@$SOURCE_DATE_EPOCH" +%F)
arch=$(dpkg --print-architecture)

if [ -z "$programs" ]; then
  say "Building the programs"
  programs=$(build_for_package "$top" landbox-helper landbox-audit landbox)
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# dpkg's tools look for debian/ where they are started.
cp -r packaging/debian "$work/debian"
for file in "$work"/debian/{control,changelog}; do
  text=$(<"$file")
  printf '%s\n' "${text//"$nobody"/"$publisher"}" >"$file"
done

# stage PACKAGE: makes its tree and says where. What goes in is put there by `put` and `pack`.
stage() {
  package=$1 tree=$work/$1
  mkdir -p "$tree/DEBIAN" "$tree/usr/share/doc/$1"
}
put() { install -D -m "$1" "$2" "$tree/$3"; }
pack() { gzip -9n <"$1" | install -D -m 0644 /dev/stdin "$tree/$2.gz"; }
# page FILE: a page of the manual, with date and version.
page() {
  sed "s/@DATE@/$date/; s/@VERSION@/${version%-*}/" "$1" >"$work/page"
  pack "$work/page" "usr/share/man/man${1##*.}/${1##*/}"
}
documents() {
  local doc=usr/share/doc/$package
  put 0644 packaging/debian/copyright "$doc/copyright"
  pack "$work/debian/changelog" "$doc/changelog.Debian"
  pack packaging/CHANGELOG.md "$doc/changelog"
  put 0644 packaging/SECURITY.md "$doc/SECURITY.md"
}
# finish LIBRARY PROGRAM..: the control files of the staged package, whose programs have the library in them, and the package.
finish() {
  local program inner=$1
  shift
  cd "$work"
  dpkg-shlibdeps -T"$package.substvars" "${@/#/$tree/}"
  # A static program needs no library, and of that nothing is written.
  grep -q '^shlibs:Depends=' "$package.substvars" || echo 'shlibs:Depends=' >>"$package.substvars"
  printf 'landbox:Built-Using=%s\n' "$(built_using "$inner")" >>"$package.substvars"
  find "$tree" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
  dpkg-gencontrol -p"$package" -P"$tree" -T"$package.substvars" -O"$tree/DEBIAN/control"
  (cd "$tree" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | LC_ALL=C sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
  for program in postinst postrm; do
    [ ! -f "debian/$package.$program" ] || install -m 0755 "debian/$package.$program" "$tree/DEBIAN/$program"
  done
  (cd "$tree" && find etc -type f -printf '/%p\n' 2>/dev/null | LC_ALL=C sort) >"$tree/DEBIAN/conffiles" || true
  [ -s "$tree/DEBIAN/conffiles" ] || rm "$tree/DEBIAN/conffiles"
  find "$tree" -type d -exec chmod 0755 {} + -exec touch --date "@$SOURCE_DATE_EPOCH" {} +
  touch --date "@$SOURCE_DATE_EPOCH" "$tree"/DEBIAN/*
  dpkg-deb --root-owner-group -Zxz --build "$tree" "$out/${package}_${version}_$arch.deb" >&2
  cd "$top"
}
# What a library that is in a program itself was made from, as a source package.
built_using() { dpkg-query -W -f '${source:Package} (= ${source:Version})' "$1"; }

stage landbox-helper
put 0755 "$programs/landbox-helper" usr/libexec/landbox/landbox-helper
put 0755 "$programs/landbox-audit" usr/sbin/landbox-audit
mkdir -p "$tree/etc/landbox/trusted.d"
documents
put 0644 helper/AUDIT.md usr/share/doc/landbox-helper/AUDIT.md
page packaging/man/landbox-helper.8
page packaging/man/landbox-audit.8
nftnl=$(dpkg-query -W -f '${Version}' libnftnl-dev)
mnl=$(dpkg-query -W -f '${Version}' libmnl-dev)
packaging/sbom.py landbox-helper "libnftnl=$nftnl=GPL-2.0-or-later" "libmnl=$mnl=LGPL-2.1-or-later" >"$work/sbom"
put 0644 "$work/sbom" usr/share/doc/landbox-helper/sbom.cdx.json
# Debian 12's AppArmor does not know the profile's rule; Ubuntu's does, and restricts user namespaces without it.
if dpkg-vendor --derives-from Ubuntu; then
  put 0644 packaging/apparmor/landbox-helper etc/apparmor.d/landbox-helper
else
  put 0644 packaging/apparmor/landbox-helper usr/share/apparmor/extra-profiles/landbox-helper
fi
finish libnftnl-dev usr/libexec/landbox/landbox-helper usr/sbin/landbox-audit

stage landbox
put 0755 "$programs/landbox" usr/bin/landbox
documents
put 0644 README.md usr/share/doc/landbox/README.md
mkdir "$work/pages"
"$programs/landbox" util man "$work/pages"
for file in "$work"/pages/* packaging/man/*.5; do
  page "$file"
done
completions() { "$programs/landbox" util completions "$1" | install -D -m 0644 /dev/stdin "$tree/$2"; }
completions bash usr/share/bash-completion/completions/landbox
completions zsh usr/share/zsh/vendor-completions/_landbox
completions fish usr/share/fish/vendor_completions.d/landbox.fish
packaging/sbom.py landbox "glibc=$(dpkg-query -W -f '${Version}' libc6-dev)=LGPL-2.1-or-later" >"$work/sbom"
put 0644 "$work/sbom" usr/share/doc/landbox/sbom.cdx.json
finish libc6-dev usr/bin/landbox

[ "$publisher" != "$nobody" ] || say "Nobody is named who answers for these packages: for others than yourself set LANDBOX_PUBLISHER"
say "Made in $out: ${source_name} $version"

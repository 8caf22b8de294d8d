#!/bin/bash
# Install, use, upgrade and purge the Debian packages on a Debian 12 of their own. As root.
#
#   tests/packaging/run.sh DIR     DIR holds the packages, as packaging/build.sh makes them
#
# The system is made by debootstrap, once, and copied for each run; it has its own mount and process namespaces and the host's
# network. On the host it installs what it needs and keeps that system in /srv/landbox-tests/debian-12; nothing else is changed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd -P)
. "$here/../../packaging/setup.sh"
. "$here/machine.sh"

[ $# -eq 1 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || die "the packages are installed as root: sudo $0 $1"
packages=$(realpath "$1")
need_packages "${DISTRIBUTION_PACKAGES[@]}"
one() { local found=("$packages"/$1); [ ${#found[@]} -eq 1 ] && [ -f "${found[0]}" ] || die "not one $1 in $packages"; echo "${found[0]}"; }
landbox=$(one 'landbox_*.deb')
helper=$(one 'landbox-helper_*.deb')
helper_path=/usr/libexec/landbox/landbox-helper

work=$(mktemp -d /var/tmp/landbox-packaging.XXXXXX)
chmod 0755 "$work"
trap 'machine_end; rm -rf --one-file-system "$work"' EXIT

# ---- what must be true -------------------------------------------------------------------------------------------------

the_packages_hold_exactly_what_is_stated() {
  local package
  for package in "$landbox" "$helper"; do
    dpkg-deb -c "$package" | awk '{ print $1, $2, $6 }'
  done | LC_ALL=C sort | diff "$here/contents" -
}

lintian_finds_no_error() {
  lintian --allow-root --fail-on error "$landbox" "$helper" >&2
}

packing_the_same_programs_elsewhere_gives_the_same_bytes() {
  local copy=$work/a/copy/elsewhere package publisher
  publisher=$(dpkg-deb -f "$landbox" Maintainer)
  mkdir -p "$copy" "$work/again"
  sources "$copy"
  (umask 077 && TZ=Pacific/Auckland LC_ALL=C LANDBOX_PUBLISHER=$publisher "$copy/packaging/build.sh" --programs "$work/programs" \
    "$work/again") 2>/dev/null
  for package in "$landbox" "$helper"; do
    cmp "$package" "$work/again/${package##*/}"
  done
}

a_release_without_somebody_who_answers_for_it_is_refused() {
  local publisher code said
  for publisher in "" "nobody" "Landbox developers <landbox@packages.example.org>"; do
    code=0
    said=$(LANDBOX_PUBLISHER=$publisher "$here/../../packaging/build.sh" --release "$work/refused" 2>&1) || code=$?
    [ "$code" -eq 1 ] && grep -q LANDBOX_PUBLISHER <<<"$said" || fail "exit code $code: $said"
  done
  [ ! -e "$work/refused" ]
}

the_rpm_packages_hold_exactly_what_is_stated_and_the_helper_its_one_capability() {
  local top=$work/rpm name=landbox-0.1.0
  mkdir -p "$top/SOURCES" "$top/$name"
  sources "$top/$name"
  tar -czf "$top/SOURCES/$name.tar.gz" -C "$top" "$name"
  # Of the programs of the other packages, and without what needs a Fedora.
  rpmbuild -bb --quiet --nodeps --dbpath "$top/db" --define "_topdir $top" --define "programs $work/programs" \
    --define "debug_package %{nil}" --define "_build_id_links none" "$here/../../packaging/rpm/landbox.spec" >"$top/log" 2>&1 ||
    fail "$(cat "$top/log")"
  rpm -qp --dbpath "$top/db" --qf '[%{FILEMODES:perms} %{FILEUSERNAME}/%{FILEGROUPNAME} %{FILENAMES} %{FILECAPS}\n]' "$top"/RPMS/*/*.rpm |
    sed 's/(none)//; s/\.gz / /; s/ *$//' | LC_ALL=C sort | diff "$here/contents-rpm" -
}

the_apparmor_profile_parses_and_is_for_the_helper_alone() {
  local profile=$here/../../packaging/apparmor/landbox-helper
  # The parser of Debian 12 does not know the one rule yet, nor the version of the rules that has it.
  if [ -e /etc/apparmor.d/abi/4.0 ]; then
    cp "$profile" "$work/profile"
  else
    sed 's|^abi <abi/4.0>,$|abi <abi/3.0>,|; /^  userns,$/d' "$profile" >"$work/profile"
  fi
  [ "$(apparmor_parser --skip-kernel-load --skip-cache --names "$work/profile")" = landbox-helper ]
  [ "$(grep -c '^profile ' "$profile")" -eq 1 ]
  grep -q '^profile landbox-helper /usr/libexec/landbox/landbox-helper flags=(unconfined) {$' "$profile"
}

apt_installs_both_with_what_they_need() {
  # So that what comes with the packages alone can be told from what they need.
  local needed=(git libcap2-bin libmnl0 libnftnl11 fuse-overlayfs slirp4netns)
  inside apt-get -qq update
  inside env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${needed[@]}" >/dev/null
  inside useradd --create-home --uid 2001 ada
  inside useradd --create-home --uid 2002 bob
  listing >"$work/before"
  mkdir -p "$root/srv/packages"
  cp "$landbox" "$helper" "$root/srv/packages"
  inside env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
    "/srv/packages/${landbox##*/}" "/srv/packages/${helper##*/}" >/dev/null
  inside dpkg --verify landbox landbox-helper | is_empty
}

the_helper_has_one_capability_and_no_program_is_set_id() {
  [ "$(inside getcap $helper_path)" = "$helper_path cap_sys_admin=p" ]
  [ "$(inside stat -c '%U:%G %a' $helper_path)" = "root:root 755" ]
  files | inside xargs -d '\n' getcap | without "^$helper_path " | is_empty
  files | inside xargs -d '\n' -I{} find {} -maxdepth 0 -type f -perm /7022 | is_empty
  [ "$(inside stat -c '%U:%G %a' /etc/landbox/trusted.d /etc/landbox)" = "$(printf 'root:root 755\nroot:root 755')" ]
}

the_manual_and_the_completions_are_found() {
  inside test -f /usr/share/man/man1/landbox-run.1.gz
  inside test -f /usr/share/man/man8/landbox-audit.8.gz
  inside test -f /usr/share/bash-completion/completions/landbox
  inside grep -q libnftnl /usr/share/doc/landbox-helper/sbom.cdx.json
}

a_user_who_is_not_enrolled_is_refused_and_told_what_to_ask() {
  local said code=0
  said=$(as ada landbox run -- true 2>&1) || code=$?
  [ "$code" -eq 125 ] || fail "exit code $code: $said"
  grep -q "landbox doctor" <<<"$said" || fail "$said"
}

the_command_that_doctor_prints_enrols_the_user() {
  local line
  line=$(as ada landbox doctor 2>&1 | grep -o 'landbox-audit trust add .*' | head -1) || true
  [ -n "$line" ] || fail "doctor prints no command"
  inside sh -c "$line"
  as ada landbox doctor >&2
  inside landbox-audit trust list | grep -q ' 2001 '
}

an_enrolled_user_runs_reviews_and_lands() {
  as ada sh -c 'mkdir -p ~/shop && cd ~/shop && echo one >a'
  as ada sh -c 'cd ~/shop && landbox run -- sh -c "echo two >>a; id -u >b"' >&2
  [ "$(cat "$root/home/ada/shop/a")" = one ]
  as ada sh -c 'cd ~/shop && landbox land --apply --yes' >&2
  [ "$(cat "$root/home/ada/shop/a")" = "$(printf 'one\ntwo')" ]
  [ "$(cat "$root/home/ada/shop/b")" = 2001 ]
  [ "$(stat -c %u "$root/home/ada/shop/b")" = 2001 ]
}

the_session_says_that_the_packaged_helper_made_it() {
  as ada sh -c 'cd ~/shop && landbox show --json' | grep -q capable
}

a_network_policy_holds_for_the_packaged_helper() {
  echo '{"version": 1, "public": {"mode": "block"}, "private": {"mode": "block"}}' >"$root/srv/none.json"
  local code=0
  as ada sh -c 'cd ~/shop && landbox run --network /srv/none.json -- bash -c "echo >/dev/tcp/192.0.2.1/80"' 2>"$work/said" || code=$?
  [ "$code" -eq 1 ] || fail "exit code $code: $(cat "$work/said")"
}

somebody_elses_key_is_refused() {
  inside sh -c 'mkdir -p ~bob/.config && cp -a ~ada/.config/landbox ~bob/.config/ && chown -R bob: ~bob/.config'
  local code=0 said
  said=$(as bob landbox run -- true 2>&1) || code=$?
  [ "$code" -eq 125 ] || fail "exit code $code: $said"
  inside rm -r /home/bob/.config/landbox
}

an_upgrade_leaves_a_running_session_alone() {
  newer
  mkfifo "$work/go"
  input=$work/go as ada sh -c 'cd ~/shop && landbox run --name long -- sh -c "echo begun >long; read go; echo ended >>long"' \
    >"$work/long" 2>&1 &
  local session=$! monitor
  exec 8>"$work/go"
  wait_until 60 as ada sh -c 'cd ~/shop && landbox diff long | grep -q "^+begun"' || fail "$(cat "$work/long")"
  monitor=$(helpers | head -1)
  inside env DEBIAN_FRONTEND=noninteractive dpkg -i /srv/newer/landbox_9_all.deb /srv/newer/landbox-helper_9_all.deb >/dev/null
  [ "$(inside getcap $helper_path)" = "$helper_path cap_sys_admin=p" ]
  inside readlink "/proc/$monitor/exe" | grep -q deleted || fail "the running helper's file is not the old one"
  as ada sh -c 'cd ~/shop && landbox run -- true' >&2
  echo go >&8
  exec 8>&-
  wait "$session" || fail "$(cat "$work/long")"
  as ada sh -c 'cd ~/shop && landbox land --apply --yes long' >&2
  [ "$(cat "$root/home/ada/shop/long")" = "$(printf 'begun\nended')" ]
}

removing_keeps_the_enrolled_keys_and_installing_again_finds_them() {
  inside dpkg --remove landbox landbox-helper >/dev/null
  inside test ! -e $helper_path
  inside sh -c 'ls /etc/landbox/trusted.d/*.pub' >/dev/null
  inside env DEBIAN_FRONTEND=noninteractive dpkg -i "/srv/packages/${landbox##*/}" "/srv/packages/${helper##*/}" >/dev/null
  as ada sh -c 'cd ~/shop && landbox run -- true' >&2
}

a_helper_without_its_capability_says_so_and_works() {
  inside setcap -r $helper_path
  as bob sh -c 'mkdir -p ~/p && cd ~/p && landbox run -- true && landbox show --json' | grep -q unprivileged
  inside setcap cap_sys_admin=p $helper_path
}

purging_leaves_nothing() {
  inside dpkg --purge landbox landbox-helper >/dev/null
  listing | diff "$work/before" -
  inside dpkg-query -W -f '${Package} ${db:Status-Status}\n' | sed -n '/^landbox/p' | is_empty
}

# Debian's libraries, under other names of packages: so without what the packages ask for.
the_rpm_packages_are_installed_verified_used_and_erased() {
  rpm_in --install --nodeps "$work"/rpm/RPMS/*/*.rpm
  [ "$(inside getcap $helper_path)" = "$helper_path cap_sys_admin=p" ]
  rpm_in --verify --nodeps landbox landbox-helper | is_empty
  local line
  line=$(as ada landbox doctor 2>&1 | grep -o 'landbox-audit trust add .*' | head -1) || true
  inside sh -c "$line"
  as ada sh -c 'cd ~/shop && landbox run -- sh -c "echo rpm >by" && landbox land --apply --yes' >&2
  [ "$(cat "$root/home/ada/shop/by")" = rpm ]
  rpm_in --erase landbox landbox-helper
  # But for folders that are other packages' where there are packages of this kind.
  local others='^/usr/share/(fish|licenses|zsh)[ /]'
  listing | grep -vE "$others" | diff <(grep -vE "$others" "$work/before") -
}

# ---- how it is looked at -----------------------------------------------------------------------------------------------

# Every file of the system with owner and mode: not what users and package managers keep for themselves.
listing() {
  inside find / -xdev \( -path /home -o -path /srv -o -path /tmp -o -path /var/cache -o -path /var/lib/apt -o -path /var/lib/dpkg \
    -o -path /var/log -o -path /run -o -path /root \) -prune -o -printf '%p %u:%g %m %l\n' | LC_ALL=C sort
}

# Every file of the two packages.
files() { inside dpkg -L landbox landbox-helper | sed '/^$/d'; }

# Process numbers of what runs the installed helper, also where its file was replaced.
helpers() {
  inside sh -c "for process in /proc/[0-9]*; do
    case \$(readlink \$process/exe) in $helper_path*) echo \${process#/proc/} ;; esac
  done" 2>/dev/null | sort -n
}

# What git knows of, copied to a folder.
sources() { (cd "$here/../.." && git -c safe.directory='*' ls-files -z | xargs -0 cp --parents -t "$1"); }

rpm_in() { rpm --root "$root" --dbpath /srv/rpm "$@"; }

# The same packages as a newer version, with programs that are other files.
newer() {
  local package
  mkdir -p "$root/srv/newer"
  for package in "$landbox" "$helper"; do
    rm -rf "$work/newer"
    dpkg-deb -R "$package" "$work/newer"
    sed -i 's/^Version: .*/Version: 9/; s/(= [^)]*)$/(= 9)/; s/landbox-helper (= [^)]*)/landbox-helper (= 9)/' "$work/newer/DEBIAN/control"
    find "$work/newer/usr" -type f -path '*bin/*' -o -type f -path '*/libexec/*' | while read -r program; do
      printf 'newer' >>"$program"
    done
    (cd "$work/newer" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | xargs -0 md5sum >DEBIAN/md5sums)
    dpkg-deb --root-owner-group -b "$work/newer" "$root/srv/newer/$(dpkg-deb -f "$package" Package)_9_all.deb" >/dev/null
  done
}

without() { sed "\\|$1|d"; }
is_empty() { local text; text=$(cat); [ -z "$text" ] || fail "$text"; }
fail() { say "  $*"; return 1; }
wait_until() {
  local end=$((SECONDS + $1))
  shift
  until "$@" 2>/dev/null; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.2
  done
}

# ---- the run -----------------------------------------------------------------------------------------------------------

make_debian /srv/landbox-tests/debian-12
root=$work/root
mkdir "$work/programs"
for package in "$landbox" "$helper"; do
  dpkg-deb -x "$package" "$work/unpacked"
done
find "$work/unpacked/usr" -type f -perm -0100 -exec cp {} "$work/programs" \;
cp -a --reflink=auto /srv/landbox-tests/debian-12 "$root"
machine_start "$root"

failed=()
for promise in $(sed -n 's/^\([a-z_]*\)() {$/\1/p' "$0"); do
  case $promise in listing | helpers | newer | wait_until) continue ;; esac
  say "-- ${promise//_/ }"
  # Not in a condition: there `set -e` would not count.
  status=0
  (set -e; "$promise") & wait $! || status=$?
  [ "$status" -eq 0 ] || { failed+=("$promise"); say "   FAILED"; }
done
[ ${#failed[@]} -eq 0 ] || die "failed: ${failed[*]}"
say "== packages: all passed"

#!/bin/bash
# Build everything and run the tests.
#
#   tests/run.sh                    all: unit tests of every crate, then the suite
#   tests/run.sh unit [FILTER..]    the unit tests alone
#   tests/run.sh suite [FILTER..]   the whole-system tests alone; FILTER and options go to the test programs
#   tests/run.sh --installed [--capable|--plain] [--test=FILE].. [FILTER..]
#                                   the same against the installed packages (see packaging/build.sh), as root: first with the
#                                   helper's capability, then without, or one of the two alone; --test names files of
#                                   tests/tests. tests/packaging/installed.sh installs for the run alone
#
# As root the suite runs sessions both as an ordinary user and as root. As an ordinary user it runs the first half and
# says so. LANDBOX_TEST_BASE is the folder that it works in, by default one in /srv or in the user's cache.
set -euo pipefail
cd "$(dirname "$0")/.."
. packaging/setup.sh

part=${1:-all}
shift || true
case $part in
  all | unit | suite | --installed) ;;
  *) sed -n '2,14s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac

need_packages "${BUILD_PACKAGES[@]}" "${RUN_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
need_cargo

only=() ways="capable plain"
if [ "$part" = --installed ]; then
  while :; do
    case ${1:-} in
      --capable | --plain) ways=${1#--} && shift ;;
      --test=*) only+=("$1") && shift ;;
      *) break ;;
    esac
  done
fi

# One failure must not hide the others: everything is run, and the script fails at its end.
failed=()
# A shell that was put in the background ignores the keyboard's signals, and hands that on: tests send them.
plain=(env --default-signal=INT,QUIT,HUP,PIPE)

if [ "$part" = all ] || [ "$part" = unit ]; then
  say "== unit tests"
  "${plain[@]}" cargo test --locked --workspace --exclude landbox-tests --no-fail-fast -- "$@" || failed+=("unit tests")
fi

finish() {
  [ ${#failed[@]} -eq 0 ] || die "failed: ${failed[*]}"
  say "== all passed"
  exit
}
[ "$part" = unit ] && finish

# The devices that fuse-overlayfs and slirp4netns open are root's alone on some machines.
for device in /dev/fuse:10:229 /dev/net/tun:10:200; do
  IFS=: read -r path major minor <<<"$device"
  if [ "$(id -u)" -eq 0 ]; then
    mkdir -p "${path%/*}"
    [ -c "$path" ] || mknod "$path" c "$major" "$minor"
    chmod 0666 "$path"
  elif ! [ -w "$path" ]; then
    die "$path is not open to you. Type this line, then start again: sudo chmod 0666 $path"
  fi
done

if [ "$(id -u)" -eq 0 ]; then
  base=${LANDBOX_TEST_BASE:-/srv/landbox-tests}
  user=$(awk -F: '$3 >= 1000 && $3 < 60000 { print $1; exit }' /etc/passwd)
  if [ -z "$user" ]; then
    user=landbox-test
    useradd --create-home "$user"
  fi
  worlds=()
else
  base=${LANDBOX_TEST_BASE:-${XDG_CACHE_HOME:-$HOME/.cache}/landbox-tests}
  user=$(id -un)
  worlds=(--skip root_)
  say "== Not root: sessions of root are not tested. For those: sudo tests/run.sh"
fi
export LANDBOX_TEST_BASE=$base LANDBOX_TEST_UID=$(id -u "$user") LANDBOX_TEST_GID=$(id -g "$user")
export LANDBOX_TEST_BIN=$base/bin
[ "$part" != --installed ] || LANDBOX_TEST_BIN=$base/installed

say "== building for the suite (sessions run as $user, from $base)"
[ "$part" = --installed ] || cargo build --locked
host=$(rustc -vV | sed -n 's/^host: //p')
# Static, because it also runs where a session shows no libraries; an own folder, because other flags would rebuild all.
RUSTFLAGS="-C target-feature=+crt-static" cargo build --locked --package landbox-tests --bin prober \
  --target "$host" --target-dir target/prober
mkdir -p "$LANDBOX_TEST_BIN"
chmod 0755 "$base" "$LANDBOX_TEST_BIN"
install -m 0755 "target/prober/$host/debug/prober" "$LANDBOX_TEST_BIN"
if [ "$part" = --installed ]; then
  [ "$(id -u)" -eq 0 ] || die "only root can take the helper's capability away and give it back"
  installed_helper=/usr/libexec/landbox/landbox-helper
  # By links: a program that is started by one looks for the helper beside what it leads to.
  for program in /usr/bin/landbox /usr/sbin/landbox-audit "$installed_helper"; do
    [ -x "$program" ] || die "$program is not installed (packaging/build.sh makes the packages)"
    ln -sfn "$program" "$LANDBOX_TEST_BIN/${program##*/}"
  done
else
  install -m 0755 target/debug/landbox{,-audit,-helper} "$LANDBOX_TEST_BIN"
fi

# takes_turns ARG..: whether one of the named tests has a real CLI take a turn: all of real_clis.rs do, and in network/ the module
# clis. What does not build, the suite says itself.
takes_turns() {
  local file tests
  for file in real_clis network; do
    [ ${#only[@]} -eq 0 ] || [[ " ${only[*]} " = *" --test=$file "* ]] || continue
    tests=$(cargo test --locked --quiet --package landbox-tests --test "$file" -- --list "${worlds[@]}" "$@") || continue
    [ "$file" = real_clis ] || tests=$(sed -n '/^clis::/p' <<<"$tests")
    [[ $tests != *": test"* ]] || return 0
  done
  return 1
}

# The real CLIs, at fixed versions. Node 20 or newer runs them; where it is older, npm brings one along.
clis=(@openai/codex@0.171.0 @anthropic-ai/claude-code@2.1.197 opencode-ai@1.18.33 @google/gemini-cli@0.61.0)
if takes_turns "$@"; then
  command -v npm >/dev/null || need_packages npm
  node_major=$(node --version 2>/dev/null | sed -n 's/^v\([0-9]*\)\..*/\1/p')
  [ "${node_major:-0}" -ge 20 ] || clis+=(node@20)
  if [ "$(cat "$base/clis/installed" 2>/dev/null)" != "${clis[*]}" ]; then
    say "== installing the real CLIs"
    mkdir -p "$base/clis"
    npm install --prefix "$base/clis" --no-audit --no-fund --loglevel=error "${clis[@]}"
    echo "${clis[*]}" >"$base/clis/installed"
  fi
fi

# suite NAME ARG..: all whole-system tests once.
suite() {
  local name=$1
  shift
  say "== $name"
  # Each test starts processes of its own, most of them waiting: a few more threads than processors.
  "${plain[@]}" cargo test --locked --package landbox-tests --no-fail-fast "${only[@]}" -- \
    --test-threads "$(($(nproc) + 2))" "${worlds[@]}" "$@" || failed+=("$name")
}

if [ "$part" != --installed ]; then
  suite suite "$@"
  finish
fi

cleanup() {
  setcap cap_sys_admin=p "$installed_helper"
  [ -z "${id:-}" ] || landbox-audit trust remove "$id" || true
  rm -rf "${key:?}" "$LANDBOX_TEST_BIN"
}
key=$base/installed-key
trap cleanup EXIT
rm -rf "$key"
for way in $ways; do
  if [ "$way" = plain ]; then
    setcap -r "$installed_helper"
    suite "installed, without the capability" "$@"
    continue
  fi
  # Only keys that root enrolled count: every test's user gets one that is.
  install -d -o "$user" "$key" "$key/project"
  (cd "$key/project" && setpriv --reuid "$LANDBOX_TEST_UID" --regid "$LANDBOX_TEST_GID" --clear-groups \
    env HOME="$key" landbox run -- true) || true
  [ -f "$key/.config/landbox/keys/signing.key" ] || die "no key was made in $key"
  id=$(basename "$key"/.config/landbox/trusted.d/*.pub .pub)
  read -r -a words <"$key/.config/landbox/trusted.d/$id.pub"
  landbox-audit trust add "${words[@]}"
  [ "$(getcap "$installed_helper")" = "$installed_helper cap_sys_admin=p" ] || die "$installed_helper has not its capability"
  # Not what sets no_new_privs or starts in a user namespace of its own: both are refused with it, by name.
  not_capable=(--skip a_kernel_without_nf_tables_refuses_the_launch_and_says_so
    --skip a_kernel_without_landlock_costs_abstract_sockets
    --skip a_session_started_inside_another_user_namespace_has_its_link)
  LANDBOX_TEST_KEY=$key/.config/landbox suite "installed, with the capability" "${not_capable[@]}" "$@"
done
finish

#!/bin/bash
# From a checkout to a reviewed change: install what is missing, build, run CMD in the sandbox, show what it changed.
#
#   packaging/quickstart.sh [-- CMD ARG..]
#
# Without CMD: a shell in the current directory, or, without a terminal, a small scripted edit of a demo repository.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
. "$here/packaging/setup.sh"

if [ "${1:-}" = "--" ]; then
  shift
elif [ $# -gt 0 ]; then
  sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi

need_packages "${BUILD_PACKAGES[@]}" "${RUN_PACKAGES[@]}"
need_cargo
say "Building Landbox (a few minutes the first time, more on a busy machine)"
build_release "$here"
landbox=$here/target/release/landbox

# Without a name of its own the newest session of the directory would be reviewed: right unless two run at once.
name=quickstart-$$
if [ $# -eq 0 ]; then
  if [ -t 0 ] && [ -t 1 ]; then
    set -- "${SHELL:-/bin/sh}"
    say "A shell in the sandbox. Change what you like in $PWD; leave with exit."
  else
    cache=${XDG_CACHE_HOME:-$HOME/.cache}
    mkdir -p "$cache"
    demo=$(mktemp -d "$cache/landbox-demo.XXXXXX")
    cd "$demo"
    git init --quiet
    printf 'Hello.\n' >greeting.txt
    printf 'An old idea.\n' >notes.txt
    git add .
    git -c user.name=demo -c user.email=demo@example.invalid commit --quiet -m 'A demo repository'
    say "A demo repository in $demo, and a scripted edit of it in the sandbox."
    set -- sh -c 'echo "Hello from inside." >>greeting.txt; rm notes.txt; mkdir src; echo "print(1)" >src/main.py'
  fi
fi

status=0
"$landbox" run --name "$name" -- "$@" || status=$?
[ "$status" -eq 125 ] && exit 125
say
say "What it changed (nothing of it is in $PWD yet):"
"$landbox" diff "$name"
say
say "To land it:          $landbox land $name"
say "To throw it away:    $landbox discard $name"
exit "$status"

#!/bin/bash
# Run the suite against the packages as they are when installed, and leave this machine without them. As root.
#
#   tests/packaging/installed.sh DIR [ARG..]     DIR holds the packages, as packaging/build.sh makes them
#
# The same as tests/run.sh --installed ARG.., on a copy of /usr, /etc and dpkg's lists that only this run sees, and that goes with it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd -P)
. "$here/../../packaging/setup.sh"

[ $# -ge 1 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || die "the packages are installed as root: sudo $0 $*"
packages=$(realpath "$1")
shift
# What the copy would not keep.
need_packages "${BUILD_PACKAGES[@]}" "${RUN_PACKAGES[@]}" "${TEST_PACKAGES[@]}"

exec unshare --mount --propagation private bash -euo pipefail -c '
  run=$1 packages=$2
  shift 2
  # In memory: the machine may itself stand on an overlay, on which none can be written.
  mount -t tmpfs -o mode=0755 landbox-installed /mnt
  for dir in /usr /etc /var/lib/dpkg; do
    mkdir -p "/mnt/upper$dir" "/mnt/work$dir"
    chmod --reference="$dir" "/mnt/upper$dir"
    mount -t overlay -o "lowerdir=$dir,upperdir=/mnt/upper$dir,workdir=/mnt/work$dir" landbox-installed "$dir"
  done
  umount -l /mnt
  dpkg --install "$packages"/landbox_*.deb "$packages"/landbox-helper_*.deb >&2
  exec "$run" --installed "$@"' "$0" "$here/../run.sh" "$packages" "$@"

# A Debian of its own to install packages in: sourced by run.sh, after packaging/setup.sh.

# make_debian DIR: a minimal Debian 12, made once, from where this machine's own packages come.
make_debian() {
  local base=$1 mirror
  [ -f "$base/etc/debian_version" ] && return
  mirror=$(known_mirror)
  # No lists were fetched yet: apt names its sources by them.
  [ -n "$mirror" ] || { as_root "sudo apt-get update" update && mirror=$(known_mirror); }
  [ -n "$mirror" ] || die "apt has no source of Debian 12 (bookworm): see sources.list(5)"
  say "== making a Debian 12 in $base"
  rm -rf --one-file-system "$base" "$base.new"
  mkdir -p "${base%/*}"
  debootstrap --variant=minbase bookworm "$base.new" "$mirror" >/dev/null
  echo "deb $mirror bookworm main" >"$base.new/etc/apt/sources.list"
  # How this machine reaches its packages, where that is not the ordinary way.
  cp -a /etc/apt/apt.conf.d/. "$base.new/etc/apt/apt.conf.d/"
  mv "$base.new" "$base"
}

# known_mirror [PART]: where this machine's own packages of Debian 12 come from, or those of a part of it, as bookworm-security;
# nothing where apt does not know.
known_mirror() {
  apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
    awk -v part="${1:-bookworm}" '$2 == part { print $1; exit }'
}

# machine_start ROOT: its first process, in mount and process namespaces of its own. Not a chroot: in one the kernel makes no
# user namespace for anybody.
machine_start() {
  local ready=$1/ready
  cp -L /etc/resolv.conf "$1/etc/resolv.conf" 2>/dev/null || true
  unshare --mount --pid --fork --kill-child --propagation private bash -euc '
    exec 2>&9
    mount --rbind "$1" "$1"
    mount -t proc proc "$1/proc"
    mount --rbind /sys "$1/sys"
    mount --rbind /dev "$1/dev"
    mount -t tmpfs -o mode=0755 tmpfs "$1/run"
    mkdir "$1/run/old"
    cd "$1"
    pivot_root . run/old
    umount -l /run/old
    echo >/ready
    exec sleep infinity' machine "$1" 9>&2 2>/dev/null &
  machine_leader=$!
  local end=$((SECONDS + 30))
  until [ -e "$ready" ]; do
    kill -0 "$machine_leader" 2>/dev/null && [ $SECONDS -lt $end ] || die "the machine does not start"
    sleep 0.05
  done
  rm "$ready"
  machine_pid=$(pgrep -P "$machine_leader")
}

# inside CMD..: as its root.
inside() {
  nsenter --target "$machine_pid" --mount --pid --root --wd -- \
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 LC_ALL=C.UTF-8 "$@"
}

# as USER CMD..: as one of its users, in the home; stdin is the file $input, by default nothing.
as() {
  local user=$1
  shift
  inside setpriv --reuid "$user" --regid "$user" --init-groups --inh-caps=-all \
    env --chdir="/home/$user" HOME="/home/$user" USER="$user" PATH=/usr/bin:/bin NO_COLOR=1 "$@" <"${input:-/dev/null}"
}

machine_end() {
  # Its first process takes everything in it along. The one that waits for it ignores all that could be asked of it.
  [ -z "${machine_pid:-}" ] || { kill -KILL "$machine_pid" && wait "$machine_leader"; } 2>/dev/null || true
}

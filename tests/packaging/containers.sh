#!/bin/bash
# Run Landbox in real containers, without any network: Podman's of root and of an ordinary user, Docker's, LXC's. As root.
#
#   tests/packaging/containers.sh DIR [WHOSE..]     DIR holds the packages, as packaging/build.sh makes them; WHOSE is some of
#                                                   root, ada (Podman's), docker, lxc; by default all
#
# The engines run in a Debian 12 of their own, as the packages do in run.sh; the image is built there, for Podman and for Docker, by
# packaging/containers/Containerfile.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd -P)
. "$here/../../packaging/setup.sh"
. "$here/machine.sh"

[ $# -ge 1 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || die "the machine is made as root: sudo $0 $1"
packages=$(realpath "$1")
shift
[ $# -gt 0 ] || set -- root ada docker lxc
containers=$here/../../packaging/containers
need_packages debootstrap dpkg-dev util-linux

work=$(mktemp -d /var/tmp/landbox-containers.XXXXXX)
chmod 0755 "$work"
trap clean_up EXIT
root=$work/root
# What the engines keep for their next container.
kept() { find /sys/fs/cgroup -depth -type d \( -path '*/libpod_parent*' -o -path '*/docker*' -o -path '*/lxc.*' \) 2>/dev/null || true; }
cgroups=$(kept)
clean_up() {
  machine_end
  kept | grep -vxF -e "$cgroups" | xargs -r rmdir || true
  rm -rf --one-file-system "$work"
}

# What a session must be able to do, and must not do for real.
session='echo inside >made && rm README.md && ls && { echo no >/etc/landbox-escape; } 2>/dev/null; test ! -e /etc/landbox-escape'

# ---- what must be true, whoever's the containers are ---------------------------------------------------------------------

with_proc_uncovered_a_session_runs_and_lands() {
  box "${unmask[@]}" -- run -- sh -c "$session"
  exits 0; says made
  [ -e "$project/README.md" ]
  [ ! -e "$project/made" ]
  box "${unmask[@]}" -- land --apply --yes
  exits 0
  [ "$(cat "$project/made")" = inside ]
  [ ! -e "$project/README.md" ]
}

the_doctor_finds_nothing_that_prevents_a_session_and_the_layers_are_the_kernels() {
  box "${unmask[@]}" -- doctor
  exits 0; says "a real session was run and checked from inside"; says "without privilege: your own keys count"
  box "${unmask[@]}" -- run -- true
  box "${unmask[@]}" -- show --json
  says kernel-user
  ! grep -q '"overlay": *"fuse"' "$work/said"
}

with_the_engines_own_proc_it_is_refused_and_the_grant_is_named() {
  box "${filter[@]}" -- run -- touch made
  exits 125; says "fresh /proc"; says "$uncovering"
  [ ! -e "$project/made" ]
  box "${filter[@]}" -- doctor
  exits 1; says "$uncovering"
}

without_the_fuse_device_fuse_alone_is_refused() {
  box "${unmask[@]}" -- run --overlay fuse -- true
  exits 125; says "/dev/fuse is missing"
  box "${unmask[@]}" --device /dev/fuse -- run --overlay fuse -- sh -c "$session"
  exits 0; says made
}

without_the_tunnel_device_a_network_policy_alone_is_refused() {
  local policy=("${unmask[@]}" -v /srv/none.json:/none.json:ro)
  box "${policy[@]}" -- run --network /none.json -- true
  exits 125; says "--device /dev/net/tun"
  box "${policy[@]}" -- run --network off -- sh -c "$session"
  exits 0
  box "${policy[@]}" --device /dev/net/tun -- run --network /none.json -- bash -c 'echo >/dev/tcp/192.0.2.1/80'
  exits 1; says "1 refused connection"
}

with_a_read_only_root_a_volume_for_the_home_is_enough() {
  box "${unmask[@]}" --read-only -- run -- true
  exits 125; says "Read-only file system"
  box "${unmask[@]}" --read-only --tmpfs "/home/dev$home" -- run -- sh -c "$session"
  exits 0; says made
}

no_capability_and_no_new_privileges_are_enough() {
  box "${unmask[@]}" --cap-drop all --security-opt no-new-privileges -- run -- sh -c "$session"
  exits 0; says made
}

a_filter_that_forbids_user_namespaces_is_named() {
  local forbidding=("${unmask[@]}" --security-opt seccomp=/srv/no-namespaces.json)
  # Docker's own does.
  [ "$who" != docker ] || forbidding=(--security-opt systempaths=unconfined)
  box "${forbidding[@]}" -- run -- true
  exits 125
  says "forbids user namespaces to you"
  box "${forbidding[@]}" -- doctor
  exits 1; says "seccomp=unconfined"
}

a_volume_below_the_home_wants_the_fuse_device() {
  local below=("${unmask[@]}" -v notes:/home/dev/notes)
  box "${below[@]}" -- run -- true
  exits 125; says "/home/dev/notes is mounted below it"; says "/dev/fuse is missing"
  box "${below[@]}" --device /dev/fuse -- run -- sh -c "$session"
  exits 0; says made
}

# What Kubernetes makes of pod.yaml, but for the devices: a user namespace of the pod's own, no right, a volume that is root's.
root_runs_the_example_of_a_pod_in_a_user_namespace_of_its_own() {
  engine podman pod rm --all --force >/dev/null
  engine podman volume rm --force project >/dev/null
  # Neither a plugin for the device nor a claim and a map are here.
  sed -e '/^      # \/dev\/net\/tun/,/^        limits:/d' -e '/name: policy,/d; /- name: policy/,$d' -e 's|image: landbox|image: localhost/landbox:latest|' \
    -e 's|"--network", "/policy/policy.json", ||; s|"claude", "-p", "fix the build"|"sh", "-c", "echo pod >made"|' \
    "$containers/pod.yaml" >"$root/srv/pod.yaml"
  engine podman play kube --network none /srv/pod.yaml >/dev/null
  engine podman wait landbox-session-session >/dev/null
  engine podman logs landbox-session-session >"$work/said" 2>&1
  # This Podman takes the whole example but `procMount`, which newer ones know.
  grep -qE '1 file changed|unmask=ALL' "$work/said" || fail "$(cat "$work/said")"
  engine podman pod rm --all --force >/dev/null
  ids=(--userns=auto --user 1000:1000) volumes=(--tmpfs /state:mode=0777 -v claim:/project:U)
  box "${unmask[@]}" --cap-drop all --security-opt no-new-privileges -e LANDBOX_STATE_DIR=/state/landbox -- run --overlay kernel -- sh -c 'echo pod >made; id -u'
  exits 0; says 1000; says "1 file changed"
}

# ---- what must be true in LXC's containers, which root starts with ids of their own -------------------------------------

in_lxc_the_package_sets_no_capability_that_would_be_worth_nothing() {
  grep -q 'no capability in a user namespace' "$work/installed"
  inside getcap /srv/box/rootfs/usr/libexec/landbox/landbox-helper | grep . && fail "it has one"
  lxc "${nesting[@]}" -- run -- true
  exits 0
  lxc "${nesting[@]}" -- show --json
  says '"helper": "unprivileged"'
}

in_lxc_without_nesting_it_is_refused_and_the_grant_is_named() {
  lxc -- run -- touch made
  exits 125; says "fresh /proc"; says "nesting.conf"
  [ ! -e "$project/made" ]
  lxc -- doctor
  exits 1; says "nesting.conf"
}

in_lxc_with_nesting_a_session_runs_and_lands() {
  lxc "${nesting[@]}" -- doctor
  exits 0; says "a real session was run and checked from inside"
  lxc "${nesting[@]}" -- run -- sh -c "$session"
  exits 0; says made
  [ -e "$project/README.md" ]
  [ ! -e "$project/made" ]
  lxc "${nesting[@]}" -- land --apply --yes
  exits 0
  [ "$(cat "$project/made")" = inside ]
  [ ! -e "$project/README.md" ]
}

in_lxc_each_device_is_wanted_for_what_uses_it_alone() {
  lxc "${nesting[@]}" -- run --overlay fuse -- true
  exits 125; says "/dev/fuse is missing"
  lxc "${nesting[@]}" "$(device fuse)" -- run --overlay fuse -- sh -c "$session"
  exits 0; says made
  cp "$root/srv/none.json" "$project/none.json"
  lxc "${nesting[@]}" -- run --network none.json -- true
  exits 125; says "/dev/net/tun"
  lxc "${nesting[@]}" "$(device net/tun)" -- run --network none.json -- bash -c 'echo >/dev/tcp/192.0.2.1/80'
  exits 1; says "1 refused connection"
}

# ---- how it is looked at -----------------------------------------------------------------------------------------------

# box GRANT.. -- ARG..: `landbox ARG..` in a container with these grants; what it says goes to $work/said, how it ends to $code.
box() {
  local grants=()
  while [ "$1" != -- ]; do
    grants+=("$1")
    shift
  done
  shift
  code=0
  engine "${run[@]}" --rm --network none "${ids[@]}" "${volumes[@]}" "${grants[@]}" landbox "$@" < <(:) >"$work/said" 2>&1 || code=$?
}

# lxc GRANT.. -- ARG..: the same in LXC's container; a grant is a line of its configuration.
lxc() {
  local lines=()
  while [ "$1" != -- ]; do
    lines+=("$1")
    shift
  done
  shift
  lxc_run 'cd /project && setpriv --reuid 1000 --regid 1000 --clear-groups env HOME=/home/dev "$@"' landbox "$@"
}
nesting=("lxc.include = /usr/share/lxc/config/nesting.conf")
device() { echo "lxc.mount.entry = /dev/$1 dev/$1 none bind,create=file 0 0"; }
# lxc_run SCRIPT ARG..: a script of its root, with what `lines` grants.
lxc_run() {
  local answer=$root/srv/box/rootfs/tmp/answer
  rm -rf "$answer"
  mkdir -m 0777 "$answer"
  { cat "$root/srv/box/base" && printf '%s\n' ${lines[@]+"${lines[@]}"}; } >"$root/srv/box/config"
  inside lxc-start -F -n box -f /srv/box/config -- /bin/sh -c "export PATH=/usr/sbin:/usr/bin:/sbin:/bin
    { $1; } >/tmp/answer/said 2>&1; echo \$? >/tmp/answer/code" "$@" < <(:) >"$work/lxc" 2>&1 || true
  cat "$answer/said" >"$work/said" 2>/dev/null || cp "$work/lxc" "$work/said"
  code=$(cat "$answer/code" 2>/dev/null || echo none)
}
exits() { [ "$code" -eq "$1" ] || fail "exit code $code: $(cat "$work/said")"; }
says() { grep -qF -- "$1" "$work/said" || fail "not said: $1: $(cat "$work/said")"; }
fail() { say "  $*"; return 1; }

# engine CMD..: as whoever runs the containers.
engine() {
  if [ "$who" = ada ]; then as ada env XDG_RUNTIME_DIR=/run/user/2001 "$@"; else inside "$@"; fi
}

# ---- the run -----------------------------------------------------------------------------------------------------------

say "== installing"
make_debian /srv/landbox-tests/debian-12
cp -a --reflink=auto /srv/landbox-tests/debian-12 "$root"
cp -a --reflink=auto "$root" "$work/image"
install_in() {
  machine_start "$1"
  inside apt-get -qq update
  inside env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${@:2}" >/dev/null
  inside apt-get clean
}
# The image's base has what the packages need: the image itself is then built without a network.
install_in "$work/image" ca-certificates fuse-overlayfs git libcap2-bin libmnl0 libnftnl11 slirp4netns
machine_end
engines=(fuse-overlayfs slirp4netns uidmap iproute2)
case " $* " in *" root "* | *" ada "*) engines+=(podman crun catatonit) ;; esac
case " $* " in *" docker "*) engines+=(docker.io) ;; esac
case " $* " in *" lxc "*) engines+=(lxc) ;; esac
install_in "$root" "${engines[@]}"

mkdir "$root/srv/build"
tar -c --xattrs --one-file-system -C "$work/image" --exclude=./dev/\* . >"$root/srv/base.tar"
cp "$packages"/landbox_*.deb "$packages"/landbox-helper_*.deb "$root/srv/build"
cp "$containers/Containerfile" "$root/srv/build"
echo '{"version": 1, "public": {"mode": "block"}, "private": {"mode": "block"}}' >"$root/srv/none.json"
inside useradd --create-home --uid 2001 ada
inside install -d -o ada -m 0700 /run/user/2001
# For users of containers that `auto` chooses.
inside sh -c 'echo containers:1000000:1000000 | tee -a /etc/subuid >>/etc/subgid'
# Not this machine's /dev/null: runtimes give what stands there to the container's user.
mknod -m 0666 "$root/srv/null" c 1 3
inside mount --bind /srv/null /dev/null
# No container is a mount of the machine's to share, and the runtime knows cgroups of the one kind or of the other only.
inside mount --make-rshared /
inside sh -c 'if mountpoint -q /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi'


# podman_image, docker_image: the image, for these engines.
podman_image() {
  [ ! -e "$root/srv/image.tar" ] || return 0
  inside podman import --quiet /srv/base.tar docker.io/library/debian:12-slim >/dev/null
  inside unshare --net podman build --quiet --isolation chroot --pull-never -f /srv/build/Containerfile -t landbox /srv/build >/dev/null
  inside podman save --quiet --output /srv/image.tar localhost/landbox
  chmod 0644 "$root/srv/image.tar"
  as ada env XDG_RUNTIME_DIR=/run/user/2001 podman load --quiet --input /srv/image.tar >/dev/null
  # The engine's own filter, without what makes user namespaces.
  python3 - "$root/usr/share/containers/seccomp.json" >"$root/srv/no-namespaces.json" <<'PYTHON'
import json, sys
profile = json.load(open(sys.argv[1]))
for rule in profile["syscalls"]:
    rule["names"] = [name for name in rule["names"] if name not in ("clone", "clone3", "unshare", "setns")]
# Threads and processes, as an engine that forbids namespaces has it: CLONE_NEW* of clone's flags must be 0.
masked = {"index": 0, "value": 0x7E020000, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
profile["syscalls"].append({"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [masked]})
profile["syscalls"].append({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38})
profile["syscalls"].append({"names": ["unshare", "setns"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1})
json.dump(profile, sys.stdout)
PYTHON
}
docker_image() {
  # In a network of its own: it would else make one of this machine's its own.
  inside unshare --net dockerd --bridge none --iptables=false --ip-forward=false >"$work/dockerd" 2>&1 &
  local end=$((SECONDS + 60))
  until inside docker info >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || die "Docker does not start: $(cat "$work/dockerd")"
    sleep 0.2
  done
  inside docker import /srv/base.tar debian:12-slim >/dev/null
  inside docker build --quiet --network none -f /srv/build/Containerfile -t landbox /srv/build >/dev/null
}

# lxc_box: a container with the packages in it, as they are installed there.
lxc_box() {
  echo root:1000000:65536 | tee -a "$root/etc/subuid" >>"$root/etc/subgid"
  install -d -o 1000000 -g 1000000 "$root/srv/box/rootfs"
  inside lxc-usernsexec -m b:0:1000000:65536 -- tar -xpf /srv/base.tar -C /srv/box/rootfs
  cat >"$root/srv/box/base" <<'LXC'
lxc.include = /usr/share/lxc/config/common.conf
lxc.include = /usr/share/lxc/config/userns.conf
lxc.idmap = u 0 1000000 65536
lxc.idmap = g 0 1000000 65536
lxc.rootfs.path = dir:/srv/box/rootfs
lxc.net.0.type = empty
lxc.uts.name = box
lxc.mount.entry = /srv/build srv none bind,ro 0 0
lxc.mount.entry = /srv/project project none bind,create=dir 0 0
LXC
  mkdir -p "$root/srv/project"
  local lines=()
  lxc_run 'dpkg -i /srv/*.deb && useradd --create-home --uid 1000 dev'
  cp "$work/said" "$work/installed"
  [ "$code" = 0 ] || die "the packages are not installed in LXC: $(cat "$work/said")"
}

failed=()
for who; do
  say "== $who"
  # The options that uncover /proc, those that let namespaces be made, and who the caller is inside.
  ids=() filter=() uncovering=unmask=ALL unmask=(--security-opt unmask=ALL) home='' project=$root/srv/project
  case $who in
    root | ada) podman_image && run=(podman run) ;;
    docker) docker_image && run=(docker run) filter=(--security-opt seccomp=unconfined) uncovering=systempaths=unconfined ;;
    lxc) lxc_box ;;
    *) die "whose are the containers of $who?" ;;
  esac
  [ "$who" != ada ] || ids=(--userns=keep-id:uid=1000,gid=1000) project=$root/home/ada/project
  [ "$who" != docker ] || unmask=("${filter[@]}" --security-opt systempaths=unconfined) home=:uid=1000,gid=1000,mode=0700
  for promise in $(sed -n 's/^\([a-z_]*\)() {$/\1/p' "$0"); do
    case $promise in
      kept | clean_up | box | engine | install_in | lxc | lxc_run | lxc_box | *_image) continue ;;
      root_*) [ "$who" = root ] || continue ;;
      in_lxc_*) [ "$who" = lxc ] || continue ;;
      *) [ "$who" != lxc ] || continue ;;
    esac
    say "-- as $who: ${promise//_/ }"
    rm -rf "$project"
    mkdir "$project"
    echo real >"$project/README.md"
    case $who in
      ada) chown -R 2001:2001 "$project" ;;
      lxc) chown -R 1001000:1001000 "$project" ;;
      *) chown -R 1000:1000 "$project" ;;
    esac
    [ "$who" = lxc ] || engine "${run[0]}" volume rm --force landbox-state >/dev/null 2>&1 || true
    volumes=(-v landbox-state:/state -v "${project#"$root"}:/project")
    status=0
    (set -e; "$promise") & wait $! || status=$?
    [ "$status" -eq 0 ] || { failed+=("$who:$promise"); say "   FAILED"; }
  done
  [ "${run[0]:-}" != podman ] || engine podman system reset --force >/dev/null 2>&1 || true
done
[ ${#failed[@]} -eq 0 ] || die "failed: ${failed[*]}"
say "== containers: all passed"

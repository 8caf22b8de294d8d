#!/bin/bash
# The first and only program of the virtual machine that vm.sh makes: looks at the installed packages on this kernel.
set -u
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 LC_ALL=C.UTF-8
helper_path=/usr/libexec/landbox/landbox-helper
keys=/home/ada/.config/landbox

# ---- what must be true -------------------------------------------------------------------------------------------------

the_kernel_is_the_distributions_own() {
  uname -r | grep -q '^6\.1\.'
  [ "$(getcap $helper_path)" = "$helper_path cap_sys_admin=p" ]
}

an_enrolled_user_runs_reviews_and_lands() {
  ada 'mkdir -p ~/shop && cd ~/shop && echo one >a; landbox doctor' >/tmp/doctor 2>&1 || true
  sh -c "$(grep -o 'landbox-audit trust add .*' /tmp/doctor | head -1)"
  ada 'cd ~/shop && landbox doctor'
  ada 'cd ~/shop && landbox run -- sh -c "echo two >>a; id -u >b"'
  [ "$(cat /home/ada/shop/a)" = one ]
  ada 'cd ~/shop && landbox land --apply --yes'
  [ "$(cat /home/ada/shop/a)" = "$(printf 'one\ntwo')" ]
  [ "$(cat /home/ada/shop/b)" = 1000 ]
  ada 'cd ~/shop && landbox show --json' | grep -q '"helper": *"capable"'
}

each_overlay_and_each_network_can_be_had() {
  local overlay
  for overlay in kernel fuse; do
    ada "cd ~/shop && landbox run --overlay $overlay --network off -- sh -c 'echo x >>a'"
  done
  refused_by_policy
}

the_profile_attaches_to_the_helper_and_to_nothing_else() {
  [ "$(cat /sys/module/apparmor/parameters/enabled)" = Y ]
  # The parser of Debian 12 does not know the profile's one rule yet, nor the version of the rules that has it.
  sed 's|^abi <abi/4.0>,$|abi <abi/3.0>,|; /^  userns,$/d' /srv/profile >/etc/apparmor.d/landbox-helper
  apparmor_parser --replace /etc/apparmor.d/landbox-helper
  grep -qx 'landbox-helper (unconfined)' /sys/kernel/security/apparmor/profiles
  mkfifo /tmp/go && chmod 0666 /tmp/go
  ada 'cd ~/shop && landbox run -- sh -c "cat /proc/self/attr/current; read go"' </tmp/go >/tmp/inside 2>&1 &
  exec 8>/tmp/go
  wait_until 120 grep -q unconfined /tmp/inside
  local process confined=0
  for process in /proc/[0-9]*; do
    [ "$(readlink "$process/exe")" = $helper_path ] || continue
    grep -qx 'landbox-helper (unconfined)' "$process/attr/current"
    confined=1
  done
  echo >&8
  exec 8>&-
  wait $!
  [ $confined -eq 1 ] || fail "no helper was seen"
  refused_by_policy
}

where_only_root_may_make_user_namespaces_the_capability_is_enough() {
  sysctl -qw kernel.unprivileged_userns_clone=0
  ada '! unshare -U true' || fail "the kernel gives user namespaces to everybody"
  [ "$(ada 'cd ~/shop && landbox run -- id -u')" = 1000 ]
  ada 'cd ~/shop && landbox show --json' | grep -q '"helper": *"capable"'
  ada 'cd ~/shop && landbox doctor'
  refused_by_policy
  local session
  session=$(ls -td /home/ada/.local/state/landbox/sessions/* | head -1)
  landbox-audit replay "$session"
}

there_without_the_capability_it_is_refused_and_the_doctor_names_the_setting() {
  setcap -r $helper_path
  local code=0 said
  said=$(ada 'cd ~/shop && landbox run -- true' 2>&1) || code=$?
  [ $code -eq 125 ] && grep -q unprivileged_userns_clone <<<"$said" || fail "exit code $code: $said"
  code=0
  said=$(ada 'cd ~/shop && landbox doctor' 2>&1) || code=$?
  [ $code -eq 1 ] && grep -q 'kernel.unprivileged_userns_clone is 0' <<<"$said" || fail "exit code $code: $said"
  echo "$said"
  sysctl -qw kernel.unprivileged_userns_clone=1
}

without_the_capability_the_users_own_key_counts() {
  ada 'cd ~/shop && landbox run -- true && landbox show --json' | grep -q '"helper": *"unprivileged"'
  refused_by_policy
  setcap cap_sys_admin=p $helper_path
}

the_suite_holds_with_the_capability() {
  LANDBOX_TEST_KEY=$keys suite
}

the_suite_holds_without_the_capability() {
  setcap -r $helper_path
  suite
}

purging_takes_the_profile_out_of_the_kernel_and_leaves_nothing() {
  setcap cap_sys_admin=p $helper_path
  dpkg --purge landbox landbox-helper
  ! grep '^landbox-helper ' /sys/kernel/security/apparmor/profiles || fail "the profile is still there"
  # The profile itself was no file of the package on this system.
  rm /etc/apparmor.d/landbox-helper
  local left
  left=$(find /etc /usr /var -xdev -path /var/lib/dpkg -prune -o -path /var/log -prune -o -name '*landbox*' -print)
  [ -z "$left" ] || fail "$left"
}

# ---- how it is looked at -----------------------------------------------------------------------------------------------

ada() { setpriv --reuid ada --regid ada --init-groups env -i HOME=/home/ada USER=ada PATH="$PATH" NO_COLOR=1 sh -c "$1"; }

refused_by_policy() {
  local code=0
  ada 'cd ~/shop && landbox run --network /srv/none.json -- bash -c "echo >/dev/tcp/192.0.2.1/80"' || code=$?
  [ $code -eq 1 ] || fail "exit code $code"
}

# What asks most of a kernel: what the boundary is, seen from inside, how it ends, and the packet filter.
suite() {
  local program failed=()
  for program in evidence seccomp_calls lifecycle masks; do
    /srv/tests/$program --test-threads 2 user_kernel || failed+=("$program")
  done
  /srv/tests/network --test-threads 2 matrix special || failed+=(network)
  [ ${#failed[@]} -eq 0 ] || fail "failed: ${failed[*]}"
}

fail() { echo "  $*"; return 1; }
wait_until() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.2
  done
}

# ---- the run -----------------------------------------------------------------------------------------------------------

mountpoint -q /proc || mount -t proc proc /proc
mountpoint -q /sys || mount -t sysfs sysfs /sys
mount -t securityfs securityfs /sys/kernel/security
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mountpoint -q /dev || mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts -o mode=0620,ptmxmode=0666 devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=0755 tmpfs /run
modprobe -a fuse tun overlay nf_tables
chmod 0666 /dev/fuse /dev/net/tun
ip link set lo up
echo '{"version": 1, "public": {"mode": "block"}, "private": {"mode": "block"}}' >/srv/none.json
chmod 0755 /srv /srv/tests /srv/tests/bin
for program in /usr/bin/landbox /usr/sbin/landbox-audit $helper_path; do
  ln -sfn "$program" "/srv/tests/bin/${program##*/}"
done
export LANDBOX_TEST_BASE=/srv/tests LANDBOX_TEST_BIN=/srv/tests/bin LANDBOX_TEST_UID=1000 LANDBOX_TEST_GID=1000

failed=()
for promise in $(sed -n 's/^\([a-z_]*\)() {$/\1/p' "$0"); do
  case $promise in suite | refused_by_policy | wait_until) continue ;; esac
  [ -x /srv/tests/evidence ] || case $promise in the_suite*) continue ;; esac
  echo "-- ${promise//_/ } ($SECONDS s)"
  (set -e; "$promise") & wait $! || { failed+=("$promise"); echo "   FAILED"; }
done
if [ ${#failed[@]} -eq 0 ]; then echo "== kernel: all passed"; else echo "== failed: ${failed[*]}"; fi
sync
sleep 1
echo o >/proc/sysrq-trigger
sleep 60

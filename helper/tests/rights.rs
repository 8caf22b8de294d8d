//! With what rights the helper runs, and every case in which it refuses to.

// The lint knows test functions, not the functions they share.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]

mod play;

use landbox_shared::event::{Event, Stage as At, Status};
use landbox_shared::evidence::HelperMode;
use landbox_shared::network::{NETWORK_POLICY_VERSION, NetworkPolicy, Zone};
use landbox_shared::policy::{Network, SeccompProfile};
use play::{Launch, Stage, as_user, behind, set_capabilities, users};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;

/// What the tests that need real root and an ordinary user play as.
fn ordinary_user_beside_root() -> Option<u32> {
    users().get(1).copied()
}

fn refusal(launch: &mut Launch) -> String {
    match launch.next().0 {
        Event::Failed(failure) if failure.stage == At::Start => failure.detail,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_file_must_carry_exactly_the_one_capability() {
    let Some(uid) = ordinary_user_beside_root() else { return };
    for text in
        ["cap_sys_admin,cap_setuid=p", "cap_sys_admin=ep", "cap_sys_admin=ip", "cap_net_admin=p"]
    {
        let stage = Stage::new(uid);
        set_capabilities(&stage, text);
        let said = refusal(&mut stage.start());
        assert!(said.contains("cap_sys_admin=p"), "{text}: {said}");
    }
}

#[test]
fn every_way_to_lose_the_capability_is_told_apart() {
    let Some(uid) = ordinary_user_beside_root() else { return };
    let uid = &uid.to_string();
    for (wrapper, word) in [
        (as_user(uid, &["setpriv", "--no-new-privs"]), "no_new_privs"),
        (as_user(uid, &["--bounding-set", "-sys_admin"]), "bounding set"),
        (vec!["unshare", "-U"], "user namespace"),
    ] {
        let stage = Stage::new(uid.parse().unwrap());
        set_capabilities(&stage, "cap_sys_admin=p");
        let said = refusal(&mut behind(&stage, &wrapper));
        assert!(said.contains(word), "{wrapper:?}: {said}");
    }
}

#[test]
fn a_capability_on_a_nosuid_mount_is_told_apart() {
    let Some(uid) = ordinary_user_beside_root() else { return };
    let stage = Stage::new(uid);
    set_capabilities(&stage, "cap_sys_admin=p");
    let text = format!(
        "mount --bind {0} {0} && mount -o remount,bind,nosuid {0} && exec setpriv --reuid {uid} --regid {uid} --clear-groups \"$0\"",
        stage.path("").display()
    );
    let said = refusal(&mut behind(&stage, &["setpriv", "unshare", "-m", "sh", "-c", &text]));
    assert!(said.contains("nosuid"), "{said}");
}

#[test]
fn a_device_that_is_another_than_its_name_says_is_refused() {
    let Some(uid) = ordinary_user_beside_root() else { return };
    let stage = Stage::new(uid);
    let text = format!(
        "mount --bind /dev/zero /dev/full && exec setpriv --reuid {uid} --regid {uid} --clear-groups \"$0\""
    );
    let mut launch = behind(&stage, &["setpriv", "unshare", "-m", "sh", "-c", &text]);
    launch.send(&stage, stage.plan(), &["true"]);
    let Event::Failed(failure) = launch.next().0 else { panic!("no failure") };
    assert_eq!((failure.stage, failure.errno), (At::Mount, libc::ENODEV), "{failure}");
}

#[test]
fn a_capability_that_the_file_does_not_give_is_refused() {
    let Some(uid) = ordinary_user_beside_root() else { return };
    let stage = Stage::new(uid);
    let uid = uid.to_string();
    let more = ["--inh-caps", "+net_raw", "--ambient-caps", "+net_raw"];
    let said = refusal(&mut behind(&stage, &as_user(&uid, &more)));
    assert!(said.contains("ambient"), "{said}");
}

#[test]
fn with_the_capability_only_keys_that_root_enrolled_count() {
    let Some(uid) = ordinary_user_beside_root() else { return };
    let stage = Stage::new(uid);
    set_capabilities(&stage, "cap_sys_admin=p");
    let (_, end) = stage.run(stage.plan(), &["true"]);
    let Event::Failed(failure) = end else { panic!("{end:?}") };
    assert!(failure.detail.contains("not trusted"), "{failure}");

    // The same key in the system's folder, which is put over /etc in a mount namespace of the test's own.
    let etc = stage.path("landbox/trusted.d");
    fs::create_dir_all(&etc).unwrap();
    fs::copy(stage.key_file(), etc.join(stage.key_file().file_name().unwrap())).unwrap();
    let text = format!(
        "mount -t tmpfs -o mode=755 tmpfs /etc && cp -r {} /etc/landbox && chmod -R u=rwX,go=rX /etc/landbox && \
         exec setpriv --reuid {uid} --regid {uid} --clear-groups \"$0\"",
        stage.path("landbox").display()
    );
    let mut launch = behind(&stage, &["setpriv", "unshare", "-m", "sh", "-c", &text]);
    launch.send(&stage, stage.plan(), &["sh", "-c", "grep CapPrm /proc/self/status"]);
    let (event, _) = launch.next();
    let Event::Ready(evidence) = event else { panic!("{event:?}") };
    assert_eq!(evidence.mode, HelperMode::Capable);
    let monitor = launch.child.id();
    let status = fs::read_to_string(format!("/proc/{monitor}/status")).unwrap();
    assert!(status.contains("CapPrm:\t0000000000000000"), "{status}");
    assert!(status.contains("Seccomp:\t2") && status.contains("NoNewPrivs:\t1"), "{status}");
    launch.release();
    assert_eq!(launch.output(), "CapPrm:\t0000000000000000\n");
    assert_eq!(launch.next().0, Event::Exited(Status::Code(0)));
}

#[test]
fn monitor_and_init_keep_no_rights_and_no_file_of_the_tasks_and_show_nobody_their_memory() {
    for uid in users() {
        let stage = Stage::new(uid);
        let mut launch = stage.start();
        launch.send(&stage, stage.plan(), &["cat"]);
        assert!(matches!(launch.next().0, Event::Ready(_)));
        launch.release();
        // Once the task answers, everything before it is done.
        launch.child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        launch.child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let monitor = launch.child.id();
        let init = fs::read_to_string(format!("/proc/{monitor}/task/{monitor}/children")).unwrap();
        for pid in [monitor.to_string(), init.trim().to_owned()] {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            for set in ["CapPrm", "CapEff", "CapInh", "CapAmb"] {
                assert!(status.contains(&format!("{set}:\t0000000000000000")), "{status}");
            }
            assert!(status.contains("NoNewPrivs:\t1"), "{status}");
            // Of a process that can't be dumped everything there is root's.
            let owner = fs::metadata(format!("/proc/{pid}/mem")).unwrap().uid();
            assert!(owner == 0, "{owner}");
            for fd in fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
                let target = fs::read_link(fd.unwrap().path()).unwrap_or_default();
                assert!(!target.to_string_lossy().starts_with("pipe:"), "{target:?}");
            }
        }
        drop(launch.child.stdin.take());
        assert_eq!(launch.next().0, Event::Exited(Status::Code(0)));
    }
}

#[test]
fn inside_a_user_namespace_of_the_callers_it_works_as_usual() {
    let Some(uid) = ordinary_user_beside_root() else { return };
    let stage = Stage::new(uid);
    let mut launch = behind(&stage, &["unshare", "-Ur"]);
    let mut plan = stage.plan();
    (plan.uid, plan.gid) = (0, 0);
    stage.trust(&stage.trust_line().replace(&format!(" {uid} "), " 0 "));
    let binding = launch.binding(0);
    let (envelope, exec) = play::frames(plan, &["id", "-u"], &binding, &stage.key);
    launch.write(&[envelope, exec].concat());
    let (event, _) = launch.next();
    assert!(matches!(event, Event::Ready(_)), "{event:?}");
    launch.release();
    assert_eq!(launch.output(), "0\n");
}

#[test]
fn where_a_second_user_namespace_is_refused_one_carries_the_task_and_the_evidence_says_so() {
    for uid in users() {
        let stage = Stage::new(uid);
        // A namespace around it that allows a single one more.
        let text = "echo 1 > /proc/sys/user/max_user_namespaces; exec \"$0\"";
        let wrapper: &[&str] = &["unshare", "-Ur", "sh", "-c", text];
        let mut launch = behind(&stage, wrapper);
        let mut plan = stage.plan();
        (plan.uid, plan.gid) = (0, 0);
        stage.trust(&stage.trust_line().replace(&format!(" {uid} "), " 0 "));
        if uid == 0 {
            // Root of a namespace is believed no more than an ordinary user: its own folder counts.
            let folder = stage.path("home/.config/landbox/trusted.d");
            stage.own_folder(&folder);
            fs::copy(stage.key_file(), folder.join(stage.key_file().file_name().unwrap())).unwrap();
        }
        let binding = launch.binding(0);
        let script =
            "grep CapEff /proc/self/status; id -u; umount /run 2>/dev/null; echo x > new; cat new";
        let (envelope, exec) = play::frames(plan, &["sh", "-c", script], &binding, &stage.key);
        launch.write(&[envelope, exec].concat());
        let (event, _) = launch.next();
        let Event::Ready(evidence) = event else { panic!("{event:?}") };
        assert!(!evidence.second_user_namespace && evidence.caps.is_empty());
        launch.release();
        assert_eq!(launch.output(), "CapEff:\t0000000000000000\n0\nx\n");
        assert_eq!(launch.next().0, Event::Exited(Status::Code(0)));
    }
}

#[test]
fn a_network_policy_holds_where_one_user_namespace_carries_the_task() {
    for uid in users() {
        let stage = Stage::new(uid);
        let text = "echo 1 > /proc/sys/user/max_user_namespaces; exec \"$0\"";
        let mut launch = behind(&stage, &["unshare", "-Ur", "sh", "-c", text]);
        let mut plan = stage.plan();
        (plan.uid, plan.gid) = (0, 0);
        let (public, private) = (Zone::Allow, Zone::Block);
        let (version, dns_servers) = (NETWORK_POLICY_VERSION, vec![]);
        let policy = NetworkPolicy { version, public, private, dns_servers, proxy_mode: None };
        (plan.network, plan.seccomp) = (Network::Policy(policy), SeccompProfile::Restricted);
        stage.trust(&stage.trust_line().replace(&format!(" {uid} "), " 0 "));
        if uid == 0 {
            let folder = stage.path("home/.config/landbox/trusted.d");
            stage.own_folder(&folder);
            fs::copy(stage.key_file(), folder.join(stage.key_file().file_name().unwrap())).unwrap();
        }
        let binding = launch.binding(0);
        let script = "bash -c 'exec 3<>/dev/tcp/10.9.9.9/1' 2>&1 | grep -o refused | head -1";
        let (envelope, exec) = play::frames(plan, &["sh", "-c", script], &binding, &stage.key);
        launch.write(&[envelope, exec].concat());
        let (event, _beside) = launch.next();
        let Event::Ready(evidence) = event else { panic!("{event:?}") };
        let boundary = evidence.network_boundary.clone().unwrap();
        assert!(!evidence.second_user_namespace && boundary.user_namespaces_closed);
        launch.release();
        assert_eq!(launch.output(), "refused\n");
    }
}

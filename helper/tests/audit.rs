//! The program for people: whose keys count, and what an envelope would do.

// The lint knows test functions, not the functions they share.
#![allow(clippy::unwrap_used)]

mod play;

use landbox_shared::path::AbsPath;
use landbox_shared::plan::{Loss, Op, Plan};
use landbox_shared::policy::MaskKind;
use landbox_shared::wire::{self, Binding, KeyId};
use play::{Stage, copy_program, frames, users};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const AUDIT: &str = env!("CARGO_BIN_EXE_landbox-audit");

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a script as root where `/etc` is an empty one of its own.
fn with_etc(script: &str) -> Output {
    let script = format!("mount -t tmpfs -o mode=755 tmpfs /etc && A={AUDIT} && {script}");
    Command::new("unshare").args(["-m", "sh", "-c", &script]).output().unwrap()
}

fn explain(stage: &Stage, bytes: &[u8]) -> (i32, String) {
    let mut command = Command::new(AUDIT);
    command.arg("explain").env_clear().env("HOME", stage.path("home"));
    if is_root() && stage.uid != 0 {
        // Where the build lies may not be readable for the ordinary user.
        let copy = stage.path("landbox-audit");
        copy_program(AUDIT, &copy);
        command = Command::new(copy);
        command.arg("explain").env_clear().env("HOME", stage.path("home"));
        command.uid(stage.uid).gid(stage.gid);
    }
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that has said no already may be gone.
    let _ = child.stdin.take().unwrap().write_all(bytes);
    let out = child.wait_with_output().unwrap();
    (out.status.code().unwrap(), text(&out.stdout) + &text(&out.stderr))
}

fn binding(stage: &Stage) -> Binding {
    Binding { challenge: [1; 32], uid: stage.uid, boot_id: [2; 16] }
}

fn sealed(stage: &Stage, plan: Plan) -> Vec<u8> {
    frames(plan, &["sh", "-c", "echo \x1b[2J"], &binding(stage), &stage.key).0
}

#[test]
fn an_envelope_is_told_in_words_with_who_signed_it() {
    for uid in users() {
        let stage = Stage::new(uid);
        let (envelope, exec) = frames(stage.plan(), &["true"], &binding(&stage), &stage.key);
        let (code, said) = explain(&stage, &[envelope, exec].concat());
        for words in [
            "launch 1 of session abcdefghij",
            "show the whole file system, read-only",
            "keep writes to ",
            "the command: \"true\"",
            "the helper finds nothing in this plan to refuse",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        let id = KeyId::of(&stage.key.verifying_key());
        let signed = if uid == 0 { "NOT CHECKED" } else { "checked" };
        assert!(said.contains(&format!("signed by key {id}")) && said.contains(signed), "{said}");
        assert_eq!(code, 0, "{said}");
    }
}

#[test]
fn no_byte_of_a_hostile_envelope_reaches_the_terminal() {
    let stage = Stage::new(*users().last().unwrap());
    let mut plan = stage.plan();
    let target = AbsPath::new("/a\x1b]0;owned\x07\r\n\u{202e}b").unwrap();
    plan.ops.push(Op::Mask { target, kind: MaskKind::Dir, loss: Loss::Tolerated });
    let (code, said) = explain(&stage, &sealed(&stage, plan));
    assert_eq!(code, 0, "{said}");
    assert!(said.bytes().all(|b| b == b'\n' || (b' '..=b'~').contains(&b)), "{said:?}");
    assert!(said.contains("\\x1b]0;owned"), "{said}");
}

#[test]
fn what_the_helper_would_refuse_is_said_to_be_refused() {
    let stage = Stage::new(*users().last().unwrap());
    let mut again = stage.plan();
    again.ops.push(Op::Proc);
    let (code, said) = explain(&stage, &sealed(&stage, again));
    assert!(code == 1 && said.contains("REFUSES"), "{said}");
    let good = sealed(&stage, stage.plan());
    let mut forged = good.clone();
    forged[wire::ENVELOPE_HEAD - 40] ^= 1;
    let (code, said) = explain(&stage, &forged);
    assert!(code == 1 && said.contains("DOES NOT FIT"), "{said}");
    let last = good.len() - 1;
    let mut unsigned = good.clone();
    unsigned[last] ^= 1;
    let (code, said) = explain(&stage, &unsigned);
    if stage.uid != 0 {
        assert!(code == 1 && said.contains("NOT signed"), "{said}");
    }
    for nonsense in [&b""[..], b"x", &[0xff; 4096], &good[..last]] {
        let (code, said) = explain(&stage, nonsense);
        assert!(code == 1 && said.contains("no envelope"), "{said}");
    }
}

#[test]
fn root_enrols_lists_and_removes_a_key_and_the_files_are_roots() {
    if !is_root() {
        return;
    }
    let stage = Stage::new(1000);
    let (line, id) = (stage.trust_line(), KeyId::of(&stage.key.verifying_key()).to_string());
    let short = &id[..8];
    let script = format!(
        "$A trust list && $A trust add {} && $A trust add {} && $A trust list && \
         stat -c '%a %u %n' /etc/landbox /etc/landbox/trusted.d /etc/landbox/trusted.d/* && \
         $A trust remove {short} && $A trust list && ls -A /etc/landbox/trusted.d | wc -l",
        line.trim(),
        line.trim()
    );
    let out = with_etc(&script);
    let said = text(&out.stdout);
    let want = format!(
        "no key is enrolled\nkey {id} now speaks for uid 1000\nkey {id} now speaks for uid 1000\n\
         {id} uid 1000 a test\n755 0 /etc/landbox\n755 0 /etc/landbox/trusted.d\n\
         644 0 /etc/landbox/trusted.d/{id}.pub\n{id}.pub is no longer enrolled\nno key is enrolled\n0\n"
    );
    assert_eq!(said, want, "{}", text(&out.stderr));
}

#[test]
fn a_folder_that_others_can_write_to_takes_no_key_and_a_file_that_counts_for_nothing_is_named() {
    if !is_root() {
        return;
    }
    let stage = Stage::new(1000);
    let add = format!("$A trust add {}", stage.trust_line().trim());
    for spoil in [
        "mkdir /etc/landbox && chmod 777 /etc/landbox",
        "mkdir -p /etc/landbox/trusted.d && chown 1000 /etc/landbox",
        "mkdir /etc/real && ln -s real /etc/landbox",
        "mkdir -p /etc/landbox/trusted.d && chmod g+w /etc/landbox/trusted.d",
        "chmod o+w /etc",
    ] {
        let out = with_etc(&format!("{spoil} && {add}; echo $?; find /etc -type f"));
        let said = text(&out.stdout);
        assert!(said == "6\n" || said == "1\n", "{spoil}: {said} {}", text(&out.stderr));
    }
    let bad = "cd /etc/landbox/trusted.d && mv *.pub 00.pub && ln -s /proc/self/mem l.pub && mkfifo f.pub && $A trust list";
    let out = with_etc(&format!("{add} >/dev/null && {bad}; echo $?"));
    let said = text(&out.stdout);
    assert_eq!(said.matches("NOT a key that counts").count(), 3, "{said}");
    assert!(said.ends_with("1\n"), "{said}");
}

#[test]
fn only_root_says_whose_keys_count_and_nonsense_is_no_key() {
    if !is_root() {
        return;
    }
    let stage = Stage::new(1000);
    let copy = stage.path("landbox-audit");
    copy_program(AUDIT, &copy);
    let line = stage.trust_line();
    let words = line.trim().split(' ');
    let run = |program: &Path, words: &[&str], uid: u32| {
        Command::new(program).args(words).uid(uid).gid(uid).output().unwrap().status.code().unwrap()
    };
    let add: Vec<&str> = ["trust", "add"].into_iter().chain(words).collect();
    assert_eq!(run(&copy, &add, 1000), 6);
    assert_eq!(run(&copy, &["trust", "remove", "00000000"], 1000), 6);
    for bad in [
        ["trust", "add", "xyz", "1000"],
        ["trust", "add", &"0".repeat(63), "1000"],
        ["trust", "add", add[2], "-1"],
        ["trust", "add", add[2], "99999999999"],
        // A point of small order: everybody could sign with it.
        ["trust", "add", &format!("01{}", "0".repeat(62)), "1000"],
    ] {
        assert_eq!(run(Path::new(AUDIT), &bad, 0), 2, "{bad:?}");
    }
    assert_eq!(run(Path::new(AUDIT), &["trust", "remove", "../../x"], 0), 2);
    assert_eq!(run(Path::new(AUDIT), &["unknown"], 0), 2);
}

#[test]
fn with_a_set_id_bit_or_a_capability_it_does_nothing() {
    if !is_root() {
        return;
    }
    let stage = Stage::new(1000);
    let copy = |name: &str| -> PathBuf {
        let path = stage.path(name);
        copy_program(AUDIT, &path);
        path
    };
    let set = |program: &str, how: &str, path: &Path| {
        assert!(Command::new(program).arg(how).arg(path).status().unwrap().success());
    };
    let (setuid, setgid, capable) = (copy("a"), copy("b"), copy("c"));
    set("chmod", "u+s", &setuid);
    set("chmod", "g+s", &setgid);
    set("setcap", "cap_sys_admin=p", &capable);
    for program in [setuid, setgid, capable] {
        let out = Command::new(&program).arg("--version").uid(1000).gid(1000).output().unwrap();
        assert_eq!(out.status.code(), Some(6), "{}", program.display());
        assert!(out.stdout.is_empty());
    }
}

//! Terminals and pipes: what a CLI finds on its descriptors, and what comes out.
#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

use landbox_tests::probe::Facts;
use landbox_tests::{Place, World, procs, worlds};
use rustix::process::Signal;
use std::time::{Duration, Instant};

worlds! {
    [user_kernel, root_kernel]
    fn on_a_terminal_the_command_has_a_terminal_of_its_own(world) {
        let place = Place::new(world);
        let mut terminal =
            place.sh("tty; stty size; test -t 0 -a -t 1 -a -t 2 && echo all; echo x > /dev/tty; ps -o tty= $$").terminal(97, 31);
        assert_eq!(terminal.wait(), 0);
        let shown = terminal.shown();
        assert!(shown.contains("/dev/"), "{shown}");
        assert!(!shown.contains("not a tty"), "{shown}");
        for text in ["31 97", "all", "x\r\n"] {
            assert!(shown.contains(text), "{shown}");
        }
    }

    [user_kernel, root_kernel]
    fn without_a_terminal_the_command_has_none(world) {
        let place = Place::new(world);
        let facts: Facts = place.prober(["facts"]).output().ok().json();
        assert!(facts.stdio.iter().all(|s| !s.tty), "{:?}", facts.stdio);
        let out = place.sh("tty; (: </dev/tty) 2>/dev/null && echo has; true").output().ok();
        assert_eq!(out.text(), "not a tty\n");
    }

    [user_kernel]
    fn each_descriptor_is_judged_by_itself(world) {
        let place = Place::new(world);
        let mut terminal = place
            .sh("for n in 0 1 2; do test -t $n && echo terminal $n >&2; done; echo out")
            .prefix("exec </dev/null >out.txt")
            .terminal(80, 24);
        assert_eq!(terminal.wait(), 0);
        let shown = terminal.shown();
        assert!(shown.contains("terminal 2") && !shown.contains("terminal 1"), "{shown}");
        assert!(!shown.contains("terminal 0"), "{shown}");
        assert_eq!(std::fs::read_to_string(place.project.join("out.txt")).unwrap(), "out\n");
    }

    [user_kernel, root_kernel]
    fn every_resize_arrives_and_small_sizes_stay_small(world) {
        let place = Place::new(world);
        let script = "import os,signal,time\n\
                      show=lambda *a: os.write(1, b'size=%dx%d;' % tuple(os.get_terminal_size()))\n\
                      signal.signal(signal.SIGWINCH, show); show()\n\
                      while True: time.sleep(1)";
        let mut terminal = place.session::<&str, _>([], ["python3", "-c", script]).terminal(80, 24);
        terminal.expect("size=80x24;");
        for (columns, rows) in [(132, 50), (45, 20), (20, 5), (1, 1), (500, 300)] {
            terminal.resize(columns, rows);
            terminal.expect(&format!("size={columns}x{rows};"));
        }
        for n in 1..=10 {
            terminal.resize(60 + n, 20 + n);
        }
        terminal.expect("size=70x30;");
        terminal.send(b"\x03");
        assert_ne!(terminal.wait(), 0);
    }

    [user_kernel, root_kernel]
    fn control_keys_act_on_the_job_inside(world) {
        let place = Place::new(world);
        let mut terminal = place.session::<&str, _>([], ["bash", "--norc", "-i"]).terminal(80, 24);
        terminal.send("PS1='>'; echo rea''dy\n");
        terminal.expect("ready");
        terminal.send("sleep 100; echo code=$?\n");
        std::thread::sleep(Duration::from_millis(500));
        terminal.send(b"\x03");
        std::thread::sleep(Duration::from_millis(300));
        terminal.send("echo alive=$((40+2))\n");
        terminal.expect("alive=42");
        terminal.send("sleep 100\n");
        std::thread::sleep(Duration::from_millis(500));
        terminal.send(b"\x1a");
        terminal.expect("Stopped");
        terminal.send("jobs; kill %1; exit 9\n");
        std::thread::sleep(Duration::from_millis(300));
        terminal.send("exit 9\n");
        assert_eq!(terminal.wait(), 9, "{}", terminal.shown());
    }

    [user_kernel]
    fn the_owner_s_terminal_is_as_before_however_the_session_ends(world) {
        let place = Place::new(world);
        for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("stty raw -echo; exit 1", 1)] {
            let mut terminal = place.sh(&format!("sleep 0.3; {script}")).terminal(80, 24);
            let before = terminal.settings();
            assert_eq!(terminal.wait(), code, "{script}: {}", terminal.shown());
            assert_eq!(terminal.settings(), before, "{script}");
        }
        let mut terminal = place.sh("echo ready; sleep 100").terminal(80, 24);
        let before = terminal.settings();
        terminal.expect("ready");
        for helper in procs::descendants(terminal.pid()).iter().filter(|p| p.name.starts_with("landbox-h")) {
            procs::kill(helper.pid, Signal::KILL);
        }
        assert_eq!(terminal.wait(), 125, "{}", terminal.shown());
        assert_eq!(terminal.settings(), before);
    }

    [user_kernel, root_fuse]
    fn the_owner_s_terminal_is_as_before_whatever_signal_ends_the_controller(world) {
        let place = Place::new(world);
        // By number: real-time signals, from 34 on, have no names. Also what a fault of our own would raise, sent by somebody.
        for signal in [4, 5, 6, 7, 8, 11, 14, 15, 16, 24, 25, 26, 27, 29, 30, 31, 34, 50, 64] {
            let mut terminal = place.sh("stty raw -echo; echo ready; sleep 100").terminal(80, 24);
            let before = terminal.settings();
            terminal.expect("ready");
            let all = procs::descendants(terminal.pid());
            // Whatever started it has made way for it.
            let sent = std::process::Command::new("kill").args(["-s", &signal.to_string(), &terminal.pid().to_string()]).status();
            assert!(sent.unwrap().success());
            assert_eq!(terminal.wait(), 128 + signal, "{}", terminal.shown());
            assert_eq!(terminal.settings(), before, "{signal}");
            procs::gone(&all, 20);
        }
    }

    [user_kernel, root_kernel]
    fn the_last_line_and_the_status_survive_the_end(world) {
        let place = Place::new(world);
        let out = place.sh("seq 200000; exit 7").output().expect(7);
        assert_eq!(out.text().lines().count(), 200_000);
        assert!(out.text().ends_with("\n200000\n"));
        let mut terminal = place.sh("seq 20000; exit 7").terminal(80, 24);
        assert_eq!(terminal.wait(), 7);
        assert!(terminal.shown().contains("\n20000\r\n"), "the last line is missing");
    }

    [user_kernel, root_kernel]
    fn pipes_carry_every_byte_and_their_end(world) {
        let place = Place::new(world);
        // A sequence that repeats late and holds every byte.
        let noise = |n: u32| n.wrapping_mul(2_654_435_761).to_le_bytes();
        let bytes: Vec<u8> = (0..750_000).flat_map(noise).collect();
        let out = place.session::<&str, _>([], ["cat"]).stdin(bytes.clone()).output().ok();
        assert!(out.stdout == bytes, "{} bytes of {}", out.stdout.len(), bytes.len());
        assert_eq!(place.session::<&str, _>([], ["cat"]).output().ok().text(), "");
    }

    [user_kernel, root_kernel]
    fn a_terminal_carries_every_byte_both_ways(world) {
        let place = Place::new(world);
        // Each byte beside each other, and more than a line discipline holds.
        let bytes: Vec<u8> = (0..=255u8).flat_map(|a| (0..=255u8).step_by(5).flat_map(move |b| [a, b])).collect();
        let script = format!("stty raw -echo; echo ready; head -c {}; echo end", bytes.len());
        let mut terminal = place.sh(&script).terminal(80, 24);
        terminal.expect("ready");
        terminal.send(&bytes);
        terminal.expect("end");
        assert_eq!(terminal.wait(), 0);
        let shown = terminal.bytes();
        let at = shown.windows(5).position(|part| part == b"ready").unwrap();
        let carried = &shown[at + 6..];
        let differs = carried.iter().zip(&bytes).position(|(a, b)| a != b);
        assert_eq!(differs, None);
        assert!(carried[bytes.len()..].starts_with(b"end"));
    }

    [user_kernel]
    fn standard_output_and_error_stay_apart(world) {
        let out = Place::new(world).sh("echo out; echo err >&2").output().ok();
        assert_eq!(out.text(), "out\n");
        assert!(out.errors().starts_with("err\n"), "{}", out.errors());
    }

    [user_kernel, root_kernel]
    fn exit_codes_are_the_command_s_own(world) {
        let place = Place::new(world);
        for code in [0, 1, 2, 42, 124, 255] {
            place.sh(&format!("exit {code}")).output().expect(code);
        }
        place.sh("kill -TERM $$").output().expect(128 + 15);
        place.sh("kill -KILL $$").output().expect(128 + 9);
        place.session::<&str, _>([], ["no-such-program"]).output().expect(127);
        place.write(place.project.join("plain.txt"), "no program\n");
        place.session::<&str, _>([], ["./plain.txt"]).output().expect(126);
    }

    [user_kernel, user_fuse]
    fn a_background_child_does_not_hold_the_session(world) {
        let place = Place::new(world);
        let start = Instant::now();
        place.sh("sleep 300 & exit 3").output().expect(3);
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    }
}

#[test]
fn one_line_says_what_changed_and_how_to_review() {
    let place = Place::new(World::USUAL);
    let out = place.sh("echo x > new; echo y >> README.md").output().ok();
    let errors = out.errors();
    assert!(errors.contains("2 files") && errors.contains("landbox "), "{errors}");
    assert_eq!(out.text(), "");
}

//! What comes in with the start: descriptors, variables, terminals, the host's processes.

use super::{host, kinds, set_mode};
use landbox_tests::{Place, procs, world, worlds};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// Waits until the shell's job has been started: a signal before that is the shell's alone, and it waits for the job first.
fn job_runs(pid: i32) {
    procs::wait_for("the job", 20, || {
        procs::descendants(pid).iter().any(|p| p.name == "sleep").then_some(())
    });
}

worlds! {
    // Whatever was open needs no path, and numbers may lie above the limit that holds now.
    [user_kernel, root_kernel]
    fn no_open_file_of_the_caller_comes_in_whatever_its_number(world) {
        let place = Place::new(world);
        place.write(place.home.join(".netrc"), "TOKEN\n");
        let home = place.home.display();
        let script = "ls /proc/self/fd | tr '\\n' ' '; cat <&3; cat <&4; cat <&1500; ls /proc/self/fd/9/root; true";
        let out = place
            .session(["--hide", "~/.ssh", "--hide", "~/.netrc"], ["bash", "-c", script])
            .prefix(&format!(
                "ulimit -Sn 4096; exec 3<{home}/.ssh/id_ed25519 4<>{home}/.netrc 5<&4 9</ 1500<{home}/.netrc 4000</etc; ulimit -Sn 64"
            ))
            .output()
            .ok();
        // The fourth is the folder that `ls` lists.
        assert_eq!(out.text(), "0 1 2 3 ", "{}", out.errors());
    }

    // A caller that closed its standard descriptors: the first files opened must not take their numbers.
    [user_kernel, root_kernel]
    fn closed_standard_descriptors_stay_empty(world) {
        let place = Place::new(world);
        let out = place.sh("cat; echo out; echo err >&2; echo x > new").prefix("exec <&-").output().ok();
        assert_eq!(out.text(), "out\n");
        place.sh("echo out; echo err >&2; true").prefix("exec >&- 2>&-").output().ok();
        place.sh("echo out > new").prefix("exec <&- >&- 2>&-").output().ok();
        assert_eq!(kinds(&place), ["added new"]);
    }

    [user_kernel, root_kernel]
    fn a_secret_in_the_environment_of_another_process_is_not_to_be_found(world) {
        let place = Place::new(world);
        let mut other = host(&place, "/bin/sleep", &["60"], &place.outside);
        let other = other.env("SECRET_OUT", "TOKEN").start();
        let script = format!(
            "cat /proc/{0}/environ; ls /proc/{0}/root/ /proc/{0}/cwd/; cat /proc/*/environ | tr '\\0' '\\n' | grep SECRET; \
             head -c1 /proc/kcore; cat /proc/1/mem; true",
            other.pid()
        );
        let out = place.sh(&script).output();
        procs::kill(other.pid(), Signal::KILL);
        other.wait();
        assert_eq!(out.ok().text(), "");
    }

    // Sockets of the caller's terminal, editor and desktop by their variables.
    [user_kernel]
    fn variables_that_name_the_caller_s_terminal_or_editor_stay_outside(world) {
        let place = Place::new(world);
        let names = [
            "TMUX", "TMUX_PANE", "TMUX_TMPDIR", "STY", "ZELLIJ", "ZELLIJ_SESSION_NAME", "SSH_TTY", "VSCODE_IPC_HOOK_CLI",
            "KITTY_LISTEN_ON", "NVIM", "LANDBOX_STATE_DIR_OLD",
        ];
        let mut run = place.sh("env");
        names.iter().for_each(|name| { run.env(name, "/tmp/host"); });
        assert!(!run.output().ok().text().contains("/tmp/host"));
    }

    // What the variables name is not there, and a server of the session's own is in its way to nobody.
    [user_kernel]
    fn a_terminal_multiplexer_of_the_session_s_own_works_inside(world) {
        let place = Place::new(world);
        let script = "tmux ls 2>/dev/null && echo theirs; tmux -f /dev/null new-session -d -s own 'sleep 60' && \
                      tmux ls -F '#S' && tmux kill-server";
        let mut run = place.sh(script);
        let out = run.env("TMUX", "/tmp/tmux-1000/default,1,0").env("TMUX_PANE", "%0").output().ok();
        assert_eq!(out.text(), "own\n", "{}", out.errors());
    }

    // Sizes at both ends, and the third key that ends a job.
    [user_kernel]
    fn a_terminal_may_have_any_size(world) {
        let place = Place::new(world);
        let script = "import os,signal,time\n\
                      show=lambda *a: os.write(1, b'size=%dx%d;' % tuple(os.get_terminal_size()))\n\
                      signal.signal(signal.SIGWINCH, show); show()\n\
                      while True: time.sleep(1)";
        let mut terminal = place.session::<&str, _>([], ["python3", "-c", script]).terminal(0, 0);
        terminal.expect("size=");
        for (columns, rows) in [(65535, 65535), (1, 1), (65535, 1), (45, 20)] {
            terminal.resize(columns, rows);
            terminal.expect(&format!("size={columns}x{rows};"));
        }
        terminal.resize(0, 0);
        terminal.resize(20, 5);
        terminal.expect("size=20x5;");
        terminal.send(b"\x1c");
        assert_eq!(terminal.wait(), 128 + 3);
    }

    // A child that holds the terminal must neither keep the session nor lose its last screen.
    [user_kernel, root_kernel]
    fn a_background_child_on_a_terminal_does_not_hold_the_session(world) {
        let place = Place::new(world);
        let start = Instant::now();
        let mut terminal = place.sh("sleep 300 & trap '' HUP; seq 5000; exit 3").terminal(80, 24);
        assert_eq!(terminal.wait(), 3);
        assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
        assert!(terminal.shown().contains("\n5000\r\n"));
    }

    // In a pipeline the terminal stays as it is, so its keys come as signals: for the whole job, as outside.
    [user_kernel, root_kernel]
    fn an_interrupt_reaches_the_job_and_not_only_the_shell_that_waits_for_it(world) {
        let place = Place::new(world);
        let script = "trap 'echo caught >&2; exit 5' INT; echo ready >&2; sleep 100";
        let line = format!("{} run -- sh -c \"{script}\" | cat; true", world::bin("landbox").display());
        let start = Instant::now();
        let mut terminal = host(&place, "/bin/bash", &["-c", &line], &place.project).terminal(80, 24);
        terminal.expect("ready");
        job_runs(terminal.pid());
        terminal.send(b"\x03");
        terminal.expect("caught");
        terminal.wait();
        // Without any terminal, too.
        let mut live = place.sh("trap 'exit 5' INT; echo ready; sleep 100").start();
        live.expect("ready");
        job_runs(live.pid());
        procs::kill(live.pid(), Signal::INT);
        live.wait().expect(5);
        assert!(start.elapsed() < Duration::from_secs(50), "{:?}", start.elapsed());
    }

    // Whoever stops a job expects that it does nothing meanwhile.
    [user_kernel, user_fuse]
    fn a_stopped_job_stops_inside_and_goes_on_when_continued(world) {
        let place = Place::new(world);
        // The child in the background: while a shell starts one that it waits for, it can't be seen to stop (vfork(2)).
        let mut live = place.sh("sleep 1000 & echo ready; wait").start();
        live.expect("ready");
        let job = |stopped: bool| {
            let inside = procs::descendants(live.pid()).into_iter();
            let job: Vec<_> = inside.filter(|p| p.name == "sh" || p.name == "sleep").collect();
            (job.len() == 2 && job.iter().all(|p| (p.state == 'T') == stopped)).then_some(())
        };
        procs::wait_for("the job to run", 10, || job(false));
        procs::kill(live.pid(), Signal::TSTP);
        procs::wait_for("the job to stop", 10, || job(true));
        procs::wait_for("landbox to stop", 10, || procs::Proc::read(live.pid()).filter(|p| p.state == 'T'));
        procs::kill(live.pid(), Signal::CONT);
        procs::wait_for("the job to go on", 10, || job(false));
        procs::kill(live.pid(), Signal::TERM);
        live.wait().expect(128 + 15);
    }

    // A loop of restarts, because nothing said what was missing.
    [user_kernel]
    fn a_program_whose_interpreter_is_missing_is_named_with_it(world) {
        let place = Place::new(world);
        let agent = place.home.join("bin/agent");
        place.write(&agent, "#!/run/landbox-test-nothing/node\n");
        set_mode(&agent, 0o755);
        let path = format!("{}:/usr/bin:/bin", place.home.join("bin").display());
        let out = place.session::<&str, _>([], ["agent"]).env("PATH", &path).output().expect(127);
        assert!(out.errors().contains("/run/landbox-test-nothing/node"), "{}", out.errors());
    }
}

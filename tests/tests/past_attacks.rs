//! Attacks that worked on other sandboxes, a row each.
#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

use landbox_tests::probe::Attempt;
use landbox_tests::{Place, worlds};
use std::fs;

worlds! {
    // CVE-2017-5226, CVE-2023-28339: bytes typed into the terminal that started the sandbox.
    [user_kernel, root_kernel]
    fn terminal_injection_reaches_no_terminal(world) {
        let place = Place::new(world);
        let script = "import fcntl,termios,sys\n\
                      for c in 'touch /tmp/pwned\\n':\n\
                      \ttry: fcntl.ioctl(0, termios.TIOCSTI, c.encode())\n\
                      \texcept OSError as e: print('refused', e.errno); break\n\
                      else: print('typed')\n";
        let mut terminal =
            place.session::<&str, _>([], ["python3", "-c", script]).terminal(80, 24);
        assert_eq!(terminal.wait(), 0);
        assert!(terminal.shown().contains("refused 1"), "{}", terminal.shown());
    }

    // CVE-2024-21626: a descriptor of the host's left open, or a working folder outside, leads out by /proc/self.
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn no_descriptor_and_no_working_folder_of_the_host_is_left(world) {
        let place = Place::new(world);
        let out = place.outside.display();
        let script = "for n in /proc/self/fd/*; do readlink $n; done; \
                      for n in 3 4 5 6 7 8 9 100 1000; do cat /proc/self/fd/$n/etc/passwd; done 2>/dev/null; \
                      readlink /proc/self/cwd";
        let text = place
            .sh(script)
            .prefix(&format!("ulimit -n 4096; exec 7</ 8<{out} 9<>{out}/data.txt 1000</etc"))
            .output()
            .ok()
            .text();
        assert!(!text.contains("outside") && !text.contains("root:"), "{text}");
        assert!(text.ends_with(&format!("{}\n", place.project.display())), "{text}");
    }

    // CVE-2019-5736: the program that made the sandbox, overwritten through /proc/PID/exe.
    [user_kernel, root_kernel]
    fn the_programs_that_made_the_boundary_can_not_be_opened_for_writing(world) {
        let place = Place::new(world);
        let script = "for p in /proc/[0-9]*; do \
                      (exec 3>>$p/exe) 2>/dev/null && echo wrote $p; (exec 3>>$p/mem) 2>/dev/null && \
                      [ $p != /proc/$$ ] && [ $(cat $p/comm) = landbox-helper ] && echo memory $p; done; true";
        assert_eq!(place.sh(script).output().ok().text(), "");
    }

    // CVE-2018-15664, CVE-2021-30465: a folder swapped for a link while the outside works with its path.
    [user_kernel, user_fuse]
    fn links_left_in_the_project_lead_landing_nowhere(world) {
        let place = Place::new(world);
        let out = place.outside.display();
        let script = format!(
            "rm -rf src && ln -s {out} src && ln -s {out}/data.txt notes && ln -s / all && \
             echo pwned > src/planted; echo pwned >> notes; ls src"
        );
        place.sh(&script).output();
        place.landbox(["land", "--apply", "--yes"]).risks_accepted().output();
        assert_eq!(fs::read_to_string(place.outside.join("data.txt")).unwrap(), "outside\n");
        assert!(!place.outside.join("planted").exists());
    }

    // containers/bubblewrap issue 741: the host's /proc.
    [user_kernel, root_kernel]
    fn the_host_s_processes_do_not_show(world) {
        let place = Place::new(world);
        let here = std::process::id();
        let script = format!("cat /proc/{here}/environ /proc/{here}/comm; ls /proc | grep -c '^[0-9]'");
        let text = place.sh(&script).output().text();
        assert!(text.trim().parse::<u32>().unwrap() < 8, "{text}");
    }

    // Root without capabilities still owns the kernel's switches (mounted writable, they take its writes).
    [user_kernel, root_kernel]
    fn the_kernel_s_switches_are_read_only(world) {
        let place = Place::new(world);
        let script = "for f in /proc/sys/kernel/core_pattern /proc/sys/vm/overcommit_memory /proc/sysrq-trigger \
                      /proc/irq/default_smp_affinity; do [ -e $f ] && (exec 3>>$f) 2>/dev/null && echo open $f; done; \
                      mount -o remount,rw,bind /proc/sys 2>/dev/null && echo remounted; true";
        assert_eq!(place.sh(script).output().ok().text(), "");
    }

    // No list of names is complete: whatever of it can be written is one that asks for a capability, or is no switch.
    [root_kernel]
    fn nothing_of_the_kernels_in_proc_can_be_written(world) {
        let place = Place::new(world);
        let script = "find /proc/self/comm -writable; find /proc -path '/proc/[0-9]*' -prune -o -path /proc/pressure -prune -o -path /proc/mtrr -o \
                      ! -type l -writable -print 2>/dev/null; true";
        assert_eq!(place.sh(script).output().ok().text(), "/proc/self/comm\n");
    }

    // CVE-2022-0185 and its family begin with rights in a namespace of one's own.
    [user_kernel, root_kernel]
    fn a_nested_user_namespace_gives_nothing_of_the_host(world) {
        let place = Place::new(world);
        let script = format!(
            "unshare -Urm sh -c 'umount -l {0}; mount -o remount,rw,bind /; mount --bind /etc {0}/src; \
             echo pwned > {0}/README.md; echo pwned > {1}/data.txt; touch /etc/pwned-$$' 2>/dev/null; true",
            place.project.display(),
            place.outside.display(),
        );
        place.sh(&script).output().ok();
        let read = |path: &std::path::Path| fs::read_to_string(path).unwrap();
        assert_eq!(read(&place.project.join("README.md")), "# Project\n\nOne line.\n");
        assert_eq!(read(&place.outside.join("data.txt")), "outside\n");
    }

    // Session environment that leads to agents, buses and terminals of the host (B45).
    [user_kernel]
    fn variables_that_lead_to_sockets_of_the_host_are_not_inherited(world) {
        let place = Place::new(world);
        let names = ["TMUX", "TMUX_PANE", "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY",
            "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR"];
        let mut run = place.sh("env");
        names.iter().for_each(|name| { run.env(name, "/tmp/host,1,0"); });
        run.env("HARMLESS", "kept");
        let text = run.output().ok().text();
        for name in names {
            assert!(!text.lines().any(|l| l.starts_with(&format!("{name}="))), "{text}");
        }
        assert!(text.contains("HARMLESS=kept\n"));
    }

    // Set-uid programs inside: no_new_privs.
    [user_kernel]
    fn a_set_uid_program_gives_nothing(world) {
        let place = Place::new(world);
        let text = place.sh("su -c id root </dev/null 2>/dev/null; mount -t tmpfs t /mnt 2>/dev/null; id -u").output().text();
        assert_eq!(text, format!("{}\n", world.ids().0));
    }

    // The landbox state and keys: a session that could sign plans or edit snapshots could free itself (B72).
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn keys_and_state_are_hidden(world) {
        let place = Place::new(world);
        let text = place
            .sh("find ~/.local/state/landbox ~/.config/landbox -mindepth 1 2>/dev/null; \
                 echo x > ~/.local/state/landbox/x && echo wrote; echo x > ~/.config/landbox/keys && echo wrote; true")
            .output()
            .ok()
            .text();
        assert_eq!(text, "");
    }

    // B37: other numbers by the other entry.
    [user_kernel]
    fn the_32_bit_entry_is_closed(world) {
        let attempts: Vec<Attempt> = Place::new(world).prober(["calls"]).output().ok().json();
        let int80 = attempts.iter().find(|a| a.way == "int 0x80");
        assert!(int80.is_none_or(|a| a.errno == -libc::SIGSYS), "{int80:?}");
    }
}

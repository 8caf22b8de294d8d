//! Every line of the restricted filter, tried from inside a session with a policy.

use landbox_seccomp::Arch;
use landbox_seccomp::table::{RESTRICTED, When};
use landbox_tests::net::{Outer, open};
use landbox_tests::probe::Attempt;
use landbox_tests::{Place, World, world, worlds};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;

fn inside(world: World) -> Vec<Attempt> {
    let outer = Outer::new();
    let place = Place::new(world);
    let prober = world::bin("prober");
    let command = [prober.as_os_str(), "restricted-calls".as_ref()];
    outer.session(&place, &open(), command).output().ok().json()
}

fn by<'a>(attempts: &'a [Attempt], way: &str) -> Vec<&'a Attempt> {
    let found: Vec<&Attempt> = attempts.iter().filter(|a| a.way == way).collect();
    assert!(!found.is_empty(), "{way} was not tried: {attempts:#?}");
    found
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn every_line_of_the_table_is_refused(world) {
        let attempts = inside(world);
        for rule in RESTRICTED {
            let tried = by(&attempts, rule.call);
            assert!(tried.iter().all(|a| a.errno == rule.errno), "{rule:?}: {tried:#?}");
            if let When::Bit { .. } = rule.when {
                let tried = by(&attempts, "clone with a user namespace");
                assert!(tried.iter().all(|a| a.errno == rule.errno), "{rule:?}: {tried:#?}");
            }
        }
    }

    [user_kernel, root_kernel]
    fn internet_sockets_pairs_and_plain_processes_are_made(world) {
        let attempts = inside(world);
        for way in ["internet socket", "joined sockets", "plain clone"] {
            assert!(by(&attempts, way).iter().all(|a| a.worked()), "{way}: {attempts:#?}");
        }
    }

    [user_kernel, root_kernel]
    fn the_kernel_refuses_what_needs_a_capability(world) {
        let attempts = inside(world);
        for way in ["raw socket", "mark", "take down", "open"] {
            assert!(by(&attempts, way).iter().all(|a| !a.worked()), "{way}: {attempts:#?}");
        }
    }

    [user_kernel, root_kernel]
    fn foreign_interfaces_are_closed(world) {
        if Arch::host() == Some(Arch::X86_64) {
            let attempts = inside(world);
            assert_eq!(by(&attempts, "int 0x80")[0].errno, -libc::SIGSYS);
            assert!(by(&attempts, "x32").iter().all(|a| a.errno == libc::ENOSYS), "{attempts:#?}");
        }
    }

    [user_kernel, root_kernel]
    fn no_socket_of_the_host_is_reached_by_its_path(world) {
        let outer = Outer::new();
        let place = Place::new(world);
        let path = place.outside.join("socket");
        let socket = UnixDatagram::bind(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).unwrap();
        socket.set_nonblocking(true).unwrap();
        // Either end of a pair of datagram sockets could be sent from to any path.
        let script = "import socket, sys
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
    for attempt in (lambda s: s.sendto(b'x', sys.argv[1]), lambda s: s.connect(sys.argv[1]) or s.send(b'x')):
        try: attempt(socket.socketpair(socket.AF_UNIX, kind)[0])
        except OSError: pass
print('tried')";
        let words = ["python3", "-c", script, path.to_str().unwrap()];
        let out = outer.session(&place, &open(), words).output().ok();
        assert_eq!(out.text(), "tried\n");
        let nothing = socket.recv(&mut [0; 8]).unwrap_err();
        assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
    }

    [user_kernel]
    fn programs_that_prefer_what_is_refused_find_another_way(world) {
        let outer = Outer::new();
        let place = Place::new(world);
        // Threads without clone3, name-service look-ups without nscd's socket, a child's pipes from socketpair.
        let script = "import threading, pwd, subprocess, socket
t = threading.Thread(target=lambda: print('thread')); t.start(); t.join()
print(pwd.getpwuid(0).pw_name)
a, b = socket.socketpair(); a.send(b'pair'); print(b.recv(9).decode())
print(subprocess.run(['echo', 'child'], capture_output=True, text=True).stdout.strip())";
        let out = outer.session(&place, &open(), ["python3", "-c", script]).output().ok();
        assert_eq!(out.text(), "thread\nroot\npair\nchild\n");
    }

    // As README.md and the manual page say.
    [user_kernel, root_kernel]
    fn what_does_not_work_under_the_filter_fails_at_once_and_says_so(world) {
        let outer = Outer::new();
        let place = Place::new(world);
        let python = "import socket, multiprocessing, subprocess
def tell(what, attempt):
    try: attempt(); print(what, 'works')
    except (OSError, EOFError) as e: print(what, getattr(e, 'strerror', type(e).__name__))
def listen(): socket.socket(socket.AF_UNIX).bind('s')
tell('interfaces', socket.if_nameindex)
tell('listening', listen)
tell('manager', multiprocessing.Manager)
tell('datagram pair', lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
tell('raw', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
for words in (['ip', 'link'], ['bwrap', '--ro-bind', '/', '/', 'true'], ['unshare', '-Ur', 'true']):
    print(words[0], subprocess.run(words, capture_output=True).returncode != 0)
tell('names', lambda: socket.getaddrinfo('localhost', 80))
tell('children', lambda: multiprocessing.Pool(2).map(abs, [1, -1]))";
        let node = "try { require('os').networkInterfaces(); console.log('works') } catch (e) { console.log(e.code) }";
        let script = "timeout 50 python3 -c \"$0\"; timeout 50 node -e \"$1\"";
        let words = ["sh", "-c", script, python, node];
        let out = outer.session(&place, &open(), words).output().ok();
        // The manager's own process fails where it listens, and is gone.
        let no = "Operation not permitted";
        let expected = format!(
            "interfaces {no}\nlistening {no}\nmanager EOFError\ndatagram pair {no}\nraw {no}\nip True\nbwrap True\n\
             unshare True\nnames works\nchildren works\nERR_SYSTEM_ERROR\n"
        );
        assert_eq!(out.text(), expected, "{}", out.errors());
    }
}

//! Who reads, holds open or watches what lands.

use super::tests::land;
use crate::land::testing::{Fixture, World};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::collections::BTreeSet;
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

const MAKE: &str = "for i in 0 1 2 3 4 5 6 7 8 9; do head -c 1000000 /dev/zero | tr '\\0'";

#[test]
fn whoever_reads_holds_or_watches_a_file_has_all_of_the_old_or_all_of_the_new() {
    let fixture = Fixture::new(World::UserKernel, &format!("{MAKE} a > f$i; done"));
    fixture.run(&format!("{MAKE} b > t; cat t > f$i; done; rm t"));
    let held = std::fs::File::open(fixture.project.join("f0")).unwrap();
    let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
    let names =
        WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::MOVED_FROM | WatchFlags::DELETE;
    inotify::add_watch(&watch, &fixture.project, names | WatchFlags::MODIFY).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    for at in 0..10 {
                        let mut bytes = Vec::new();
                        let mut file =
                            std::fs::File::open(fixture.project.join(format!("f{at}"))).unwrap();
                        file.read_to_end(&mut bytes).unwrap();
                        assert_eq!(bytes.len(), 1_000_000);
                        assert!(bytes.iter().all(|b| *b == bytes[0]), "f{at} is old and new");
                    }
                }
            });
        }
        land(&fixture).unwrap();
        over.store(true, Ordering::Relaxed);
    });
    // What was held open is the old file for good, and nobody who watches hears of a name that is no file of theirs.
    let mut bytes = vec![0; 1_000_000];
    held.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes.iter().all(|b| *b == b'a'));
    let mut space = [MaybeUninit::uninit(); 16 << 10];
    let mut reader = inotify::Reader::new(&watch, &mut space);
    let mut heard = BTreeSet::new();
    while let Ok(event) = reader.next() {
        assert!(
            !event.events().contains(inotify::ReadFlags::MODIFY),
            "written to in place: {:?}",
            event.file_name()
        );
        heard.extend(event.file_name().map(|name| name.to_string_lossy().into_owned()));
    }
    let files: BTreeSet<String> = (0..10).map(|at| format!("f{at}")).collect();
    assert_eq!(heard, files);
}

/// Maps a file as a program of the owner's does, and says what it sees of it before and after a landing.
const MAPS: &str = "
import mmap, sys
name = sys.argv[1]
file = open(name, 'r+b')
shared = mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
untouched = mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
private = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
private[0:1] = b'P'
seen = shared[:]
print('mapped', flush=True)
sys.stdin.readline()
new = open(name, 'rb').read()
ok = shared[:] == seen and untouched[:] == seen and private[:] == b'P' + seen[1:]
print(ok, set(seen), set(new), len(seen), len(new), flush=True)
";

#[test]
fn whoever_has_mapped_a_file_keeps_all_of_the_old_and_finds_all_of_the_new_by_its_name() {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};
    let fixture = Fixture::new(World::UserKernel, &format!("{MAKE} a > f$i; done"));
    fixture.run(&format!("{MAKE} b > t; cat t > f$i; done; rm t"));
    let mut program = Command::new("python3")
        .args(["-c", MAPS])
        .arg(fixture.project.join("f3"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "mapped");
    land(&fixture).unwrap();
    program.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "True {97} {98} 1000000 1000000");
    assert!(program.wait().unwrap().success());
}

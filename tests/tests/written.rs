//! What a program was told is written is written, whichever of Landbox's processes is killed: nothing waits in memory for a
//! file to be closed.
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::procs::{self, Proc};
use landbox_tests::run::Live;
use landbox_tests::world::World;
use landbox_tests::{Place, worlds};
use rustix::process::Signal;
use std::path::PathBuf;

/// Keeps files open: new, appended to, changed in the middle, mapped. None is closed or synced.
const WRITER: &str = "
import mmap, os, sys, time
new = open('new', 'wb', buffering=0)
for n in range(1000): new.write(b'line %d\\n' % n)
log = open('README.md', 'ab', buffering=0)
log.write(b'appended\\n')
data = os.open('data', os.O_WRONLY)
os.pwrite(data, b'changed', 5000)
gone = open('src/gone', 'wb', buffering=0)
gone.write(b'unlinked\\n'); os.unlink('src/gone')
part = open('part', 'w+b', buffering=0)
part.truncate(3 * 4096)
page = mmap.mmap(part.fileno(), 0)
page[4096:4103] = b'mapped\\n'
print('ready', flush=True)
time.sleep(888)
";

fn started(place: &Place) -> (Live, Vec<Proc>) {
    place.write(place.project.join("data"), "0".repeat(3 * 4096));
    let mut live = place.session(["--name", "s"], ["python3", "-c", WRITER]).start();
    live.expect("ready");
    let tree = procs::descendants(live.pid());
    (live, tree)
}

fn upper(place: &Place) -> PathBuf {
    place.sessions().remove(0).join("layers/project/upper")
}

/// All that was written is in the layer and on the card; `mapped` says whether what was written to a mapped file is, too.
#[track_caller]
fn all_is_kept(place: &Place, tree: &[Proc], mapped: bool) {
    procs::gone(tree, 20);
    assert_eq!(procs::mounts_below(place.root()), Vec::<String>::new());
    let read = |name: &str| std::fs::read(upper(place).join(name)).unwrap();
    let lines: String = (0..1000).map(|n| format!("line {n}\n")).collect();
    assert_eq!(String::from_utf8(read("new")).unwrap(), lines);
    assert!(read("README.md").ends_with(b"\nappended\n"));
    assert_eq!((read("data").len(), &read("data")[4999..5008]), (3 * 4096, &b"0changed0"[..]));
    assert_eq!(read("part").len(), 3 * 4096);
    if mapped {
        assert_eq!(&read("part")[4096..4103], b"mapped\n");
    }
    let names: Vec<String> = place.changes().into_iter().map(|(path, _)| path).collect();
    assert_eq!(names, ["README.md", "data", "new", "part"]);
    let card = place.json(["diff", "s"]);
    assert_eq!(card["added"], 1002, "{card:#}");
    // It goes on from there.
    let script = "tail -1 README.md; wc -l < new; dd if=data bs=1 skip=5000 count=7 2>/dev/null";
    let resumed = place.landbox(["resume", "s", "--", "sh", "-c", script]).output().ok();
    assert_eq!(resumed.text(), "appended\n1000\nchanged");
}

/// A session for each process that `choose` names, which is killed.
#[track_caller]
fn kill_each(world: World, choose: impl Fn(&Live, &[Proc]) -> Vec<i32>, mapped: bool) {
    for n in 0.. {
        let place = Place::new(world);
        let (live, tree) = started(&place);
        let victims = choose(&live, &tree);
        procs::kill(victims[n], Signal::KILL);
        live.wait();
        all_is_kept(&place, &tree, mapped);
        if n + 1 == victims.len() {
            break;
        }
    }
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn what_was_written_to_open_files_is_kept_when_the_controller_is_killed(world) {
        kill_each(world, |live, _| vec![live.pid()], true);
    }

    // The monitor, init, and the task itself.
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn what_was_written_to_open_files_is_kept_when_a_process_of_the_helper_is_killed(world) {
        let ours = |_: &Live, tree: &[Proc]| {
            tree.iter().filter(|p| p.name != "fuse-overlayfs").map(|p| p.pid).collect()
        };
        kill_each(world, ours, true);
    }

    // What was written to a map is the kernel's until it is unmapped or synced, and nobody is left to take it.
    [user_fuse, root_fuse]
    fn what_was_written_to_open_files_is_kept_when_the_overlay_s_process_is_killed(world) {
        let overlays = |_: &Live, tree: &[Proc]| {
            tree.iter().filter(|p| p.name == "fuse-overlayfs").map(|p| p.pid).collect()
        };
        kill_each(world, overlays, false);
    }

    [user_fuse, root_fuse]
    fn what_was_written_to_open_files_is_kept_when_all_are_killed_at_once(world) {
        let place = Place::new(world);
        let (live, tree) = started(&place);
        procs::kill(live.pid(), Signal::STOP);
        tree.iter().for_each(|one| procs::kill(one.pid, Signal::STOP));
        // Stopped, none of them does anything about the end of another.
        tree.iter().filter(|p| p.name == "fuse-overlayfs").for_each(|one| procs::kill(one.pid, Signal::KILL));
        tree.iter().for_each(|one| procs::kill(one.pid, Signal::KILL));
        procs::kill(live.pid(), Signal::KILL);
        live.wait();
        all_is_kept(&place, &tree, false);
    }

    // The review looks at the layer, not at what the session has open.
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn what_was_written_to_open_files_is_on_the_card_of_a_running_session_and_lands(world) {
        let place = Place::new(world);
        let (live, tree) = started(&place);
        let card = place.json(["diff", "s"]);
        assert_eq!(card["added"], 1002, "{card:#}");
        place.landbox(["land", "s", "--apply", "--yes", "--", "new", "README.md"]).output().ok();
        assert_eq!(std::fs::read_to_string(place.project.join("new")).unwrap().lines().count(), 1000);
        procs::kill(live.pid(), Signal::TERM);
        live.wait();
        procs::gone(&tree, 20);
    }
}

//! Layers: what they hold, and that programs inside work on them as on the real tree.

use super::{change, host, kinds, land, mode, patch, read, set_mode};
use landbox_tests::world::Overlay;
use landbox_tests::{Place, worlds};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// SQLite does not wait for the lock by which a database is switched to its write-ahead log.
const DATABASE: &str = "import sqlite3,os,sys,time\n\
    p=os.path.expanduser('~/.agentcli'); os.makedirs(p,exist_ok=True)\n\
    c=sqlite3.connect(p+'/s.db')\n\
    while True:\n\
    \ttry: c.execute('pragma journal_mode=wal'); break\n\
    \texcept sqlite3.OperationalError: time.sleep(.01)\n\
    c.execute('create table if not exists t(x)'); c.execute('begin immediate')\n\
    c.execute('insert into t values(1)'); c.commit()\n\
    print(c.execute('select count(*) from t').fetchone()[0], flush=True)\n\
    len(sys.argv) > 1 and sys.stdin.readline()\n";

const WATCH: &str = "import ctypes,os,select,struct,subprocess\n\
    l=ctypes.CDLL(None); fd=l.inotify_init()\n\
    f=l.inotify_add_watch(fd,b'README.md',2); d=l.inotify_add_watch(fd,b'src',0x100)\n\
    subprocess.run(['sh','-c','echo more >> README.md; echo x > src/new'])\n\
    seen=set()\n\
    while len(seen)<2 and select.select([fd],[],[],10)[0]:\n\
    \tb=os.read(fd,4096)\n\
    \twhile b: w,m,c,n=struct.unpack('iIII',b[:16]); seen.add(w); b=b[16+n:]\n\
    print(sorted(seen)==sorted([f,d]))\n";

const LISTEN: &str = "import ctypes,select\n\
    l=ctypes.CDLL(None); fd=l.inotify_init(); l.inotify_add_watch(fd,b'README.md',2)\n\
    print('ready', flush=True); input()\n\
    print(len(select.select([fd],[],[],0.5)[0]), open('README.md').read().count('host'))\n";

const MAPPED: &str = "import mmap,os,subprocess\n\
    f=os.open('log.txt',os.O_RDONLY); m=mmap.mmap(f,4,prot=mmap.PROT_READ)\n\
    subprocess.run(['sh','-c','printf new! | dd of=log.txt conv=notrunc status=none'])\n\
    print(os.pread(f,4,0).decode(), m[:].decode())\n";

fn mapped(place: &Place) -> String {
    place.write(place.project.join("log.txt"), "old!\n");
    place.session::<&str, _>([], ["python3", "-c", MAPPED]).output().ok().text()
}

worlds! {
    // Copying up metadata alone leaves a file without bytes of its own in the layer.
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_change_of_mode_is_a_patch_without_content_and_lands_without_touching_it(world) {
        let place = Place::new(world);
        let text = "#!/bin/sh\n".repeat(400);
        place.write(place.project.join("run.sh"), &text);
        set_mode(place.project.join("run.sh"), 0o644);
        place.sh("chmod 755 run.sh").output().ok();
        let wanted = "diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n";
        assert_eq!(read(patch(&place)), wanted);
        land(&place);
        assert_eq!(read(place.project.join("run.sh")), text);
        assert_eq!(mode(place.project.join("run.sh")), 0o755);
    }

    // A database whose locks do not work makes the program wait a minute, and quit.
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_database_is_as_quick_as_outside_and_stays_where_the_rules_say(world) {
        let place = Place::new(world);
        let program = place.home.join("db.py");
        place.write(&program, DATABASE);
        let folder = place.home.join(".agentcli");
        let twice = "python3 ~/db.py & python3 ~/db.py; wait";
        let timed = |run: &mut landbox_tests::run::Run| {
            let start = Instant::now();
            let out = run.output().ok();
            let last = out.text().lines().filter_map(|l| l.parse::<u32>().ok()).max();
            (last, start.elapsed())
        };
        let (rows, outside) = timed(&mut host(&place, "/bin/sh", &["-c", twice], &place.project));
        assert_eq!(rows, Some(2));
        let db = folder.join("s.db");
        // Two that close at once may leave the log beside it.
        let real = || (fs::read(&db).unwrap(), fs::read_dir(&folder).unwrap().count());
        let before = real();
        // In the layer: the real one keeps every byte.
        let (rows, inside) = timed(&mut place.sh(twice));
        assert_eq!(rows, Some(4));
        assert!(inside < Duration::from_secs(2) + 3 * outside, "{inside:?}, outside {outside:?}");
        assert!(real() == before);
        // The whole folder real: the rows too, and the log beside them.
        let mut live = place
            .session(["--auth", "~/.agentcli"], ["sh", "-c", "python3 ~/db.py wait"])
            .stdin_open()
            .start();
        live.expect("3");
        assert!(folder.join("s.db-wal").exists() && folder.join("s.db-shm").exists());
        live.write(b"\n");
        live.wait().ok();
        let (rows, _) = timed(&mut host(&place, "/bin/sh", &["-c", "python3 ~/db.py"], &place.project));
        assert_eq!(rows, Some(4));
    }

    // Two names of one file come apart in a layer.
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn landing_one_of_two_names_says_that_the_link_will_be_broken(world) {
        let place = Place::new(world);
        let [a, b] = ["a.txt", "b.txt"].map(|name| place.project.join(name));
        place.write(&a, "old\n");
        fs::hard_link(&a, &b).unwrap();
        place.sh("echo new >> a.txt").output().ok();
        let card = place.json(["diff"]);
        assert_eq!(kinds(&place), ["modified a.txt"]);
        let reason = change(&card, "a.txt")["reason"].as_str().unwrap_or_default().to_owned();
        assert!(reason.contains("hard links"), "{card:#}");
        let shown = place.landbox(["land"]).output().text();
        assert!(shown.contains("hard links"), "{shown}");
        land(&place);
        assert_eq!((read(&a).as_str(), read(&b).as_str()), ("old\nnew\n", "old\n"));
        // Two files now. (The old one may have a second name still, where undo keeps what the landing displaced.)
        let [a, b] = [&a, &b].map(|path| fs::metadata(path).unwrap());
        assert_eq!(a.nlink(), 1);
        assert_ne!(a.ino(), b.ino());
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn watches_set_before_the_first_write_see_it(world) {
        let place = Place::new(world);
        let out = place.session::<&str, _>([], ["python3", "-c", WATCH]).output().ok();
        assert_eq!(out.text(), "True\n");
    }

    // The limit that the README names: the host writes to another file than the one watched.
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn watches_are_not_told_of_what_the_host_changes_though_it_can_be_read(world) {
        let place = Place::new(world);
        let mut live = place.session::<&str, _>([], ["python3", "-c", LISTEN]).stdin_open().start();
        live.expect("ready");
        let mut file = fs::File::options().append(true).open(place.project.join("README.md")).unwrap();
        std::io::Write::write_all(&mut file, b"host\n").unwrap();
        live.write(b"\n");
        let said = live.wait().ok().text();
        // Nor has fuse-overlayfs the new size, once it has looked.
        assert!(said == "ready\n0 1\n" || world.overlay == Overlay::Fuse && said == "ready\n0 0\n", "{said}");
    }

    // The limit that the README names: the map is of the file below.
    [user_kernel, root_kernel]
    fn a_descriptor_sees_the_first_write_and_a_read_only_map_does_not(world) {
        assert_eq!(mapped(&Place::new(world)), "new! old!\n");
    }

    // The limit that the README names: there the descriptor is, too.
    [user_fuse, root_fuse]
    fn a_descriptor_does_not_see_the_first_write_either(world) {
        assert_eq!(mapped(&Place::new(world)), "old! old!\n");
    }

    // What a kernel without the right options refuses only at the first use.
    [user_kernel, root_kernel]
    fn folders_are_replaced_renamed_and_removed_and_stay_so_when_resumed(world) {
        let place = Place::new(world);
        place.write(place.project.join("d/a"), "a\n");
        place.write(place.project.join("d/b"), "b\n");
        let script = "rm -rf d && mkdir d && echo x > d/x && mv d e && rm README.md && rm -rf src && mkdir src";
        place.sh(script).output().ok();
        let wanted = [
            "deleted README.md",
            "deleted d/a",
            "deleted d/b",
            "added e/x",
            "deleted src/deep/er/file.txt",
            "deleted src/main.py",
        ];
        assert_eq!(kinds(&place), wanted);
        let id = place.json(["show"])["id"].as_str().unwrap().to_owned();
        let out = place.landbox(["resume", &id, "--", "sh", "-c", "ls . e src; cat e/x"]).output().ok();
        assert_eq!(out.text(), ".:\ne\nlink\nsrc\n\ne:\nx\n\nsrc:\nx\n");
        assert_eq!(kinds(&place), wanted);
        land(&place);
        assert!(!place.project.join("d").exists() && place.project.join("src").is_dir());
        assert_eq!(read(place.project.join("e/x")), "x\n");
    }

    // The limit that the README names: it is fuse-overlayfs that forgets. What counts is that the review says what is seen.
    [user_fuse, root_fuse]
    fn a_folder_that_replaced_a_real_one_may_bring_it_back_when_renamed_and_the_review_agrees(world) {
        let place = Place::new(world);
        place.write(place.project.join("d/a"), "a\n");
        let out = place.sh("rm -rf d && mkdir d && echo x > d/x && mv d e; ls d || true").output().ok();
        let is_back = out.text() == "a\n";
        let wanted = ["deleted d/a", "added e/x"];
        assert_eq!(kinds(&place), wanted[usize::from(is_back)..], "{}", out.text());
        land(&place);
        assert_eq!(place.project.join("d/a").exists(), is_back);
        assert_eq!(read(place.project.join("e/x")), "x\n");
    }
}

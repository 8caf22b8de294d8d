#!/usr/bin/env python3
"""Landbox against named peers, interleaved in one run, as an ordinary user.

  bench.py [--bin DIR] [--work DIR] [--rounds N] [--files N] [--json FILE] [GROUP ..]

GROUP: start storm end files edits land apply pty network deaths (all of these when none is named), memory packaged (as root).
Every row is a median over the rounds with minimum and maximum; the ratio is the median of the
per-round ratios to the group's peer. Absolute times depend on the machine: ratios count.
"""
import argparse
import contextlib
import json
import os
import pty
import resource
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import termios
import time
import tty

HERE = os.path.dirname(os.path.realpath(__file__))
DEVNULL = subprocess.DEVNULL
BWRAP = ["bwrap", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
         "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]


class Bench:
    def __init__(self, args):
        self.bin = os.path.realpath(args.bin)
        self.landbox = os.path.join(self.bin, "landbox")
        self.io = os.path.join(self.bin, "bench-io")
        self.rounds = args.rounds
        self.files = args.files
        self.real = args.tree and os.path.abspath(args.tree)
        self.work = os.path.realpath(args.work)
        for folder in (self.bin, self.work):
            if any((folder + "/").startswith(private) for private in ("/tmp/", "/var/tmp/", "/run/")):
                sys.exit("%s: a session has a folder of its own there; use --bin and --work elsewhere" % folder)
        os.makedirs(self.work, exist_ok=True)
        self.home = os.path.join(self.work, "home")
        self.state = os.path.join(self.work, "state")
        self.project = os.path.join(self.work, "project")
        for folder in (self.home, self.project):
            os.makedirs(folder, exist_ok=True)
        # Beside the trees: the checkout itself may lie where the ordinary user can't read.
        self.changes = os.path.join(self.work, "changes.py")
        shutil.copyfile(os.path.join(HERE, "changes.py"), self.changes)
        self.env = {"PATH": os.environ["PATH"], "HOME": self.home, "TERM": "xterm", "LANG": "C.UTF-8",
                    "LANDBOX_STATE_DIR": self.state, "GIT_OPTIONAL_LOCKS": "0",
                    "GIT_CONFIG_NOSYSTEM": "1"}
        self.user = {}
        if args.user is not None:
            self.user = {"user": args.user, "group": args.user, "extra_groups": []}
            for folder in (self.work, self.home, self.project):
                os.chown(folder, args.user, args.user)
        self.results = {}

    # -- timing -------------------------------------------------------------------------------

    def spawn_ms(self, argv, cwd=None):
        begin = time.perf_counter()
        done = subprocess.run(argv, env=self.env, cwd=cwd or self.project, stdin=DEVNULL,
                              stdout=DEVNULL, stderr=subprocess.PIPE, check=False, **self.user)
        took = (time.perf_counter() - begin) * 1e3
        if done.returncode:
            sys.exit("%s: exit %d: %s" % (argv, done.returncode, done.stderr.decode()[-600:]))
        return took

    def rows(self, group, peer, cells, rounds=None, unit="ms", warm=1, turns=False):
        """cells: name -> function giving one figure. Interleaved, with `turns` every other round backwards; prints and
        keeps a table."""
        taken = {name: [] for name in cells}
        for number in range((rounds or self.rounds) + warm):
            order = list(cells.items())
            for name, cell in reversed(order) if turns and number % 2 else order:
                figure = cell()
                if number >= warm:
                    taken[name].append(figure)
        print("\n== %s" % group)
        print("%-44s %10s %10s %10s %9s" % ("", "median " + unit, "min", "max", "ratio"))
        table = {}
        for name, figures in taken.items():
            ratio = statistics.median(a / b for a, b in zip(figures, taken[peer]))
            table[name] = {"median": statistics.median(figures), "min": min(figures),
                           "max": max(figures), "ratio": ratio}
            print("%-44s %10.2f %10.2f %10.2f %8.2fx" % (
                name, table[name]["median"], table[name]["min"], table[name]["max"], ratio), flush=True)
        self.results[group] = {"peer": peer, "unit": unit, "rows": table}

    def sweep(self):
        """Removes every session, so that the state folder stays small between groups."""
        listing = json.loads(subprocess.run([self.landbox, "--json", "ls"], env=self.env, cwd=self.project,
                                            stdout=subprocess.PIPE, stderr=DEVNULL, check=True).stdout)
        for session in listing["sessions"]:
            if not (session["landing"] or {}).get("discarded_at"):
                subprocess.run([self.landbox, "discard", session["id"], "--yes"], env=self.env,
                               cwd=self.project, stdout=DEVNULL, stderr=DEVNULL, check=False)
        subprocess.run([self.landbox, "gc"], env=self.env, cwd=self.project, stdin=DEVNULL,
                       stdout=DEVNULL, stderr=DEVNULL, check=False)

    def run_in(self, script, *flags):
        return [self.landbox, "-q", "run", *flags, "--", "sh", "-c", script]

    # -- groups -------------------------------------------------------------------------------

    def start(self):
        cells = {
            "bwrap (net shared)": lambda: self.spawn_ms(BWRAP + ["/bin/true"]),
            "landbox run": lambda: self.spawn_ms([self.landbox, "-q", "run", "--", "/bin/true"]),
        }
        self.rows("start to exit of true, network shared", "bwrap (net shared)", cells,
                  max(self.rounds, 40), warm=3)
        self.sweep()
        off = os.path.join(self.work, "net-off.json")
        with open(off, "w", encoding="utf-8") as out:
            json.dump([{"name": "off", "sandboxNetwork": False}], out)
        cells = {
            "bwrap --unshare-net": lambda: self.spawn_ms(BWRAP + ["--unshare-net", "/bin/true"]),
            "landbox run --network off": lambda: self.spawn_ms(
                [self.landbox, "-q", "run", "--network", "off", "--", "/bin/true"]),
        }
        self.rows("start to exit of true, own network", "bwrap --unshare-net", cells,
                  max(self.rounds, 40), warm=3)
        self.sweep()
        self.own_part()

    def own_part(self):
        """What the helper takes of a start: `bench-io` stands between it and the controller, with a watch."""
        folder = os.path.join(self.work, "between")
        os.makedirs(os.path.join(folder, "real"), exist_ok=True)
        shutil.copy(self.landbox, folder)
        shutil.copy(self.io, os.path.join(folder, "landbox-helper"))
        shutil.copy(os.path.join(self.bin, "landbox-helper"), os.path.join(folder, "real"))
        log = os.path.join(self.home, "own-part")
        last = [0, 0]

        def own():
            """Both figures of one start."""
            with contextlib.suppress(FileNotFoundError):
                os.unlink(log)
            self.spawn_ms([os.path.join(folder, "landbox"), "-q", "run", "--", "/bin/true"])
            # The one between goes on until the helper's very end, which nobody waits for.
            for _ in range(1000):
                with contextlib.suppress(FileNotFoundError), open(log, encoding="ascii") as file:
                    if words := file.read().split():
                        last[:] = [int(word) / 1e3 for word in words]
                        return last[0]
                time.sleep(0.001)
            sys.exit("nothing said how long the helper took")
        self.rows("the helper's own part of a start, network shared", "bwrap (net shared)", {
            "bwrap (net shared)": lambda: self.spawn_ms(BWRAP + ["/bin/true"]),
            "landbox-helper": own,
            "the same, waiting for the controller included": lambda: last[1],
        }, max(self.rounds, 40), warm=3)
        shutil.rmtree(folder)
        self.sweep()

    def at_once_ms(self, argv):
        # What undoes the namespaces of the row before, the kernel does when it finds the time: not in this row's.
        time.sleep(0.5)
        begin = time.perf_counter()
        children = [subprocess.Popen(argv, env=self.env, cwd=self.project, stdin=DEVNULL,
                                     stdout=DEVNULL, stderr=DEVNULL) for _ in range(100)]
        failed = sum(child.wait() != 0 for child in children)
        if failed:
            sys.exit("%d of 100 starts failed: %s" % (failed, argv))
        return (time.perf_counter() - begin) * 1e3

    def storm(self):
        for title, peer, own, ours in (
                ("network shared", "bwrap (net shared)", [], []),
                ("own network", "bwrap --unshare-net", ["--unshare-net"], ["--network", "off"])):
            self.rows("100 starts at once, until all have ended, " + title, peer, {
                peer: lambda own=own: self.at_once_ms(BWRAP + own + ["/bin/true"]),
                " ".join(["landbox run"] + ours): lambda ours=ours: self.at_once_ms(
                    [self.landbox, "-q", "run"] + ours + ["--", "/bin/true"]),
            }, max(self.rounds, 9), turns=True)
        self.sweep()

    def end(self):
        """From the task's last breath to landbox's exit, with other people's dirty pages about."""
        dirty = os.path.join(self.work, "dirty")

        def ended(argv):
            with open(dirty, "wb") as out:
                for _ in range(512):
                    out.write(os.urandom(4096) * 256)
            child = subprocess.Popen(argv, env=self.env, cwd=self.project, stdin=DEVNULL,
                                     stdout=subprocess.PIPE, stderr=DEVNULL)
            child.stdout.read(2)            # "e\n": written just before the task ends
            begin = time.perf_counter()
            child.wait()
            took = (time.perf_counter() - begin) * 1e3
            child.stdout.close()
            return took
        say = "echo x > made; echo e"
        self.rows("end of session with 512 MiB of foreign dirty pages", "sh (no sandbox)", {
            "sh (no sandbox)": lambda: ended(["sh", "-c", say]),
            "landbox run": lambda: ended([self.landbox, "-q", "run", "--", "sh", "-c", say]),
        }, 5)
        os.unlink(dirty)
        self.sweep()

    def tree(self, count):
        """A git repository of `count` source files, made once."""
        top = os.path.join(self.work, "tree-%d" % count)
        if os.path.isdir(os.path.join(top, ".git")):
            return top
        shutil.rmtree(top, ignore_errors=True)
        body = "".join("static int field_%d(struct thing *t) { return t->field[%d] + %d; }\n" % (i, i, i * 7)
                       for i in range(120))
        for i in range(count):
            folder = os.path.join(top, "dir%d" % (i // 1000), "sub%d" % (i // 25 % 40))
            if i % 25 == 0:
                os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, "file%d.c" % i), "w", encoding="ascii") as out:
                out.write("/* file %d */\n" % i)
                out.write(body[: 1500 + (i * 37) % 6000])
                out.write("\n")
        git = ["git", "-C", top, "-c", "user.name=n", "-c", "user.email=a@b.c", "-c", "gc.auto=0"]
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "base"]):
            subprocess.run(git + words, env=self.env, check=True, stdout=DEVNULL)
        # Else git would read every file of the same second again, each time.
        time.sleep(2)
        subprocess.run(git + ["status"], env={**self.env, "GIT_OPTIONAL_LOCKS": "1"}, check=True, stdout=DEVNULL)
        return top

    def inside(self, name, script, cwd, rounds):
        """Times `script` inside one session `rounds` times: mount time is not in it."""
        timed = ("for i in $(seq %d); do a=$(date +%%s%%N); %s >/dev/null 2>&1; b=$(date +%%s%%N); "
                 "echo $(( (b-a)/1000 )); done" % (rounds, script))
        # The floor: the kernel's overlay alone, with the caller's own user id (else git would read every file again).
        room = tempfile.mkdtemp(dir=self.work)
        over = ("mkdir $0/up $0/wk && mount -t overlay o -o lowerdir=$PWD,upperdir=$0/up,workdir=$0/wk,userxattr,volatile "
                "$PWD && cd $PWD && exec unshare -U --map-user=%d --map-group=%d sh -c \"$1\"" % (os.getuid(), os.getgid()))
        argv = {"native": ["sh", "-c", timed],
                "plain overlay": ["unshare", "-Urm", "--propagation", "private", "sh", "-c", over, room, timed],
                "landbox": [self.landbox, "-q", "run", "--", "sh", "-c", timed],
                "landbox --overlay fuse": [self.landbox, "-q", "run", "--overlay", "fuse", "--", "sh", "-c", timed],
                }[name]
        done = subprocess.run(argv, env=self.env, cwd=cwd, stdin=DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False)
        if done.returncode:
            sys.exit("%s: %s" % (argv, done.stderr.decode()[-600:]))
        subprocess.run(["chmod", "-R", "u+rwx", room], check=True)
        shutil.rmtree(room)
        return statistics.median(int(line) / 1e3 for line in done.stdout.split())

    def file_work(self):
        top = self.real or self.tree(self.files)
        title_of = os.path.basename(top) if self.real else "tree of %d files" % self.files
        word = "kmem_cache_create" if self.real else "field[77]"
        work = {"git status": "git status", "rg -c": "rg -j2 -c -F '%s' . | wc -l" % word,
                "ls -lR": "ls -lR . | wc -l",
                "10,000 new files": "%s write t.$(date +%%N) 10000 1024" % self.io}
        for title, script in work.items():
            names = ["native", "plain overlay", "landbox"]
            if title != "10,000 new files":
                names.append("landbox --overlay fuse")
            inner = 1 if "new" in title else 3
            self.rows("%s, %s" % (title, title_of), "native", {
                name: (lambda name=name: self.inside(name, script, top, inner)) for name in names},
                min(self.rounds, 5))
            for entry in os.listdir(top):
                if entry.startswith("t."):
                    shutil.rmtree(os.path.join(top, entry))
            self.sweep()

    def edits(self):
        base = os.path.join(self.work, "edits")
        shutil.rmtree(base, ignore_errors=True)
        low = os.path.join(base, "low")
        subprocess.run([self.io, "write", low, "1000", "8192"], check=True)
        os.sync()
        counter = [0]

        def overlay(options):
            counter[0] += 1
            room = os.path.join(base, "o%d" % counter[0])
            for sub in ("up", "wk"):
                os.makedirs(os.path.join(room, sub))
            script = ("mount -t overlay o -o lowerdir=%s,upperdir=%s/up,workdir=%s/wk,userxattr%s %s && "
                      "a=$(date +%%s%%N); %s edit %s 1000; b=$(date +%%s%%N); echo $(( (b-a)/1000 ))"
                      % (low, room, room, options, low, self.io, low))
            out = subprocess.run(["unshare", "-Urm", "--propagation", "private", "sh", "-c", script],
                                 env=self.env, check=True, stdout=subprocess.PIPE).stdout
            subprocess.run(["chmod", "-R", "u+rwx", room], check=True)
            shutil.rmtree(room)
            return int(out) / 1e3
        self.rows("1,000 small edits of existing files", "plain overlay", {
            "plain overlay": lambda: overlay(""),
            "landbox": lambda: self.inside("landbox", "%s edit . 1000" % self.io, low, 1),
        }, min(self.rounds, 5))
        self.sweep()

    def land(self):
        mk = self.changes
        sizes = (10000, self.files)
        for count in sizes:
            subprocess.run([self.landbox, "-q", "run", "--name", "size-%d" % count, "--", "python3", mk, ".", "100"],
                           env=self.env, cwd=self.tree(count), check=True, stdin=DEVNULL)
        self.rows("card + patch of 100 changes, by size of the tree", "%d files" % sizes[0], {
            "%d files" % count: (lambda count=count: self.spawn_ms(
                [self.landbox, "-q", "land", "size-%d" % count, "--patch", os.path.join(self.work, "p.patch")]))
            for count in sizes}, max(self.rounds, 15))
        self.sweep()
        for count, changes in ((self.files, 100), (self.files, 10000)):
            top = self.tree(count)
            subprocess.run([self.landbox, "-q", "run", "--name", "land", "--", "python3", mk, top, str(changes)],
                           env=self.env, cwd=top, check=True, stdin=DEVNULL)
            # The peer runs in the merged view of a session of its own, over the same changes.
            # Nothing of one round helps the next: neither its index nor the objects it wrote.
            git = ("mkdir /tmp/o$i && cp .git/index /tmp/i && export GIT_INDEX_FILE=/tmp/i "
                   "GIT_OBJECT_DIRECTORY=/tmp/o$i GIT_ALTERNATE_OBJECT_DIRECTORIES=$PWD/.git/objects && "
                   "git add -A && git diff --cached --binary HEAD > /tmp/p")
            script = ("python3 %s %s %d && for i in 1 2 3; do a=$(date +%%s%%N); ( %s ); "
                      "b=$(date +%%s%%N); echo $(( (b-a)/1000 )); done" % (mk, top, changes, git))

            def merged_git():
                done = subprocess.run(self.run_in(script), env=self.env, cwd=top, check=False, stdin=DEVNULL,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                if done.returncode:
                    sys.exit("git: exit %d: %s" % (done.returncode, done.stderr.decode()[-600:]))
                return statistics.median(int(line) / 1e3 for line in done.stdout.split())
            patch = os.path.join(self.work, "p.patch")
            self.rows("card + patch, %d changes in a tree of %d files" % (changes, count),
                      "git add -A + git diff --cached", {
                          "git add -A + git diff --cached": merged_git,
                          "landbox land --patch": lambda: self.spawn_ms(
                              [self.landbox, "-q", "land", "land", "--patch", patch], cwd=top),
                          "landbox --json land (card alone)": lambda: self.spawn_ms(
                              [self.landbox, "--json", "land", "land"], cwd=top),
                      }, min(self.rounds, 5))
            self.sweep()

    def peak_kib(self, argv, cwd):
        """Largest memory of one run."""
        child = subprocess.Popen(argv, env=self.env, cwd=cwd, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            sys.exit("%s: exit %d" % (argv, child.returncode))
        return usage.ru_maxrss

    def apply(self):
        """Both go there and back in each round: the tree is the same again before the next one."""
        for count, changes in ((1000, 100), (self.files, 100), (self.files, 10000)):
            top = self.tree(count)
            patch, copy = os.path.join(self.work, "p.patch"), os.path.join(self.work, "copy")
            subprocess.run([self.landbox, "-q", "run", "--name", "land", "--", "python3", self.changes, top, str(changes)],
                           env=self.env, cwd=top, check=True, stdin=DEVNULL)
            subprocess.run([self.landbox, "-q", "land", "land", "--patch", patch], env=self.env, cwd=top, check=True)
            land = [self.landbox, "-q", "land", "land", "--apply", "--yes"]
            git = ["git", "apply", patch]
            # What copying would copy: every new and every changed file, in folders of its own.
            subprocess.run(git, env=self.env, cwd=top, check=True)
            names = subprocess.run(["git", "ls-files", "-z", "--modified", "--others"], env=self.env, cwd=top,
                                   check=True, stdout=subprocess.PIPE).stdout.split(b"\0")
            for name in {name for name in names if name and os.path.exists(os.path.join(os.fsencode(top), name))}:
                place = os.path.join(os.fsencode(copy), name)
                os.makedirs(os.path.dirname(place), exist_ok=True)
                shutil.copy2(os.path.join(os.fsencode(top), name), place)
            subprocess.run(git + ["-R"], env=self.env, cwd=top, check=True)

            def there():
                took = self.spawn_ms(git, cwd=top)
                self.git_diff = self.spawn_ms(["git", "diff", "--binary", "HEAD"], cwd=top)
                subprocess.run(git + ["-R"], env=self.env, cwd=top, check=True)
                return took

            def copied():
                target = os.path.join(self.work, "copied")
                shutil.rmtree(target, ignore_errors=True)
                return self.spawn_ms(["cp", "-a", copy, target])
            self.rows("apply of %d changes in a tree of %d files" % (changes, count), "git apply", {
                "git apply": there,
                "git diff, for the review": lambda: self.git_diff,
                "landbox --json land (card)": lambda: self.spawn_ms([self.landbox, "--json", "land", "land"], cwd=top),
                "landbox land --apply, on disk": lambda: self.spawn_ms(land, cwd=top),
                "landbox undo, on disk": lambda: self.spawn_ms([self.landbox, "-q", "undo", "land"], cwd=top),
                "cp -a of the new files": copied,
            }, min(self.rounds, 5))
            cells = {"git apply": lambda: self.peak_kib(git, top)}
            cells["landbox land --apply"] = lambda: self.peak_kib(land, top)
            cells["landbox undo"] = lambda: self.peak_kib([self.landbox, "-q", "undo", "land"], top)
            peaks = {}
            for name, cell in cells.items():
                peaks[name] = cell()
                if name == "git apply":
                    subprocess.run(git + ["-R"], env=self.env, cwd=top, check=True)
            for name, peak in peaks.items():
                print("%-44s %10d KiB %29.2fx" % (name + ", memory", peak, peak / peaks["git apply"]), flush=True)
            self.results["memory of apply, %d changes in %d files" % (changes, count)] = peaks
            shutil.rmtree(copy, ignore_errors=True)
            self.sweep()

    # -- terminals ----------------------------------------------------------------------------

    def on_pty(self, argv):
        pid, master = pty.fork()
        if pid == 0:
            os.chdir(self.project)
            try:
                os.execvpe(argv[0], argv, self.env)
            finally:
                os._exit(127)
        return pid, master

    def throughput(self, argv):
        begin = time.perf_counter()
        pid, master = self.on_pty(argv)
        seen = 0
        while True:
            try:
                piece = os.read(master, 1 << 16)
            except OSError:
                break
            if not piece:
                break
            seen += len(piece)
        took = time.perf_counter() - begin
        os.waitpid(pid, 0)
        os.close(master)
        if seen < 100_000_000:
            sys.exit("%s: only %d bytes arrived" % (argv, seen))
        return 100 / took

    def echo(self, argv):
        pid, master = self.on_pty(argv)
        tty.setraw(master, termios.TCSANOW)
        seen = b""
        while b"READY" not in seen:
            seen += os.read(master, 4096)
        time.sleep(0.3)
        figures = []
        for i in range(300):
            key = bytes([97 + i % 26])
            while select.select([master], [], [], 0)[0]:
                os.read(master, 4096)
            begin = time.perf_counter()
            os.write(master, key)
            got = b""
            while key not in got:
                if not select.select([master], [], [], 2)[0]:
                    sys.exit("%s: a key was not echoed" % argv)
                got += os.read(master, 4096)
            figures.append((time.perf_counter() - begin) * 1e6)
            time.sleep(0.002)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(master)
        return statistics.median(figures)

    def pty(self):
        gen = "%s lines 100000000" % self.io
        self.rows("100 MB of lines through a terminal (higher is better)", "script", {
            "no relay": lambda: self.throughput(self.io.split() + ["lines", "100000000"]),
            "script": lambda: self.throughput(["script", "-q", "-c", gen, "/dev/null"]),
            "landbox run": lambda: self.throughput([self.landbox, "-q", "run", "--", self.io, "lines", "100000000"]),
        }, 3, unit="MB/s")
        cat = "stty raw -echo; echo READY; exec cat"
        self.rows("echo of one key", "script", {
            "script": lambda: self.echo(["script", "-q", "-c", cat, "/dev/null"]),
            "landbox run": lambda: self.echo([self.landbox, "-q", "run", "--", "sh", "-c", cat]),
        }, 3, unit="us")
        self.sweep()

    # -- network ------------------------------------------------------------------------------

    def policy(self, name, public, private):
        path = os.path.join(self.work, name + ".json")
        with open(path, "w", encoding="utf-8") as out:
            json.dump({"version": 1, "public": public, "private": private}, out)
        return path

    @staticmethod
    def hosts(first, count):
        """Rules for so many single addresses, with 16 ports each."""
        hosts = ["%s.%d.%d" % (first, i // 16, 1 + i % 16 * 7) for i in range(count)]
        return [{"cidr": host, "protocol": "tcp", "ports": PORTS} for host in hosts]

    def network(self):
        listed = self.hosts("203.1", 255) + [{"cidr": SERVER, "protocol": "tcp", "ports": PORTS}]
        full = self.policy("full", {"mode": "allowlist", "rules": listed},
                           {"mode": "allowlist", "rules": self.hosts("10.77", 256)})
        free = self.policy("free", {"mode": "allow"}, {"mode": "allow"})
        true = lambda *words: [self.landbox, "-q", "run", *words, "--", "/bin/true"]
        self.rows("start to exit of true under a policy, link ready", "bwrap --unshare-net", {
            "bwrap --unshare-net": lambda: self.spawn_ms(BWRAP + ["--unshare-net", "/bin/true"]),
            "landbox run --network off": lambda: self.spawn_ms(true("--network", "off")),
            "landbox run --network POLICY, no rules": lambda: self.spawn_ms(true("--network", free)),
            "landbox run --network POLICY, 2 x 256 x 16": lambda: self.spawn_ms(true("--network", full)),
        }, max(self.rounds, 40), warm=3)
        self.sweep()

        def with_load():
            """An empty namespace, and what the rules add to a start, measured right after each other."""
            empty = self.spawn_ms(["unshare", "-Urn", "/bin/true"])
            pairs = [(self.spawn_ms(true("--network", free)), self.spawn_ms(true("--network", full)))
                     for _ in range(5)]
            return empty + statistics.median(loaded - plain for plain, loaded in pairs)
        self.rows("loading 2 x 256 hosts x 16 ports, over an empty namespace", "unshare -Urn true", {
            "unshare -Urn true": lambda: self.spawn_ms(["unshare", "-Urn", "/bin/true"]),
            "the same and the rules": with_load,
        }, max(self.rounds, 15))
        self.sweep()

        self.rows("100 starts under a policy at once, until all have ended", "bwrap --unshare-net", {
            "bwrap --unshare-net": lambda: self.at_once_ms(BWRAP + ["--unshare-net", "/bin/true"]),
            "landbox run --network POLICY": lambda: self.at_once_ms(true("--network", full)),
        }, 3)
        self.sweep()
        with Outer(self) as outer, apart(outer.server.pid):
            # Many short rounds: one figure of such a stream is off by a third as easily as not.
            for title, words, unit, higher in (
                    ("outbound", ["send", SERVER, str(SERVER_PORT), "500"], "Mbit/s", True),
                    ("inbound", ["receive", SERVER, str(SERVER_PORT), "500"], "Mbit/s", True),
                    ("one connection", ["connect", SERVER, str(SERVER_PORT), "300"], "us", False)):
                work = [self.io] + words
                session = lambda policy: outer.figure(
                    [self.landbox, "-q", "run", "--network", policy, "--"] + work)
                self.rows("%s%s" % (title, " (higher is better)" if higher else ""), "slirp4netns, MTU 65520", {
                    "slirp4netns, MTU 65520": lambda: outer.bare(65520, work),
                    "slirp4netns, its default MTU": lambda: outer.bare(1500, work),
                    "landbox, no rules": lambda: session(free),
                    "landbox, 2 x 256 x 16": lambda: session(full),
                }, max(self.rounds, 24), unit=unit, warm=2, turns=True)
        self.sweep()

    @staticmethod
    def called(pid):
        try:
            with open("/proc/%d/comm" % pid, encoding="utf-8") as file:
                return file.read().strip()
        except OSError:
            return ""

    def outlives_ms(self, argv, victim):
        """Kills one process of a running session, and gives what the task had left after that."""
        task = subprocess.Popen(argv + ["sh", "-c", "echo up; exec sleep 600"], env=self.env, cwd=self.project,
                                stdin=DEVNULL, stdout=subprocess.PIPE, stderr=DEVNULL)
        said = task.stdout.readline()
        while True:
            names = [(pid, self.called(pid)) for pid in self.family(task.pid)]
            sleeper = [pid for pid, name in names if name == "sleep"]
            found = task.pid if victim is None else next((pid for pid, name in names if name == victim), None)
            if said != b"up\n" or (sleeper and found):
                break
        if said != b"up\n":
            sys.exit("%s: did not start" % argv)
        ends = select.poll()
        left = os.pidfd_open(sleeper[0])
        ends.register(left, select.POLLIN)
        begin = time.perf_counter()
        os.kill(found, signal.SIGKILL)
        ended = ends.poll(30000)
        took = (time.perf_counter() - begin) * 1e3
        os.close(left)
        if not ended:
            sys.exit("%s: the task outlived its %s by half a minute" % (argv, victim))
        task.wait()
        return took

    def deaths(self):
        free = self.policy("free", {"mode": "allow"}, {"mode": "allow"})
        ours = [self.landbox, "-q", "run", "--network", free, "--"]
        # Killed: what started it.
        peer = ["sh", "-c", '"$@"; exit', "sh"] + BWRAP + ["--unshare-net", "--die-with-parent"]
        self.rows("from a kill to the end of the task", "bwrap --die-with-parent", {
            "bwrap --die-with-parent": lambda: self.outlives_ms(peer, None),
            "landbox, the link": lambda: self.outlives_ms(ours, "slirp4netns"),
            "landbox, the monitor": lambda: self.outlives_ms(ours, "landbox-helper"),
            "landbox, the controller": lambda: self.outlives_ms(ours, None),
        }, max(self.rounds, 24), warm=2)
        self.sweep()

    # -- memory -------------------------------------------------------------------------------

    @staticmethod
    def family(pid):
        try:
            with open("/proc/%d/task/%d/children" % (pid, pid), encoding="ascii") as file:
                children = [int(word) for word in file.read().split()]
        except OSError:
            children = []
        return [pid] + [p for child in children for p in Bench.family(child)]

    @staticmethod
    def pss(pid):
        with open("/proc/%d/smaps_rollup" % pid, encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("Pss:"))

    def packaged(self):
        """Needs root to give a copy of the helper its capability, and the user's key its place among those that then count."""
        if os.getuid():
            sys.exit("packaged: run this group as root, with --user UID")
        cells = {}
        for name in ("unprivileged", "cap_sys_admin=p"):
            folder = os.path.join(self.work, name)
            os.makedirs(folder, exist_ok=True)
            for program in ("landbox", "landbox-helper"):
                shutil.copy(os.path.join(self.bin, program), folder)
            argv = [os.path.join(folder, "landbox"), "-q", "run", "--", "/bin/true"]
            cells["landbox run, helper " + name] = lambda argv=argv: self.spawn_ms(argv)
        helper = os.path.join(self.work, "cap_sys_admin=p", "landbox-helper")
        subprocess.run(["setcap", "cap_sys_admin=p", helper], check=True)
        cells["landbox run, helper unprivileged"]()
        with self.enrolled():
            self.rows("start to exit of true, the packaged helper", "landbox run, helper unprivileged", cells,
                      max(self.rounds, 40), warm=3, turns=True)

    @contextlib.contextmanager
    def enrolled(self):
        """With the user's key among the machine's; without it, and what was made for it, afterwards."""
        mine, machine = os.path.join(self.home, ".config/landbox/trusted.d"), "/etc/landbox/trusted.d"
        made = [folder for folder in (machine, os.path.dirname(machine)) if not os.path.isdir(folder)]
        os.makedirs(machine, exist_ok=True)
        key, = os.listdir(mine)
        with open(os.path.join(mine, key), encoding="utf-8") as file:
            words = file.read().split()
        audit = [os.path.join(self.bin, "landbox-audit"), "trust"]
        subprocess.run([*audit, "add", *words], stdout=DEVNULL, check=True)
        try:
            yield
        finally:
            subprocess.run([*audit, "remove", key.removesuffix(".pub")], stdout=DEVNULL, check=True)
            for folder in made:
                os.rmdir(folder)

    def memory(self):
        """Needs root to read the smaps of non-dumpable processes; the sessions are an ordinary user's."""
        if os.getuid():
            sys.exit("memory: run this group as root, with --user UID")
        def hold(argv, names):
            children = [subprocess.Popen(argv, env=self.env, cwd=self.project, stdin=DEVNULL, stdout=DEVNULL,
                                         stderr=DEVNULL, **self.user) for _ in range(8)]
            time.sleep(2)
            found = []
            for child in children:
                total = 0
                for pid in self.family(child.pid):
                    with open("/proc/%d/comm" % pid, encoding="utf-8") as file:
                        if file.read().strip() in names:
                            total += self.pss(pid)
                found.append(total)
            for child in children:
                child.terminate()
            for child in children:
                child.wait()
            return statistics.median(found)
        sleep = ["sleep", "60"]
        run = [self.landbox, "-q", "run", "--"] + sleep
        self.rows("memory of one of eight sessions (PSS)", "bwrap: monitor + pid 1", {
            "bwrap: monitor + pid 1": lambda: hold(BWRAP + ["--die-with-parent"] + sleep, ("bwrap",)),
            "landbox: monitor + init": lambda: hold(run, ("landbox-helper",)),
            "landbox: controller": lambda: hold(run, ("landbox",)),
        }, 2, unit="KiB", warm=0)


SERVER, SERVER_PORT = "93.184.216.34", 18087
PORTS = list(range(2000, 2015)) + [SERVER_PORT]


@contextlib.contextmanager
def apart(server):
    """The server on a processor of its own, link and task together on another: where three busy processes share two
    processors it is chance who shares with whom, and that is worth more than any rule."""
    ours = sorted(os.sched_getaffinity(0))
    if len(ours) > 1:
        os.sched_setaffinity(server, ours[:1])
        os.sched_setaffinity(0, ours[1:2])
    try:
        yield
    finally:
        os.sched_setaffinity(0, ours)


class Outer:
    """A network of the bench's own, in which every address is local; a server on one of them. No packet leaves."""

    def __init__(self, bench):
        self.bench = bench

    def __enter__(self):
        # Thirty thousand connections to one address within a minute: each keeps its port for that long.
        make = ("echo 1024 65535 >/proc/sys/net/ipv4/ip_local_port_range && ip link set lo up"
                " && ip route add local 0.0.0.0/0 dev lo && ip -6 route add local ::/0 dev lo && echo made && exec cat")
        self.holder = subprocess.Popen(
            ["unshare", "--user", "--map-current-user", "--keep-caps", "--net", "sh", "-c", make],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self.holder.stdout.readline() != b"made\n":
            sys.exit("the network for the bench could not be made")
        self.enter = ["nsenter", "--target=%d" % self.holder.pid, "--user", "--net", "--preserve-credentials", "--"]
        self.server = subprocess.Popen(self.enter + [self.bench.io, "serve", SERVER, str(SERVER_PORT)],
                                       stdout=subprocess.PIPE)
        self.server.stdout.readline()
        return self

    def __exit__(self, *_):
        self.server.kill()
        self.server.wait()
        self.holder.stdin.close()
        self.holder.wait()

    def figure(self, argv):
        done = subprocess.run(self.enter + argv, env=self.bench.env, cwd=self.bench.project, stdin=DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        if done.returncode:
            sys.exit("%s: exit %d: %s" % (argv, done.returncode, done.stderr.decode()[-600:]))
        return float(done.stdout)

    def bare(self, mtu, argv):
        """The same work behind slirp4netns alone, without rules."""
        task = subprocess.Popen(self.enter + ["unshare", "-Urn", "sh", "-c", "read go; exec \"$@\"", "sh"] + argv,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        outer = os.readlink("/proc/%d/ns/net" % self.holder.pid)
        # The namespace is made, and its map written, once it is `sh` that runs there.
        while True:
            with open("/proc/%d/comm" % task.pid, encoding="utf-8") as file:
                if file.read() == "sh\n" and os.readlink("/proc/%d/ns/net" % task.pid) != outer:
                    break
            time.sleep(0.002)
        ready, said = os.pipe()
        link = subprocess.Popen(
            self.enter + ["slirp4netns", "--configure", "--mtu=%d" % mtu, "--ready-fd=%d" % said, str(task.pid), "tap0"],
            pass_fds=[said], stdout=DEVNULL, stderr=subprocess.PIPE)
        os.close(said)
        # Also readable once the link has gone without being ready: then nothing comes out.
        if not os.read(ready, 1):
            link.kill()
            task.kill()
            sys.exit("slirp4netns: %s" % link.communicate()[1].decode(errors="replace")[-600:])
        os.close(ready)
        out, _ = task.communicate(b"go\n")
        link.terminate()
        link.communicate()
        if task.returncode:
            sys.exit("%s behind slirp4netns: exit %d" % (argv, task.returncode))
        return float(out)


GROUPS = {"start": Bench.start, "storm": Bench.storm, "end": Bench.end, "files": Bench.file_work,
          "edits": Bench.edits, "land": Bench.land, "apply": Bench.apply, "pty": Bench.pty,
          "network": Bench.network, "deaths": Bench.deaths, "memory": Bench.memory, "packaged": Bench.packaged}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(HERE, "../../target/release"),
                        help="folder with landbox, landbox-helper and bench-io (packaged: and landbox-audit)")
    parser.add_argument("--work", default=None, help="where trees and state go (default: a new folder in ~/.cache)")
    parser.add_argument("--user", type=int, default=None, help="with memory and packaged: run the sessions as this user id")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--files", type=int, default=80000, help="size of the big tree")
    parser.add_argument("--tree", help="for files: this git repository, not one made for the bench")
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, []], metavar="GROUP")
    args = parser.parse_args()
    own = args.work is None
    if own:
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        os.makedirs(cache, exist_ok=True)
        args.work = tempfile.mkdtemp(prefix="landbox-bench-", dir=cache)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    bench = Bench(args)
    print("uid %d, %d cores, kernel %s" % (os.getuid(), os.cpu_count(), os.uname().release))
    try:
        for name in args.groups or [name for name in GROUPS if name not in ("memory", "packaged")]:
            GROUPS[name](bench)
    finally:
        if own:
            subprocess.run(["chmod", "-R", "u+rwx", args.work], check=False)
            shutil.rmtree(args.work, ignore_errors=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as out:
            json.dump(bench.results, out, indent=1)


if __name__ == "__main__":
    main()

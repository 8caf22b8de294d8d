//! Name servers: the policy's are the only ones, whatever the host has, and what they answer opens nothing.

use crate::proxies::{FETCH, public_alone, with};
use landbox_tests::net::{Outer, closed};
use landbox_tests::{Place, seats};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs;

/// Where a name server of the policy listens.
const SERVER: &str = "10.99.0.53";

fn with_dns(rules: Value, servers: &[&str]) -> Value {
    with(rules, "dnsServers", json!(servers))
}

/// Asks two addresses, and two others on the way, by both protocols.
const ASK: &str = "
import socket, struct, sys
q = b'\\0\\7\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\4name\\7example\\0\\0\\1\\0\\1'
def ask(kind, to, port):
    s = socket.socket(socket.AF_INET, kind); s.settimeout(20)
    try:
        s.connect((to, port))
        if kind == socket.SOCK_STREAM:
            s.sendall(struct.pack('>H', len(q)) + q); return len(s.recv(512)) > len(q)
        s.send(q); return len(s.recv(512)) > len(q)
    except OSError as e:
        return e.strerror
for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
    for to, port in (('10.99.0.53', 53), ('10.99.0.54', 53), ('10.99.0.53', 853), ('8.8.8.8', 53)):
        print(ask(kind, to, port))";

seats! {
    fn the_list_of_name_servers_is_the_policys_alone(seat) {
        let before = fs::read("/etc/resolv.conf").ok();
        let outer = Outer::new();
        let place = Place::new(seat.world);
        for servers in [&[] as &[&str], &[SERVER], &["10.99.0.53", "2606:4700::53"]] {
            let rules = with_dns(closed(), servers);
            let said = seat.output(&mut outer.session(&place, &rules, ["cat", "/etc/resolv.conf"]));
            let said = said.expect(0);
            let listed: Vec<String> = said
                .text
                .lines()
                .filter_map(|line| Some(line.strip_prefix("nameserver ")?.trim().to_owned()))
                .collect();
            let addresses = |texts: &[String]| -> Vec<std::net::IpAddr> {
                texts.iter().map(|text| text.parse().unwrap()).collect()
            };
            let wanted: Vec<String> = servers.iter().map(|s| (*s).to_owned()).collect();
            assert_eq!(addresses(&listed), addresses(&wanted), "{}", said.text);
        }
        assert_eq!(fs::read("/etc/resolv.conf").ok(), before, "the host's own list is untouched");
    }

    fn without_a_name_server_a_look_up_fails_at_once_and_asks_nobody(seat) {
        let outer = Outer::new();
        let mut listeners = outer.listen(&[53, 853]);
        let place = Place::new(seat.world);
        // A limit far above a refusal and far below a resolver's patience.
        let words = ["timeout", "--foreground", "4", "getent", "hosts", "secret.example"];
        let said = seat.output(&mut outer.session(&place, &closed(), words)).expect(2);
        assert!(!said.text.contains("secret.example"), "{}", said.text);
        assert!(listeners.counts().is_empty(), "{:?}", listeners.counts());
    }

    fn a_named_server_answers_by_both_protocols_and_no_other_does(seat) {
        let outer = Outer::new();
        let place = Place::new(seat.world);
        let services = outer.services(&place, &["dns:10.99.0.53:53=93.184.216.34"]);
        let mut others = outer.listen(&[853]);
        let rules = with_dns(closed(), &[SERVER]);
        let said = seat.output(&mut outer.session(&place, &rules, ["python3", "-c", ASK]));
        let lines: Vec<String> = said.expect(0).text.lines().map(str::to_owned).collect();
        let works: Vec<bool> = lines.iter().map(|line| line == "True").collect();
        assert_eq!(works, [true, false, false, false, true, false, false, false], "{lines:?}");
        assert_eq!(services.asked_of("dns").len(), 2);
        assert!(others.counts().is_empty());
    }

    fn an_answer_that_changes_from_public_to_private_opens_nothing(seat) {
        let outer = Outer::new();
        let place = Place::new(seat.world);
        let services = outer.services(
            &place,
            &[
                "dns:10.99.0.53:53=93.184.216.34,10.77.0.1",
                "http:93.184.216.34:8080",
                "http:10.77.0.1:8080",
            ],
        );
        let url = "http://changing.example:8080/";
        let rules = with_dns(public_alone(), &[SERVER]);
        let command = ["python3", "-c", FETCH, url, url];
        let said = seat.output(&mut outer.session(&place, &rules, command)).expect(0);
        let lines: Vec<&str> = said.text.lines().collect();
        assert_eq!(lines[0], "hello from 93.184.216.34", "{}", said.text);
        assert!(lines[1].contains("refused"), "{}", said.text);
        assert_eq!(services.asked_of("http").len(), 1);
        let questions = services.asked_of("dns");
        assert_eq!(questions.iter().filter(|line| line.ends_with(" 1")).count(), 2, "{questions:?}");
    }
}

/// The host's list can be a link into `/run` that leads nowhere inside, or nowhere at all, or name a stub on loopback.
fn however_the_host_has_it(make: &str) {
    let outer = Outer::new();
    let place = Place::new(landbox_tests::World::USUAL);
    let script = format!(
        "cp -a /etc {0}/etc; ETC={0}/etc; RUN={0}/run; rm -f $ETC/resolv.conf; mkdir $RUN\n\
         {make}\nmount --bind $RUN /run; mount --bind {0}/etc /etc",
        place.root().display()
    );
    let rules = with_dns(closed(), &[SERVER]);
    let mut run =
        outer.session(&place, &rules, ["sh", "-c", "cat /etc/resolv.conf; ls -L /etc/resolv.conf"]);
    let out = run.within_changed(&outer, &script).output().ok();
    let text = out.text();
    assert!(text.contains("nameserver 10.99.0.53"), "{text}");
    assert_eq!(text.matches("nameserver").count(), 1, "{text}");
}

#[test]
fn root_gives_the_host_a_stub_in_run_and_the_policys_list_shows() {
    however_the_host_has_it(
        "mkdir -p $RUN/systemd/resolve; echo nameserver 127.0.0.53 > $RUN/systemd/resolve/stub-resolv.conf\n\
         ln -s ../run/systemd/resolve/stub-resolv.conf $ETC/resolv.conf",
    );
}

#[test]
fn root_gives_the_host_a_stub_in_var_run_and_the_policys_list_shows() {
    however_the_host_has_it(
        "mkdir -p $RUN/resolvconf; echo nameserver 127.0.0.53 > $RUN/resolvconf/resolv.conf\n\
         ln -s /var/run/resolvconf/resolv.conf $ETC/resolv.conf",
    );
}

#[test]
fn root_gives_the_host_a_dangling_link_and_the_policys_list_shows() {
    however_the_host_has_it("ln -s ../run/nowhere/resolv.conf $ETC/resolv.conf");
}

#[test]
fn root_gives_the_host_a_stub_on_loopback_and_the_policys_list_shows() {
    however_the_host_has_it("echo nameserver 127.0.0.1 > $ETC/resolv.conf");
}

#[test]
fn root_gives_the_host_a_link_to_nowhere_in_etc_and_the_policys_list_shows() {
    however_the_host_has_it("ln -s resolv.none $ETC/resolv.conf");
}

#[test]
fn root_takes_the_hosts_list_away_and_the_policys_list_shows() {
    however_the_host_has_it("true");
}

/// Other mounts below `/etc`, as in a container, keep an overlay off it.
#[test]
fn root_takes_the_hosts_list_away_from_among_mounts_and_masks_and_all_of_them_hold() {
    let outer = Outer::new();
    let place = Place::new(landbox_tests::World::USUAL);
    for mounted in ["true", "mount --bind $ETC/issue $ETC/motd"] {
        let script = format!(
            "rm -rf {0}/etc; cp -a /etc {0}/etc; ETC={0}/etc; rm -f $ETC/resolv.conf $ETC/motd; echo secret > $ETC/secret; \
             chmod 644 $ETC/secret; echo issue > $ETC/issue; touch $ETC/motd; mount --bind $ETC /etc; ETC=/etc; {mounted}",
            place.root().display()
        );
        let look = "cat /etc/resolv.conf /etc/motd /etc/secret /etc/later; touch /etc/x /etc/resolv.conf; \
                    ls /etc/passwd /etc/ssl -d; test -e /etc/later || echo none";
        let file = place.policy(&with_dns(closed(), &[SERVER]));
        let hidden = ["--hide", "/etc/secret", "--hide", "/etc/later"].map(OsStr::new);
        let options = [OsStr::new("--network"), file.as_os_str()].into_iter().chain(hidden);
        let mut run = place.session(options, ["sh", "-c", look]);
        let out = run.within_changed(&outer, &script).output().ok();
        let motd = if mounted == "true" { "" } else { "issue\n" };
        let expected = format!("nameserver {SERVER}\n{motd}/etc/passwd\n/etc/ssl\nnone\n");
        assert_eq!(out.text(), expected, "{mounted}: {}", out.errors());
    }
}

/// The folder it would lie in is missing as well.
#[test]
fn root_leads_the_hosts_list_to_nowhere_and_name_servers_are_refused_with_what_to_type() {
    let outer = Outer::new();
    let place = Place::new(landbox_tests::World::USUAL);
    let script = format!(
        "cp -a /etc {0}/etc; ln -sf /usr/no/such/list {0}/etc/resolv.conf; mount --bind {0}/etc /etc",
        place.root().display()
    );
    let mut run = outer.session(&place, &with_dns(closed(), &[SERVER]), ["echo", "ran"]);
    let out = run.within_changed(&outer, &script).output().expect(125);
    assert_eq!(out.text(), "");
    assert!(out.errors().contains("touch /etc/resolv.conf"), "{}", out.errors());
    let mut run = outer.session(&place, &closed(), ["echo", "ran"]);
    assert_eq!(run.within_changed(&outer, &script).output().ok().text(), "ran\n");
}

/// A module for names, of the kind of sssd's, systemd-resolved's, Avahi's, machined's, winbind's: it asks a daemon by a
/// socket, and would wait for it for ever. Where it can't ask, it says that it is not available.
const MODULE: &str = r#"
#include <errno.h>
#include <netdb.h>
#include <nss.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
static enum nss_status ask(int *errnop, int *h_errnop) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    char word;
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    strncpy(to.sun_path, SOCKET, sizeof to.sun_path - 1);
    if (s >= 0 && connect(s, (struct sockaddr *)&to, sizeof to) == 0)
        while (read(s, &word, 1) < 0 && errno == EINTR) {}
    *errnop = errno;
    *h_errnop = NO_RECOVERY;
    return NSS_STATUS_UNAVAIL;
}
enum nss_status _nss_waits_gethostbyname4_r(const char *name, struct gaih_addrtuple **pat, char *buffer, size_t length,
                                            int *errnop, int *h_errnop, int32_t *ttl) {
    return ask(errnop, h_errnop);
}
enum nss_status _nss_waits_gethostbyname2_r(const char *name, int af, struct hostent *host, char *buffer,
                                            size_t length, int *errnop, int *h_errnop) {
    return ask(errnop, h_errnop);
}
"#;

#[test]
fn root_gives_the_host_name_services_that_would_wait_and_look_ups_go_on_without_them() {
    let outer = Outer::new();
    let place = Place::new(landbox_tests::World::USUAL);
    let (source, module) = (place.outside.join("m.c"), place.outside.join("libnss_waits.so.2"));
    let daemon = place.outside.join("daemon");
    place.write(&source, MODULE);
    let define = format!("-DSOCKET=\"{}\"", daemon.display());
    let built = std::process::Command::new("gcc")
        .args(["-shared", "-fPIC", &define, "-o"])
        .args([&module, &source])
        .status()
        .unwrap();
    assert!(built.success());
    // They take connections and never answer. The second is the C library's own cache of names, which programs outside
    // ask, too, and wait for.
    let [daemon, _cache] = [daemon, place.outside.join("nscd")].map(|path| {
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        listener
    });
    let services = outer.services(&place, &["dns:10.99.0.53:53=93.184.216.34"]);
    let cached = format!(
        "mount -t tmpfs none /run; mkdir /run/nscd; touch /run/nscd/socket\n\
         mount --bind {}/nscd /run/nscd/socket",
        place.outside.display()
    );
    for line in [
        "waits files dns",
        "files waits [!UNAVAIL=return] dns",
        "files waits [NOTFOUND=return] dns",
    ] {
        let script = format!(
            "sed 's/^hosts:.*/hosts: {line}/' /etc/nsswitch.conf > {0}/nsswitch; grep -q waits {0}/nsswitch\n\
             mount --bind {0}/nsswitch /etc/nsswitch.conf\n",
            place.root().display()
        );
        let look_up = format!(
            "LD_LIBRARY_PATH={} timeout 40 getent ahostsv4 name.example | head -1; \
             timeout 40 getent passwd nobody-at-all; echo $?",
            place.outside.display()
        );
        let look = |rules: &Value, script: &str| {
            let mut run = outer.session(&place, rules, ["sh", "-c", &look_up]);
            run.within_changed(&outer, script).output().ok().text()
        };
        assert_eq!(look(&closed(), &script), "2\n", "{line}");
        let text = look(&with_dns(closed(), &[SERVER]), &script);
        assert!(text.starts_with("93.184.216.34") && text.ends_with("\n2\n"), "{line}: {text}");
        if line.starts_with("waits") {
            assert_eq!(look(&closed(), &(script + &cached)), "2\n");
        }
    }
    assert!(daemon.accept().is_err(), "the daemon was asked");
    assert!(!services.asked_of("dns").is_empty());
}

//! Where a session's traffic went: what the helper counted, with the times it was seen, one file a launch.

use super::store::{Session, write_json};
use crate::error::{Context, Failure, Kind, Result};
use landbox_shared::network::egress::{Counted, Destination, Egress, ROWS, Totals};
use landbox_shared::policy::Network;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Version of [`Ledger`].
const VERSION: u16 = 1;
/// The file below a launch's folder.
const FILE: &str = "egress.json";
/// How often the file is replaced while a session runs. Its end is always written.
const INTERVAL: Duration = Duration::from_secs(1);
/// Most bytes of such a file: twice two full lists.
const MAX_BYTES: u64 = 4 << 20;

/// What is known of one launch, or of several together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ledger {
    version: u16,
    /// What was let through.
    pub reached: List,
    /// What was refused.
    pub refused: List,
}

/// One of its two lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// Sorted by destination, each once, at most [`ROWS`] of each family.
    rows: Vec<Seen>,
    /// Everything, whether or not there was room for a row.
    pub totals: Totals,
}

/// One destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// Where to.
    pub destination: Destination,
    /// How often.
    pub count: u64,
    /// When it was first counted, to the helper's interval. RFC 3339, UTC.
    pub first_at: String,
    /// When it was last counted, to the helper's interval. RFC 3339, UTC.
    pub last_at: String,
}

impl Default for Ledger {
    fn default() -> Self {
        Self { version: VERSION, reached: List::default(), refused: List::default() }
    }
}

impl Ledger {
    /// Takes in what the helper read at `now`: counts since its launch began.
    fn note(&mut self, egress: &Egress, now: &str) {
        self.reached.note(&egress.reached, now);
        self.refused.note(&egress.refused, now);
    }

    /// Adds another launch.
    fn add(&mut self, other: Self) {
        self.reached.add(other.reached);
        self.refused.add(other.refused);
    }

    /// How much was counted that no row tells of: there was no room for one, or it is still to be told.
    pub fn unlisted(&self) -> u64 {
        self.reached.unlisted().saturating_add(self.refused.unlisted())
    }
}

impl List {
    /// The rows to show, [`ROWS`] at most. A flood in one family leaves half of them to the other.
    pub fn rows(&self) -> impl Iterator<Item = &Seen> {
        let half = ROWS / 2;
        let [v4, v6] = [false, true].map(|six| self.of_family(six));
        let v4_share = v4.min(half.max(ROWS.saturating_sub(v6)));
        let mut left = [v4_share, ROWS - v4_share];
        self.rows.iter().filter(move |seen| {
            let left = &mut left[usize::from(seen.destination.address.is_ipv6())];
            let room = *left > 0;
            *left = left.saturating_sub(1);
            room
        })
    }

    fn of_family(&self, six: bool) -> usize {
        self.rows.iter().filter(|seen| seen.destination.address.is_ipv6() == six).count()
    }

    /// How much was counted in it that no row tells of.
    pub fn unlisted(&self) -> u64 {
        let listed: u64 = self.rows().fold(0, |sum, seen| sum.saturating_add(seen.count));
        self.totals.sum().saturating_sub(listed)
    }

    fn note(&mut self, counted: &Counted, now: &str) {
        for row in &counted.rows {
            let seen = self.seen(row.destination, now);
            if let Some(seen) = seen.filter(|seen| row.count > seen.count) {
                seen.count = row.count;
                now.clone_into(&mut seen.last_at);
            }
        }
        self.set_totals(counted.totals, u64::max);
    }

    fn add(&mut self, other: Self) {
        for row in other.rows {
            let Some(seen) = self.seen(row.destination, &row.first_at) else { continue };
            seen.count = seen.count.saturating_add(row.count);
            // Times of one fixed form sort as text.
            seen.first_at = std::mem::take(&mut seen.first_at).min(row.first_at);
            seen.last_at = std::mem::take(&mut seen.last_at).max(row.last_at);
        }
        self.set_totals(other.totals, u64::saturating_add);
    }

    fn set_totals(&mut self, other: Totals, together: fn(u64, u64) -> u64) {
        let Totals { public, private, fixed } = &mut self.totals;
        *public = together(*public, other.public);
        *private = together(*private, other.private);
        *fixed = together(*fixed, other.fixed);
    }

    /// The row of a destination, made where there is room for one.
    fn seen(&mut self, destination: Destination, now: &str) -> Option<&mut Seen> {
        let at = match self.rows.binary_search_by_key(&destination, |seen| seen.destination) {
            Ok(at) => at,
            Err(_) if self.of_family(destination.address.is_ipv6()) >= ROWS => return None,
            Err(at) => {
                let (first_at, last_at) = (now.to_owned(), now.to_owned());
                self.rows.insert(at, Seen { destination, count: 0, first_at, last_at });
                at
            }
        };
        self.rows.get_mut(at)
    }
}

/// Keeps the ledger of a running launch on disk.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    ledger: Ledger,
    written: Option<Instant>,
    stale: bool,
}

impl Recorder {
    /// Of the launch whose folder is `folder`.
    pub fn new(folder: &Path) -> Self {
        let (path, ledger) = (folder.join(FILE), Ledger::default());
        Self { path, ledger, written: None, stale: false }
    }

    /// Takes in what the helper read. A file that can't be written now is written later.
    pub fn note(&mut self, egress: &Egress) {
        self.ledger.note(egress, &super::now());
        self.stale = true;
        if self.written.is_none_or(|at| at.elapsed() >= INTERVAL) {
            let _ = self.write();
        }
    }

    /// Writes what is not written yet.
    pub fn finish(mut self) -> Result<()> {
        if self.stale { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        self.written = Some(Instant::now());
        write_json(&self.path, &self.ledger, 0o600)?;
        self.stale = false;
        Ok(())
    }
}

/// The ledger of a whole session; `None` for one without a network policy.
pub fn of(session: &Session) -> Result<Option<Ledger>> {
    match &session.snapshot.policy.network {
        Network::Host | Network::None => return Ok(None),
        Network::Policy(_) => {}
    }
    let mut all = Ledger::default();
    for launch in &session.state.launches {
        let folder = session.dir.join("launches").join(launch.number.to_string());
        if let Some(ledger) = read(&folder.join(FILE))? {
            all.add(ledger);
        }
    }
    Ok(Some(all))
}

fn read(path: &Path) -> Result<Option<Ledger>> {
    let what = || format!("can't read {}", super::store::show(path));
    let meta = match std::fs::symlink_metadata(path) {
        Ok(meta) => meta,
        // A launch that never said anything of its traffic.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e).context(what),
    };
    if !meta.is_file() || meta.len() > MAX_BYTES {
        return Err(Failure::new(Kind::Failed, format!("{}: it is not ours", what())));
    }
    let bytes = std::fs::read(path).context(what)?;
    let ledger: Ledger = serde_json::from_slice(&bytes).context(what)?;
    if ledger.version != VERSION {
        let why = format!("{}: it is of version {}", what(), ledger.version);
        return Err(Failure::new(Kind::Failed, why));
    }
    Ok(Some(ledger))
}

#[cfg(test)]
mod tests {
    use super::*;
    use landbox_shared::network::egress::Row;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    fn row(address: IpAddr, count: u64) -> Row {
        Row { destination: Destination { address, protocol: 6, port: 443 }, count }
    }

    fn v4(n: u32) -> IpAddr {
        Ipv4Addr::from(0x0800_0000 + n).into()
    }

    fn v6(n: u128) -> IpAddr {
        Ipv6Addr::from((0x2600 << 112) + n).into()
    }

    fn refused(rows: Vec<Row>, public: u64) -> Egress {
        let totals = Totals { public, ..Totals::default() };
        Egress { reached: Counted::default(), refused: Counted { rows, totals } }
    }

    #[test]
    fn a_row_keeps_when_it_was_first_and_last_counted() {
        let mut ledger = Ledger::default();
        ledger.note(&refused(vec![row(v4(1), 2)], 2), "t1");
        ledger.note(&refused(vec![row(v4(1), 2), row(v4(0), 1)], 3), "t2");
        ledger.note(&refused(vec![row(v4(1), 5)], 6), "t3");
        let rows: Vec<_> = ledger
            .refused
            .rows()
            .map(|seen| (seen.count, seen.first_at.as_str(), seen.last_at.as_str()))
            .collect();
        assert_eq!(rows, [(1, "t2", "t2"), (5, "t1", "t3")]);
        assert_eq!(ledger.refused.totals.sum(), 6);
        assert_eq!(ledger.unlisted(), 0);
    }

    #[test]
    fn launches_are_added_up() {
        let mut all = Ledger::default();
        for (count, now) in [(3, "t2"), (4, "t1")] {
            let mut one = Ledger::default();
            one.note(&refused(vec![row(v4(1), count)], count), now);
            all.add(one);
        }
        let seen = all.refused.rows().next().unwrap();
        assert_eq!((seen.count, &*seen.first_at, &*seen.last_at), (7, "t1", "t2"));
        assert_eq!(all.refused.totals.public, 7);
    }

    #[test]
    fn a_flood_of_one_family_leaves_room_for_the_other_and_is_counted_in_full() {
        let mut ledger = Ledger::default();
        let flood: Vec<Row> = (0..1500).map(|n| row(v4(n), 1)).collect();
        ledger.note(&refused(flood, 1500), "t1");
        assert_eq!(ledger.refused.rows().count(), ROWS);
        assert_eq!(ledger.unlisted(), 1500 - 1024);
        let late: Vec<Row> = (0..600).map(|n| row(v6(n), 1)).collect();
        ledger.note(&refused(late, 2100), "t2");
        let six = ledger.refused.rows().filter(|s| s.destination.address.is_ipv6()).count();
        assert_eq!((ledger.refused.rows().count(), six), (ROWS, 512));
        assert_eq!(ledger.unlisted(), 2100 - 1024);
        assert_eq!(ledger.reached, List::default());
    }

    #[test]
    fn what_is_recorded_is_read_back_and_anything_else_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let mut recorder = Recorder::new(dir.path());
        recorder.note(&refused(vec![row(v4(1), 1)], 1));
        // Within the interval: not written before the end.
        recorder.note(&refused(vec![row(v4(1), 9)], 9));
        let path = dir.path().join(FILE);
        assert_eq!(read(&path).unwrap().unwrap().refused.totals.public, 1);
        recorder.finish().unwrap();
        assert_eq!(read(&path).unwrap().unwrap().refused.totals.public, 9);
        let quiet = tempfile::tempdir().unwrap();
        Recorder::new(quiet.path()).finish().unwrap();
        assert!(read(&quiet.path().join(FILE)).unwrap().is_none());
        std::fs::write(&path, "{}").unwrap();
        assert!(read(&path).is_err());
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert!(read(&path).is_err());
    }
}

//! What the table counts, and reading it: one total for each way a packet can end, and a row for each destination.

use super::super::egress::{Counted, Destination, Egress, Row, Totals};
use super::TABLE;
use crate::netlink::{self, Attributes, Message};
use std::collections::HashMap;
use std::net::IpAddr;

/// Name of the set of totals.
pub const TOTALS: &str = "totals";
/// The sets that are read while a session runs.
pub const READ: [&str; 5] = [TOTALS, "reached_v4", "reached_v6", "refused_v4", "refused_v6"];

/// A total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counter {
    ReachedFixed,
    ReachedPublic,
    ReachedPrivate,
    RefusedFixed,
    RefusedPublic,
    RefusedPrivate,
}

impl Counter {
    pub(super) const ALL: [Self; 6] = [
        Self::ReachedFixed,
        Self::ReachedPublic,
        Self::ReachedPrivate,
        Self::RefusedFixed,
        Self::RefusedPublic,
        Self::RefusedPrivate,
    ];

    /// The chain that counts it and goes on.
    pub(super) fn chain(self) -> &'static str {
        match self {
            Self::ReachedFixed => "reach_fixed",
            Self::ReachedPublic => "reach_public",
            Self::ReachedPrivate => "reach_private",
            Self::RefusedFixed => "refuse_fixed",
            Self::RefusedPublic => "refuse_public",
            Self::RefusedPrivate => "refuse_private",
        }
    }

    /// Its element among the totals.
    pub(super) fn key(self) -> [u8; 4] {
        [self as u8, 0, 0, 0]
    }

    pub(super) fn is_reached(self) -> bool {
        matches!(self, Self::ReachedFixed | Self::ReachedPublic | Self::ReachedPrivate)
    }

    fn of(self, egress: &mut Egress) -> &mut u64 {
        let Totals { public, private, fixed } =
            if self.is_reached() { &mut egress.reached.totals } else { &mut egress.refused.totals };
        match self {
            Self::ReachedFixed | Self::RefusedFixed => fixed,
            Self::ReachedPublic | Self::RefusedPublic => public,
            Self::ReachedPrivate | Self::RefusedPrivate => private,
        }
    }
}

/// The request that lists the elements of a set of the table.
pub fn list_elements(set: &str, seq: u32) -> Vec<u8> {
    let body = [super::dump::FAMILY.to_vec(), netlink::text(1, TABLE), netlink::text(2, set)];
    let flags = netlink::REQUEST | netlink::DUMP;
    netlink::message(super::dump::LIST_ELEMENTS, flags, seq, &body.concat())
}

/// Adds what one answer to [`list_elements`] says. `None`: it is not one.
pub fn read(egress: &mut Egress, message: Message<'_>) -> Option<()> {
    let attributes = Attributes::after(4, message.body)?;
    let set = attributes.text(2)?;
    for (_, element) in attributes.inside(3)? {
        let element = Attributes::after(0, element)?;
        let key = element.inside(1)?.get(1)?;
        // The counter: its name, and in its data bytes and packets.
        let count = element.inside(7)?.inside(2)?.be64(2)?;
        if set == TOTALS {
            let counter = Counter::ALL.into_iter().find(|counter| counter.key() == key)?;
            *counter.of(egress) = count;
            continue;
        }
        let Counted { rows, totals: _ } = match set.split_once('_')?.0 {
            "reached" => &mut egress.reached,
            "refused" => &mut egress.refused,
            _ => return None,
        };
        rows.push(Row { destination: destination(key)?, count });
    }
    Some(())
}

fn destination(key: &[u8]) -> Option<Destination> {
    let (address, rest) = key.split_at_checked(key.len().checked_sub(8)?)?;
    let address = match address.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(address).ok()?),
        _ => IpAddr::from(<[u8; 16]>::try_from(address).ok()?),
    };
    let [protocol, _, _, _, high, low, _, _] = *rest else { return None };
    Some(Destination { address, protocol, port: u16::from_be_bytes([high, low]) })
}

/// Rows of one part, so that it fits in a packet of the event socket.
const PART: usize = 500;

/// What was told of the counts so far.
#[derive(Clone, Debug, Default)]
pub struct Told {
    rows: [HashMap<Destination, u64>; 2],
    totals: [Totals; 2],
}

impl Told {
    /// What has grown since, in parts that can be told one after the other, each with all totals.
    pub fn news(&self, now: &Egress) -> Vec<Egress> {
        let lists = [&now.reached, &now.refused];
        let grown = |list: usize| {
            let told = move |row: &Row| self.rows[list].get(&row.destination) == Some(&row.count);
            lists[list].rows.iter().filter(move |row| !told(row)).map(move |row| (list, *row))
        };
        let all: Vec<(usize, Row)> = grown(0).chain(grown(1)).collect();
        let part = |rows: &[(usize, Row)]| {
            let of = |list: usize| Counted {
                rows: rows.iter().filter(|(of, _)| *of == list).map(|(_, row)| *row).collect(),
                totals: lists[list].totals,
            };
            Egress { reached: of(0), refused: of(1) }
        };
        // Where there is no room for more rows the totals grow alone.
        if all.is_empty() && self.totals != lists.map(|list| list.totals) {
            return vec![part(&[])];
        }
        all.chunks(PART).map(part).collect()
    }

    /// Notes that a part was told.
    pub fn note(&mut self, part: &Egress) {
        for (told, list) in self.rows.iter_mut().zip([&part.reached, &part.refused]) {
            told.extend(list.rows.iter().map(|row| (row.destination, row.count)));
        }
        self.totals = [part.reached.totals, part.refused.totals];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_grown_is_told_again() {
        let row = |n: u32, count| Row {
            destination: Destination {
                address: IpAddr::from(n.to_be_bytes()),
                protocol: 6,
                port: 1,
            },
            count,
        };
        let mut now = Egress::default();
        now.refused.rows = (0..1200).map(|n| row(n, 1)).collect();
        now.refused.totals.public = 1200;
        let mut told = Told::default();
        let parts = told.news(&now);
        assert_eq!(parts.len(), 3);
        assert!(parts.iter().all(|part| part.refused.totals.public == 1200));
        for part in &parts {
            assert!(
                wire::event_packets(&Event::Egress(Box::new(part.clone()))).unwrap().len() == 1
            );
            told.note(part);
        }
        assert_eq!(told.news(&now), []);
        now.refused.rows[7].count = 2;
        now.reached.rows.push(row(7, 1));
        let news = told.news(&now);
        assert_eq!(news[0].refused.rows, [row(7, 2)]);
        assert_eq!(news[0].reached.rows, [row(7, 1)]);
        told.note(&news[0]);
        now.refused.totals.public += 1;
        let news = told.news(&now);
        assert!(news.len() == 1 && news[0].refused.rows.is_empty());
    }
    use crate::event::Event;
    use crate::netlink::{attribute, nested, text};
    use crate::wire;

    fn element(key: &[u8], packets: u64) -> Vec<u8> {
        let data = [attribute(1, &99u64.to_be_bytes()), attribute(2, &packets.to_be_bytes())];
        let counter = [text(1, "counter"), nested(2, &data)];
        nested(1, &[nested(1, &[attribute(1, key)]), nested(7, &counter)])
    }

    fn body(set: &str, elements: &[Vec<u8>]) -> Vec<u8> {
        [vec![0; 4], text(1, TABLE), text(2, set), nested(3, elements)].concat()
    }

    #[test]
    fn requests_are_shorter_than_what_the_monitors_filter_lets_through() {
        assert!(READ.iter().all(|set| list_elements(set, 1).len() < 60));
    }

    #[test]
    fn rows_and_totals_are_read() {
        let mut egress = Egress::default();
        let mut add = |set: &str, elements: &[Vec<u8>]| {
            let body = body(set, elements);
            read(&mut egress, Message { kind: 0, body: &body })
        };
        let key = [1, 2, 3, 4, 6, 0, 0, 0, 1, 187, 0, 0];
        assert_eq!(add("reached_v4", &[element(&key, 3)]), Some(()));
        let key = [vec![0xfd; 16], vec![17, 0, 0, 0, 0, 53, 0, 0]].concat();
        assert_eq!(add("refused_v6", &[element(&key, 4)]), Some(()));
        assert_eq!(add(TOTALS, &[element(&[1, 0, 0, 0], 5), element(&[5, 0, 0, 0], 6)]), Some(()));
        assert_eq!(add(TOTALS, &[element(&[9, 0, 0, 0], 5)]), None);
        assert_eq!(add("services", &[element(&[0; 12], 1)]), None);
        assert_eq!(add("reached_v4", &[element(&[0; 9], 1)]), None);
        assert_eq!(egress.reached.totals.public, 5);
        assert_eq!(egress.refused.totals.private, 6);
        let reached = egress.reached.rows[0];
        let expected = Destination { address: "1.2.3.4".parse().unwrap(), protocol: 6, port: 443 };
        assert_eq!((reached.destination, reached.count), (expected, 3));
        assert_eq!(egress.refused.rows[0].destination.port, 53);
    }
}

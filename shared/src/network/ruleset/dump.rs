//! The table again, from what the kernel lists. Handles, uses and counts are left out; whatever is not a part of our
//! model is an error.

use super::{
    Base, Chain, Element, Expr, Hook, IDLE, Meta, Reject, Ruleset, Set, SetKind, TABLE, Verdict,
};
use crate::netlink::{self, Attributes, Message};
use std::collections::BTreeMap;

/// Messages of the packet filter begin with its number.
const FILTER: u16 = 10 << 8;
/// Lists the tables.
pub const LIST_TABLES: u16 = FILTER | 1;
/// Lists the chains.
pub const LIST_CHAINS: u16 = FILTER | 4;
/// Lists the rules.
pub const LIST_RULES: u16 = FILTER | 7;
/// Lists the sets.
pub const LIST_SETS: u16 = FILTER | 10;
/// Lists the elements of one set.
pub const LIST_ELEMENTS: u16 = FILTER | 13;
/// Asks for the generation.
pub const GENERATION: u16 = FILTER | 16;
/// Header of messages about our table: `inet`.
pub const FAMILY: [u8; 4] = [1, 0, 0, 0];

const NEW_TABLE: u16 = FILTER;
const NEW_CHAIN: u16 = FILTER | 3;
const NEW_RULE: u16 = FILTER | 6;
const NEW_SET: u16 = FILTER | 9;
const NEW_ELEMENTS: u16 = FILTER | 12;
const NEW_GENERATION: u16 = FILTER | 15;

/// Flags of a set.
const CONSTANT: u32 = 0x2;
const RANGES: u32 = 0x4;
const MAP: u32 = 0x8;
const TIMED: u32 = 0x10;
const UPDATED: u32 = 0x20;

impl SetKind {
    /// The kernel's flags of a set of this kind.
    pub fn flags(self, data: u32) -> u32 {
        let map = if data > 0 { MAP } else { 0 };
        map | match self {
            Self::Exact | Self::Counters => CONSTANT,
            Self::Ranges => CONSTANT | RANGES,
            Self::Recorder => UPDATED,
            Self::Flows => UPDATED | TIMED,
        }
    }

    /// Whether its elements count.
    pub fn counts(self) -> bool {
        matches!(self, Self::Counters | Self::Recorder)
    }

    /// How long an element stays unmet, in milliseconds; without, for ever.
    pub(super) fn idle(self) -> Option<u64> {
        (self == Self::Flows).then_some(IDLE)
    }

    fn from(flags: u32, counts: bool, idle: Option<u64>) -> Option<Self> {
        let same = |kind: &Self| {
            kind.flags(0) == flags & !MAP && kind.counts() == counts && kind.idle() == idle
        };
        [Self::Exact, Self::Ranges, Self::Counters, Self::Recorder, Self::Flows]
            .into_iter()
            .find(same)
    }
}

/// A request for a list of everything there is, whoever's it is.
pub fn list_all(kind: u16, seq: u32) -> Vec<u8> {
    netlink::message(kind, netlink::REQUEST | netlink::DUMP, seq, &[0; 4])
}

/// A request for the generation: it grows with every change.
pub fn ask_generation(seq: u32) -> Vec<u8> {
    netlink::message(GENERATION, netlink::REQUEST | netlink::ACK, seq, &[0; 4])
}

/// The generation that was answered.
pub fn generation(message: Message<'_>) -> Option<u32> {
    (message.kind == NEW_GENERATION).then_some(())?;
    Attributes::after(4, message.body)?.be32(1)
}

/// The table as it is read, object by object.
#[derive(Debug, Default)]
pub struct Reading {
    tables: usize,
    sets: BTreeMap<String, Set>,
    chains: BTreeMap<String, Chain>,
}

impl Reading {
    /// Takes one object. `None`: it is none of ours, or not what we make.
    pub fn take(&mut self, message: Message<'_>) -> Option<()> {
        let attributes = Attributes::after(4, message.body)?;
        // Every object is of our table: there is no other, and none of another family.
        (message.body.first() == FAMILY.first()).then_some(())?;
        (attributes.text(1)? == TABLE).then_some(())?;
        match message.kind {
            NEW_TABLE => {
                self.tables += 1;
                // Flags: a table can be made to sleep.
                (self.tables == 1 && attributes.be32(2)? == 0).then_some(())
            }
            NEW_CHAIN => {
                let chain = chain(attributes)?;
                self.chains.insert(chain.name.clone(), chain).is_none().then_some(())
            }
            NEW_RULE => {
                let mut rule = Vec::new();
                for (_, expression) in attributes.inside(4)? {
                    rule.push(expr(Attributes::after(0, expression)?)?);
                }
                self.chains.get_mut(attributes.text(2)?)?.rules.push(rule);
                Some(())
            }
            NEW_SET => {
                let set = set(attributes)?;
                self.sets.insert(set.name.clone(), set).is_none().then_some(())
            }
            NEW_ELEMENTS => {
                let set = self.sets.get_mut(attributes.text(2)?)?;
                // An empty set is answered by an empty list, or by none.
                for (_, found) in attributes.inside(3).into_iter().flatten() {
                    set.elements.push(element(Attributes::after(0, found)?)?);
                }
                Some(())
            }
            _ => None,
        }
    }

    /// Names of the sets that were listed.
    pub fn set_names(&self) -> Vec<String> {
        self.sets.keys().cloned().collect()
    }

    /// All that was read, in canonical order.
    pub fn finish(self) -> Ruleset {
        let sets = self.sets.into_values().collect();
        Ruleset { sets, chains: self.chains.into_values().collect() }.sorted()
    }
}

fn chain(attributes: Attributes<'_>) -> Option<Chain> {
    let hook = match attributes.inside(4) {
        None => None,
        Some(hook) => {
            // No device, and of the type that filters.
            (attributes.text(7)? == "filter" && hook.get(3).is_none()).then_some(())?;
            let drops = match attributes.be32(5)? {
                0 => true,
                1 => false,
                _ => return None,
            };
            let priority = hook.be32(2)?.cast_signed();
            Some(Hook { number: hook.be32(1)?, priority, drops })
        }
    };
    Some(Chain { name: attributes.text(3)?.to_owned(), hook, rules: Vec::new() })
}

fn set(attributes: Attributes<'_>) -> Option<Set> {
    let flags = attributes.be32(3)?;
    let counts = match attributes.inside(17) {
        Some(expression) => {
            (expression.text(1)? == "counter").then_some(())?;
            true
        }
        None => false,
    };
    let data = if flags & MAP == 0 { 0 } else { attributes.be32(7)? };
    // One expression for each element at most, and the time limit of its kind: else elements would go by themselves.
    attributes.get(18).is_none().then_some(())?;
    Some(Set {
        name: attributes.text(2)?.to_owned(),
        kind: SetKind::from(flags, counts, attributes.be64(11))?,
        key: attributes.be32(5)?,
        data,
        size: attributes.inside(9).and_then(|desc| desc.be32(1)).unwrap_or(0),
        elements: Vec::new(),
    })
}

fn element(attributes: Attributes<'_>) -> Option<Element> {
    let end = match attributes.be32(3) {
        None | Some(0) => false,
        Some(1) => true,
        Some(_) => return None,
    };
    let data = attributes.inside(2).map_or(Some(&[][..]), |data| data.get(1))?;
    // Of the same kind as the key: an end of a range in one element, or a time limit, is none of ours.
    (attributes.get(10).is_none() && attributes.get(4).is_none()).then_some(())?;
    Some(Element { key: attributes.inside(1)?.get(1)?.to_vec(), end, data: data.to_vec() })
}

/// Word of a register. The kernel gives every fourth by the name of the old, four times as long, one.
fn register(attributes: Attributes<'_>, kind: u16) -> Option<u32> {
    match attributes.be32(kind)? {
        long @ 1..=4 => Some((long - 1) * 4),
        word @ 8..=23 => Some(word - 8),
        _ => None,
    }
}

fn expr(attributes: Attributes<'_>) -> Option<Expr> {
    let (name, of) = (attributes.text(1)?, attributes.inside(2)?);
    let bytes = |kind| of.inside(kind).and_then(|data| data.get(1)).map(<[u8]>::to_vec);
    Some(match name {
        "meta" => {
            let known = [Meta::In, Meta::Out, Meta::Family, Meta::Protocol];
            let number = of.be32(2)?;
            let key = known.into_iter().find(|key| *key as u32 == number)?;
            Expr::Meta { key, to: register(of, 1)? }
        }
        "payload" => {
            let number = of.be32(2)?;
            let known = [Base::Network, Base::Transport];
            let base = known.into_iter().find(|base| *base as u32 == number)?;
            let (offset, length) = (of.be32(3)?, of.be32(4)?);
            Expr::Payload { base, offset, length, to: register(of, 1)? }
        }
        "immediate" => match of.inside(2)?.inside(2) {
            Some(verdict) => Expr::Verdict(match verdict.be32(1)?.cast_signed() {
                0 => Verdict::Drop,
                1 => Verdict::Accept,
                -4 => Verdict::Goto(verdict.text(2)?.to_owned()),
                _ => return None,
            }),
            None => Expr::Put { bytes: bytes(2)?, to: register(of, 1)? },
        },
        "bitwise" => {
            let (at, mask) = (register(of, 1)?, bytes(4)?);
            // In place, without a second operand that sets bits, and of the plain kind.
            let plain = register(of, 2)? == at
                && bytes(5)?.iter().all(|byte| *byte == 0)
                && of.be32(6).unwrap_or(0) == 0
                && usize::try_from(of.be32(3)?) == Ok(mask.len());
            plain.then_some(Expr::Mask { mask, at })?
        }
        "cmp" if of.be32(2) == Some(0) => Expr::Equal { bytes: bytes(3)?, at: register(of, 1)? },
        // Flags: inverted.
        "lookup" if of.be32(5).unwrap_or(0) == 0 => {
            let to = match of.get(3) {
                Some(_) => Some(register(of, 3)?),
                None => None,
            };
            Expr::Lookup { set: of.text(1)?.to_owned(), at: register(of, 2)?, to }
        }
        // Adds or counts, with nothing of its own: the set says that it counts.
        "dynset" if of.be32(3) == Some(1) && of.be32(9).unwrap_or(0) == 0 => {
            (of.get(5).is_none() && of.be64(6).unwrap_or(0) == 0).then_some(())?;
            Expr::Record { set: of.text(1)?.to_owned(), at: register(of, 4)? }
        }
        "reject" => match (of.be32(1)?, of.get(2)) {
            (1, _) => Expr::Reject(Reject::Reset),
            (2, Some([3])) => Expr::Reject(Reject::Prohibited),
            _ => return None,
        },
        _ => return None,
    })
}

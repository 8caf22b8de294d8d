//! The table as the objects and attributes of libnftnl, one to one and in the order of loading. Nothing is decided here.

use std::borrow::Cow;

use super::{Chain, Element, Expr, Reject, Rule, Ruleset, Set, TABLE, Verdict};

/// Most bytes of one value: what libnftnl has room for in a key.
pub const VALUE: usize = 64;
/// Most bytes of a name, with its final NUL.
const NAME: usize = 32;
/// Most bytes of one message, well below what a batch has room for and what a list in it can be long.
const MESSAGE: usize = 60_000;
/// Bytes of one transaction. The kernel takes a packet as large as the send buffer, which an ordinary user can't raise
/// beyond `net.core.wmem_max`: 212,992 on most hosts.
const TRANSACTION: usize = 180_000;
/// Elements in one message.
const ELEMENTS: usize = 500;

const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number in the machine's order.
    Number(u32),
    /// One byte.
    Byte(u8),
    /// A key, a constant or a mask.
    Bytes(Vec<u8>),
    /// A name.
    Text(String),
}

impl Value {
    /// Its bytes.
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Number(number) => number.to_ne_bytes().to_vec().into(),
            Self::Byte(byte) => vec![*byte].into(),
            Self::Bytes(bytes) => bytes.into(),
            Self::Text(text) => [text.as_bytes(), &[0]].concat().into(),
        }
    }

    fn fits(&self) -> bool {
        match self {
            Self::Number(_) | Self::Byte(_) => true,
            Self::Bytes(bytes) => bytes.len() <= VALUE,
            Self::Text(text) => text.len() < NAME && !text.contains('\0'),
        }
    }
}

/// Attributes, by libnftnl's numbers.
pub type Parts = Vec<(u16, Value)>;

/// An expression of a rule, or what the elements of a set carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    /// Its name, NUL-terminated.
    pub name: &'static std::ffi::CStr,
    /// Its attributes.
    pub parts: Parts,
}

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The table.
    Table,
    /// A chain.
    Chain,
    /// A rule.
    Rule,
    /// A set.
    Set,
    /// Elements of a set.
    Elements,
}

impl Kind {
    /// Number and flags of the message that adds one: it must not be there yet; rules come behind the others.
    pub fn message(self) -> (u16, u16) {
        match self {
            Self::Table => (0, CREATE | EXCLUSIVE),
            Self::Chain => (3, CREATE | EXCLUSIVE),
            Self::Rule => (6, CREATE | APPEND),
            Self::Set => (9, CREATE | EXCLUSIVE),
            Self::Elements => (12, CREATE | EXCLUSIVE),
        }
    }
}

/// One message that adds an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    kind: Kind,
    parts: Parts,
    expressions: Vec<Expression>,
    elements: Vec<Parts>,
}

impl Object {
    /// An object with its expressions (of a rule or set) and elements. `None` where it is too large: a value of more than
    /// [`VALUE`] bytes, or a message of more than 60,000.
    pub fn new(
        kind: Kind,
        parts: Parts,
        expressions: Vec<Expression>,
        elements: Vec<Parts>,
    ) -> Option<Self> {
        let this = Self { kind, parts, expressions, elements };
        let fits = this.all_parts().flatten().all(|(_, value)| value.fits());
        (fits && this.size() <= MESSAGE).then_some(this)
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its own attributes.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Its expressions.
    pub fn expressions(&self) -> &[Expression] {
        &self.expressions
    }

    /// Its elements.
    pub fn elements(&self) -> &[Parts] {
        &self.elements
    }

    fn all_parts(&self) -> impl Iterator<Item = &Parts> {
        let of_expressions = self.expressions.iter().map(|expression| &expression.parts);
        std::iter::once(&self.parts).chain(of_expressions).chain(&self.elements)
    }

    /// An upper bound of its bytes as a message: each value with three headers around it and padding, and as much for
    /// each list.
    fn size(&self) -> usize {
        let value = |value: &Value| match value {
            Value::Number(_) | Value::Byte(_) => 4,
            Value::Bytes(bytes) => bytes.len(),
            Value::Text(text) => text.len() + 1,
        };
        let size = |parts: &Parts| parts.iter().map(|(_, v)| value(v) + 16).sum::<usize>() + 32;
        64 + self.all_parts().map(size).sum::<usize>()
    }
}

/// The whole table, in transactions that can be loaded one after the other. The chains that drop come first; the sets are
/// filled before rules use them, because they are constant from then on. `None` where something is too large.
pub fn transactions(table: &Ruleset) -> Option<Vec<Vec<Object>>> {
    let mut all: Vec<Vec<Object>> = vec![Vec::new()];
    let mut room = TRANSACTION;
    for object in objects(table) {
        let object = object?;
        let size = object.size();
        if size > room {
            all.push(Vec::new());
            room = TRANSACTION;
        }
        room -= size;
        all.last_mut()?.push(object);
    }
    Some(all)
}

fn objects(table: &Ruleset) -> impl Iterator<Item = Option<Object>> {
    let plain = |kind, parts| Object::new(kind, parts, Vec::new(), Vec::new());
    let name = vec![(0, text(TABLE)), (2, number(0))];
    let chains = table.chains.iter().map(move |chain| plain(Kind::Chain, of_chain(chain)));
    let sets = table.sets.iter().zip(1..).flat_map(|(set, id)| {
        let counter = || Expression { name: c"counter", parts: Vec::new() };
        let counters = set.kind.counts().then(counter).into_iter().collect();
        let head = Object::new(Kind::Set, of_set(set, id), counters, Vec::new());
        let elements = set.elements.chunks(ELEMENTS).map(|elements| {
            let parts = vec![(0, text(TABLE)), (1, text(&set.name))];
            let elements = elements.iter().map(of_element).collect();
            Object::new(Kind::Elements, parts, Vec::new(), elements)
        });
        std::iter::once(head).chain(elements)
    });
    let rules = table.chains.iter();
    let rules = rules.flat_map(|chain| chain.rules.iter().map(|rule| of_rule(&chain.name, rule)));
    std::iter::once(plain(Kind::Table, name)).chain(chains).chain(sets).chain(rules)
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn number(number: u32) -> Value {
    Value::Number(number)
}

fn bytes(bytes: &[u8]) -> Value {
    Value::Bytes(bytes.to_owned())
}

/// A register, by the number of its first word.
fn register(word: &u32) -> Value {
    Value::Number(8 + word)
}

fn of_chain(Chain { name, hook, rules: _ }: &Chain) -> Parts {
    let mut parts = vec![(2, text(TABLE)), (0, text(name))];
    if let Some(hook) = hook {
        parts.extend([
            (10, text("filter")),
            (3, number(hook.number)),
            (4, number(hook.priority.cast_unsigned())),
            (5, number(u32::from(!hook.drops))),
        ]);
    }
    parts
}

fn of_set(Set { name, kind, key, data, size, elements: _ }: &Set, id: u32) -> Parts {
    let mut parts = vec![
        (0, text(TABLE)),
        (1, text(name)),
        (8, number(id)),
        (2, number(kind.flags(*data))),
        // No type of a key: that is for people who read lists of rules.
        (3, number(0)),
        (4, number(*key)),
    ];
    if *size > 0 {
        parts.push((10, number(*size)));
    }
    if *data > 0 {
        parts.extend([(5, number(0)), (6, number(*data))]);
    }
    parts.extend(kind.idle().map(|idle| (11, bytes(&idle.to_ne_bytes()))));
    parts
}

fn of_element(Element { key, end, data }: &Element) -> Parts {
    let mut parts = vec![(1, bytes(key))];
    if *end {
        parts.push((0, number(1)));
    }
    if !data.is_empty() {
        parts.push((4, bytes(data)));
    }
    parts
}

fn of_rule(chain: &str, rule: &Rule) -> Option<Object> {
    let parts = vec![(1, text(TABLE)), (2, text(chain))];
    Object::new(Kind::Rule, parts, rule.iter().map(of_expr).collect(), Vec::new())
}

fn of_expr(expr: &Expr) -> Expression {
    let (name, parts) = match expr {
        Expr::Meta { key, to } => (c"meta", vec![(1, number(*key as u32)), (2, register(to))]),
        Expr::Payload { base, offset, length, to } => {
            let (base, offset, length) = (number(*base as u32), number(*offset), number(*length));
            (c"payload", vec![(2, base), (3, offset), (4, length), (1, register(to))])
        }
        Expr::Put { bytes: constant, to } => {
            (c"immediate", vec![(1, register(to)), (2, bytes(constant))])
        }
        Expr::Mask { mask, at } => {
            let length = number(u32::try_from(mask.len()).unwrap_or(u32::MAX));
            let nothing = bytes(&vec![0; mask.len()]);
            let ends = [(1, register(at)), (2, register(at))];
            let operands = [(3, length), (4, bytes(mask)), (5, nothing)];
            (c"bitwise", ends.into_iter().chain(operands).collect())
        }
        Expr::Equal { bytes: constant, at } => {
            (c"cmp", vec![(1, register(at)), (2, number(0)), (3, bytes(constant))])
        }
        Expr::Lookup { set, at, to } => {
            let to = to.iter().map(|to| (2, register(to)));
            (c"lookup", [(3, text(set)), (1, register(at))].into_iter().chain(to).collect())
        }
        Expr::Record { set, at } => {
            (c"dynset", vec![(5, text(set)), (3, number(1)), (1, register(at))])
        }
        Expr::Reject(Reject::Reset) => (c"reject", vec![(1, number(1)), (2, Value::Byte(0))]),
        Expr::Reject(Reject::Prohibited) => (c"reject", vec![(1, number(2)), (2, Value::Byte(3))]),
        Expr::Verdict(verdict) => {
            let (code, chain) = match verdict {
                Verdict::Drop => (0i32, None),
                Verdict::Accept => (1, None),
                Verdict::Goto(chain) => (-4, Some((4, text(chain)))),
            };
            // Into the register of verdicts.
            let parts = [(1, number(0)), (3, number(code.cast_unsigned()))];
            (c"immediate", parts.into_iter().chain(chain).collect())
        }
    };
    Expression { name, parts }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_makes_no_object() {
        let one = |value| Object::new(Kind::Rule, vec![(1, value)], vec![], vec![]);
        assert!(one(Value::Bytes(vec![0; VALUE])).is_some());
        assert!(one(Value::Bytes(vec![0; VALUE + 1])).is_none());
        assert!(one(Value::Text("x".repeat(31))).is_some());
        assert!(one(Value::Text("x".repeat(32))).is_none());
        assert!(one(Value::Text("x\0".into())).is_none());
        let many = vec![vec![(1, Value::Number(1))]; 2000];
        assert!(Object::new(Kind::Elements, vec![], vec![], many).is_none());
    }
}

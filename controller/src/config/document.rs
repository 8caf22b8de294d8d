//! `bots.json` as a tree that knows its lines: JSON with comments and trailing commas.

use crate::error::{Failure, Kind, Result};
use crate::session::store::show;
use crate::ui::text::visible;
use jsonc_parser::ast::{Object, ObjectProp, Value};
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Largest file that is read. A host program's whole bot list is some kilobytes.
const MAX_BYTES: u64 = 16 << 20;
/// Longest piece of a wrong value that a message repeats.
const SHOWN_VALUE: usize = 60;

/// A line of a file, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// From 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", show(&self.file), self.line)
    }
}

/// A problem and where it is.
pub(super) type Problem = (usize, String);

/// Most problems that one message lists.
const SHOWN_PROBLEMS: usize = 20;

/// The text of a configuration file.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) file: PathBuf,
    text: String,
}

impl Source {
    /// Reads `file`, which holds `what`.
    pub(super) fn read(file: &Path, what: &str) -> Result<Self> {
        let refuse = |why: &str| {
            Failure::new(Kind::Usage, format!("can't read the {what} in {}: {why}", show(file)))
        };
        // A pipe is as good as a file: a shell gives one for what another command prints.
        let open = std::fs::File::open(file).map_err(|e| {
            refuse(&e.to_string()).hint("name a file that is there and that you may read")
        })?;
        let mut bytes = Vec::new();
        open.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|e| refuse(&e.to_string()))?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(refuse("it is larger than 16 MiB"));
        }
        let text = String::from_utf8(bytes).map_err(|_| refuse("it is not UTF-8"))?;
        Ok(Self { file: file.to_path_buf(), text })
    }

    /// What the file holds; `wanted` is a clause for one that is empty.
    pub(super) fn value(&self, wanted: &str) -> Result<Value<'_>> {
        let options = ParseOptions {
            allow_comments: true,
            allow_trailing_commas: true,
            allow_loose_object_property_names: false,
            allow_missing_commas: false,
            allow_single_quoted_strings: false,
            allow_hexadecimal_numbers: false,
            allow_unary_plus_numbers: false,
            allow_bare_decimal_point_numbers: false,
            allow_non_finite_numbers: false,
            allow_extended_string_escapes: false,
        };
        let parsed = parse_to_ast(&self.text, &CollectOptions::default(), &options);
        let parsed = parsed.map_err(|e| {
            let what = visible(e.kind().to_string().as_bytes());
            self.problem(e.range().start, format!("not valid JSON: {what}"))
        })?;
        parsed.value.ok_or_else(|| self.problem(0, format!("the file is empty; {wanted}")))
    }

    /// The bots, in order.
    pub(super) fn bots(&self) -> Result<Vec<Object<'_>>> {
        let value = self.value("it must hold an array of bots")?;
        let Value::Array(array) = value else {
            let found = self.quote(&value);
            return Err(self.problem(
                value.range().start,
                format!("the file must hold an array of bots, not {found}"),
            ));
        };
        let mut bots = Vec::with_capacity(array.elements.len());
        for value in array.elements {
            let at = value.range().start;
            let found = self.quote(&value);
            match value {
                Value::Object(object) => bots.push(object),
                Value::StringLit(_)
                | Value::NumberLit(_)
                | Value::BooleanLit(_)
                | Value::Array(_)
                | Value::NullKeyword(_) => {
                    return Err(self.problem(at, format!("a bot must be an object, not {found}")));
                }
            }
        }
        Ok(bots)
    }

    pub(super) fn place(&self, at: usize) -> Place {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        let line = before.iter().filter(|b| **b == b'\n').count() + 1;
        Place { file: self.file.clone(), line }
    }

    pub(super) fn problem(&self, at: usize, what: String) -> Failure {
        Failure::new(Kind::Usage, format!("{}: {what}", self.place(at)))
    }

    /// A value as it is written, cut to a readable length.
    pub(super) fn quote(&self, value: &Value<'_>) -> String {
        let text = self.text.get(value.range().start..value.range().end).unwrap_or_default();
        let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut shown: String = one_line.chars().take(SHOWN_VALUE).collect();
        if shown.len() < one_line.len() {
            shown.push('…');
        }
        visible(shown.as_bytes())
    }
}

/// All of them in one failure.
pub(super) fn failure(source: &Source, problems: Vec<Problem>) -> Failure {
    let more = problems.len().saturating_sub(SHOWN_PROBLEMS);
    let shown = problems.into_iter().take(SHOWN_PROBLEMS);
    let mut shown = shown.map(|(at, what)| source.problem(at, what));
    // There is a first one, or there would be no failure.
    let first = shown.next().unwrap_or_else(|| source.problem(0, "it can't be read".into()));
    let failure = shown.fold(first, |all, next| all.hint(format!("also: {}", next.message)));
    if more > 0 { failure.hint(format!("and {more} more")) } else { failure }
}

/// The last property of that name. (Where it is given twice, the reader has said so already.)
pub(super) fn property<'a, 'b>(bot: &'b Object<'a>, name: &str) -> Option<&'b ObjectProp<'a>> {
    bot.properties.iter().rev().find(|prop| prop.name.as_str() == name)
}

/// A string property, if it is one.
pub(super) fn string<'b>(bot: &'b Object<'_>, name: &str) -> Option<&'b str> {
    match &property(bot, name)?.value {
        Value::StringLit(text) => Some(&text.value),
        Value::NumberLit(_)
        | Value::BooleanLit(_)
        | Value::Object(_)
        | Value::Array(_)
        | Value::NullKeyword(_) => None,
    }
}

//! What a bot of the host program relies on outside any session, which a network policy can't hold.

use super::document::{Problem, Source};
use crate::ui::text::visible;
use jsonc_parser::ast::{Object, Value};
use jsonc_parser::common::Ranged;

/// Keys of the host program, each with what it makes of the bot.
const OUTSIDE: &[(&str, &str)] = &[
    ("existingAppServer", "an app server outside the session does the work"),
    ("adopt", "a process that runs already is taken over"),
    ("remoteRunner", "the work is done on another machine"),
];

/// Each such thing that `bot` names.
pub(super) fn find(source: &Source, bot: &Object<'_>) -> Vec<Problem> {
    let mut found = Vec::new();
    for prop in &bot.properties {
        let key = prop.name.as_str();
        let known = OUTSIDE.iter().find(|(name, _)| *name == key);
        let why = match (known, &prop.value) {
            (_, Value::NullKeyword(_)) => None,
            (_, Value::BooleanLit(flag)) if !flag.value => None,
            (Some((_, why)), _) => Some((*why).to_owned()),
            (None, Value::StringLit(text))
                if names_mcp_socket(key.as_bytes(), text.value.as_bytes()) =>
            {
                Some("MCP tools are reached through a Unix socket of the host".to_owned())
            }
            (
                None,
                Value::StringLit(_)
                | Value::NumberLit(_)
                | Value::BooleanLit(_)
                | Value::Object(_)
                | Value::Array(_),
            ) => None,
        };
        if let Some(why) = why {
            let shown = visible(key.as_bytes());
            let found_value = source.quote(&prop.value);
            found.push((
                prop.range().start,
                format!(
                    "\"{shown}\": {found_value} means that {why}, which a network policy can't hold"
                ),
            ));
        }
    }
    found
}

/// Whether a variable or key tells a CLI of a Unix socket of the host through which MCP tools are reached.
pub fn names_mcp_socket(name: &[u8], value: &[u8]) -> bool {
    let upper = name.to_ascii_uppercase();
    let has = |word: &[u8]| upper.windows(word.len()).any(|part| part == word);
    let path = value.strip_prefix(b"unix:").unwrap_or(value);
    let leads_to_socket = value.starts_with(b"unix:")
        || value.ends_with(b".sock")
        || value.ends_with(b".socket")
        || (path.starts_with(b"/") && has(b"SOCK"));
    has(b"MCP") && leads_to_socket
}

//! One bot as typed values. Every problem is collected, so that one run shows them all.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the parser's enum of JSON values: whatever is not the wanted kind is a wrong type"
)]

use super::document::{Place, Problem, Source, property};
use super::{Checkpoints, Entry, NetworkChoice, Origin, OverlayChoice, keys, network, outside};
use jsonc_parser::ast::{Object, Value};
use jsonc_parser::common::Ranged;
use std::ffi::OsString;

/// What a bot says, without defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BotFields {
    pub(super) name: Option<String>,
    pub(super) cli_id: Option<(String, Option<Place>)>,
    pub(super) command: Option<Vec<String>>,
    pub(super) working_dir: Option<Entry>,
    pub(super) env: Vec<(String, String)>,
    pub(super) sandbox: Option<bool>,
    pub(super) hide: Vec<Entry>,
    pub(super) read_only: Vec<Entry>,
    pub(super) auth: Vec<Entry>,
    pub(super) network: Option<NetworkChoice>,
    pub(super) outside: Vec<String>,
    pub(super) overlay: Option<OverlayChoice>,
    pub(super) packaged_helper: Option<bool>,
    pub(super) checkpoints: Option<Checkpoints>,
}

/// Reads one bot.
pub(super) fn bot(source: &Source, bot: &Object<'_>) -> Result<BotFields, Vec<Problem>> {
    let mut reader = Reader { source, problems: Vec::new() };
    let fields = fields(&mut reader, bot);
    reader.backend_type(bot);
    if reader.problems.is_empty() { Ok(fields) } else { Err(reader.problems) }
}

/// What is wrong with a bot that is not asked for. What the host program runs it in is no matter of ours.
pub(super) fn check(source: &Source, bot: &Object<'_>) -> Vec<Problem> {
    let mut reader = Reader { source, problems: Vec::new() };
    fields(&mut reader, bot);
    reader.problems
}

/// What keeps a bot from being found by its name: a slip of the pen, a value that is none, a key that is there twice.
pub(super) fn naming(source: &Source, bot: &Object<'_>) -> Vec<Problem> {
    const NAMES: [&str; 2] = ["name", "cliId"];
    let mut reader = Reader { source, problems: Vec::new() };
    reader.twice(bot, &NAMES);
    for key in NAMES {
        reader.text(bot, key);
    }
    let slips = misspelt(bot).filter(|(ours, _)| NAMES.contains(ours)).map(|(_, problem)| problem);
    reader.problems.into_iter().chain(slips).collect()
}

fn fields(reader: &mut Reader<'_>, bot: &Object<'_>) -> BotFields {
    let source = reader.source;
    reader.check_keys(bot);
    BotFields {
        name: reader.text(bot, "name"),
        cli_id: reader.text(bot, "cliId").map(|id| {
            let at = property(bot, "cliId").map_or(0, |p| p.range().start);
            (id, Some(source.place(at)))
        }),
        command: reader.command(bot),
        working_dir: reader.entry(bot, "workingDir"),
        env: reader.env(bot),
        sandbox: reader.sandbox(bot),
        hide: reader.entries(bot, "sandboxHidePaths"),
        read_only: reader.entries(bot, "sandboxReadonlyPaths"),
        auth: reader.entries(bot, "authPaths"),
        network: reader.network(bot),
        outside: outside::find(source, bot)
            .into_iter()
            .map(|(at, what)| source.problem(at, what).message)
            .collect(),
        overlay: reader.overlay(bot),
        packaged_helper: reader.flag(bot, "requirePackagedHelper"),
        checkpoints: reader.checkpoints(bot),
    }
}

/// The keys that were meant to be ours: which, and what to say.
fn misspelt<'b>(bot: &'b Object<'_>) -> impl Iterator<Item = (&'static str, Problem)> + 'b {
    bot.properties.iter().filter_map(|prop| {
        let key = prop.name.as_str();
        if keys::THEIRS.contains(&key) && matches!(prop.value, Value::Array(_)) {
            return None;
        }
        let ours = keys::near(key)?;
        let shown = crate::ui::text::visible(key.as_bytes());
        let what = format!("unknown key \"{shown}\"; did you mean \"{ours}\"?");
        Some((ours, (prop.range().start, what)))
    })
}

struct Reader<'s> {
    source: &'s Source,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn wrong(&mut self, key: &str, value: &Value<'_>, wanted: &str) {
        let found = self.source.quote(value);
        self.problems
            .push((value.range().start, format!("\"{key}\" must be {wanted}, not {found}")));
    }

    fn check_keys(&mut self, bot: &Object<'_>) {
        self.problems.extend(misspelt(bot).map(|(_, problem)| problem));
        self.twice(bot, keys::KEYS);
    }

    fn twice(&mut self, bot: &Object<'_>, of: &[&str]) {
        for (at, prop) in bot.properties.iter().enumerate() {
            let key = prop.name.as_str();
            let shown = crate::ui::text::visible(key.as_bytes());
            if of.contains(&key)
                && bot.properties[..at].iter().any(|earlier| earlier.name.as_str() == key)
            {
                self.problems.push((prop.range().start, format!("\"{shown}\" is given twice")));
            }
        }
    }

    fn text(&mut self, bot: &Object<'_>, key: &str) -> Option<String> {
        let prop = property(bot, key)?;
        match &prop.value {
            Value::StringLit(text) if !text.value.is_empty() => Some(text.value.to_string()),
            other => {
                self.wrong(key, other, "a string that is not empty");
                None
            }
        }
    }

    fn flag(&mut self, bot: &Object<'_>, key: &str) -> Option<bool> {
        let prop = property(bot, key)?;
        match &prop.value {
            Value::BooleanLit(flag) => Some(flag.value),
            other => {
                self.wrong(key, other, "true or false");
                None
            }
        }
    }

    fn sandbox(&mut self, bot: &Object<'_>) -> Option<bool> {
        let prop = property(bot, "sandbox")?;
        match &prop.value {
            Value::BooleanLit(flag) => Some(flag.value),
            Value::StringLit(text) if text.value == "oncall" => Some(true),
            other => {
                self.wrong("sandbox", other, "true, false or \"oncall\"");
                None
            }
        }
    }

    fn command(&mut self, bot: &Object<'_>) -> Option<Vec<String>> {
        let prop = property(bot, "command")?;
        let words = match &prop.value {
            Value::StringLit(text) => shell_words::split(&text.value).ok(),
            Value::Array(array) => array
                .elements
                .iter()
                .map(|value| value.as_string_lit().map(|text| text.value.to_string()))
                .collect(),
            Value::NumberLit(_)
            | Value::BooleanLit(_)
            | Value::Object(_)
            | Value::NullKeyword(_) => None,
        };
        let usable = words.filter(|words| {
            words.first().is_some_and(|first| !first.is_empty())
                && words.iter().all(|word| !word.contains('\0'))
        });
        if usable.is_none() {
            let wanted = "a list of strings, or one string with closed quotes";
            self.wrong("command", &prop.value, wanted);
        }
        usable
    }

    fn env(&mut self, bot: &Object<'_>) -> Vec<(String, String)> {
        let Some(prop) = property(bot, "env") else { return Vec::new() };
        let Value::Object(object) = &prop.value else {
            self.wrong("env", &prop.value, "an object of names and values");
            return Vec::new();
        };
        let mut found: Vec<(String, String)> = Vec::new();
        for prop in &object.properties {
            let name = prop.name.as_str();
            let shown = crate::ui::text::visible(name.as_bytes());
            let value = match &prop.value {
                Value::StringLit(text) => text.value.to_string(),
                Value::NumberLit(number) => number.value.to_owned(),
                Value::BooleanLit(flag) => flag.value.to_string(),
                other @ (Value::Object(_) | Value::Array(_) | Value::NullKeyword(_)) => {
                    self.wrong(&format!("env.{shown}"), other, "a string, number or boolean");
                    continue;
                }
            };
            let at = prop.range().start;
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                self.problems.push((at, format!("\"env.{shown}\" can't be a variable")));
            } else if name == "HOME" {
                // The home layer covers the home folder Landbox was started with.
                let what = "\"env.HOME\" can't be set for one bot; start landbox with that HOME";
                self.problems.push((at, what.into()));
            } else if found.iter().any(|(known, _)| known == name) {
                self.problems.push((at, format!("\"env.{shown}\" is given twice")));
            } else {
                found.push((name.to_owned(), value));
            }
        }
        found
    }

    fn entry(&mut self, bot: &Object<'_>, key: &str) -> Option<Entry> {
        let at = property(bot, key)?.value.range().start;
        let text = self.text(bot, key)?;
        Some(self.make_entry(&text, at))
    }

    fn make_entry(&self, text: &str, at: usize) -> Entry {
        Entry { text: OsString::from(text), origin: Origin::File(self.source.place(at)) }
    }

    fn entries(&mut self, bot: &Object<'_>, key: &str) -> Vec<Entry> {
        let Some(prop) = property(bot, key) else { return Vec::new() };
        let Value::Array(array) = &prop.value else {
            self.wrong(key, &prop.value, "a list of paths");
            return Vec::new();
        };
        let mut found = Vec::with_capacity(array.elements.len());
        for value in &array.elements {
            match value {
                Value::StringLit(text) => {
                    found.push(self.make_entry(&text.value, value.range().start));
                }
                other => self.wrong(key, other, "a list of paths"),
            }
        }
        found
    }

    fn network(&mut self, bot: &Object<'_>) -> Option<NetworkChoice> {
        let flag = self.flag(bot, "sandboxNetwork");
        // An explicit policy takes precedence over the boolean.
        if let Some(prop) = property(bot, "sandboxNetworkPolicy") {
            return match &prop.value {
                // How a host program clears the field.
                Value::NullKeyword(_) => flag.map(NetworkChoice::from_flag),
                value => match network::policy(self.source, "sandboxNetworkPolicy", value) {
                    Ok(policy) => {
                        let place = self.source.place(prop.range().start);
                        Some(NetworkChoice::Policy(Box::new(policy), Origin::File(place)))
                    }
                    Err(problems) => {
                        self.problems.extend(problems);
                        None
                    }
                },
            };
        }
        flag.map(NetworkChoice::from_flag)
    }

    fn overlay(&mut self, bot: &Object<'_>) -> Option<OverlayChoice> {
        let text = self.text(bot, "overlayBackend")?;
        let choice = OverlayChoice::parse(&text);
        if choice.is_none()
            && let Some(prop) = property(bot, "overlayBackend")
        {
            self.wrong("overlayBackend", &prop.value, "\"auto\", \"kernel\" or \"fuse\"");
        }
        choice
    }

    fn checkpoints(&mut self, bot: &Object<'_>) -> Option<Checkpoints> {
        let text = self.text(bot, "checkpoints")?;
        let choice = Checkpoints::parse(&text);
        if choice.is_none()
            && let Some(prop) = property(bot, "checkpoints")
        {
            self.wrong("checkpoints", &prop.value, "\"turn\" or \"manual\"");
        }
        choice
    }

    fn backend_type(&mut self, bot: &Object<'_>) {
        let Some(text) = self.text(bot, "backendType").filter(|text| text != "pty") else { return };
        let at = property(bot, "backendType").map_or(0, |p| p.range().start);
        let what = match text.as_str() {
            "tmux" | "zellij" | "herdr" | "zmx" => format!(
                "\"backendType\": {text} panes outlive the program that sandboxes them, so Landbox does not run in them; use \"pty\""
            ),
            other => {
                let shown = crate::ui::text::visible(other.as_bytes());
                format!("\"backendType\" must be \"pty\", not \"{shown}\"")
            }
        };
        self.problems.push((at, what));
    }
}

//! `--mbox`: the patch as a mail that `git am` takes.

use super::message::Message;
use super::run::Git;
use crate::error::{Context, Failure, Kind, Result};
use crate::land::review::Review;
use crate::session::store::Session;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fs::File;
use std::io::{Read, Seek, Write};

/// Bytes of an encoded line.
const LINE: usize = 57;

/// Writes the review's landable changes as one mail. Gives how the project is called in its repository, for
/// `git am --directory`.
pub fn write_mail(
    session: &Session,
    review: &Review,
    typed: Option<&str>,
    out: &mut dyn Write,
) -> Result<Option<String>> {
    let target = review.target();
    let git = Git::find(target.as_path())?;
    let message = Message::of(&git, target.as_path(), session, typed)?;
    let repo = super::repo::Repo::find(git, target).ok();
    let what = || "can't write the mail".to_owned();
    let mut patch = tempfile::tempfile_in(&session.dir).context(what)?;
    review.write_patch(&mut patch)?;
    patch.rewind().context(what)?;
    // As they are, git am takes carriage returns out and stops at a NUL.
    let encoded = holds_odd(&mut patch).context(what)?;
    let (subject, body) = split(&message.text);
    let (name, address, date) = author(&message.author)
        .ok_or_else(|| Failure::new(Kind::Failed, "git doesn't know who you are"))?;
    let encoding = if encoded { "base64" } else { "8bit" };
    let head = format!(
        "From {:040} Mon Sep 17 00:00:00 2001\nFrom: {} <{address}>\nDate: {date}\n\
         Subject: [PATCH] {}\nMIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\n\
         Content-Transfer-Encoding: {encoding}\n\n",
        0,
        word(name),
        word(&subject)
    );
    out.write_all(head.as_bytes()).context(what)?;
    let before = format!("{body}---\n\n");
    let after = format!("-- \nlandbox {}\n\n", env!("CARGO_PKG_VERSION"));
    let mut text = before.as_bytes().chain(patch).chain(after.as_bytes());
    if encoded {
        encode(&mut text, out).context(what)?;
    } else {
        std::io::copy(&mut text, out).context(what)?;
    }
    out.flush().context(what)?;
    let prefix = repo.map(|repo| repo.prefix).filter(|prefix| !prefix.is_empty());
    Ok(prefix.map(|prefix| crate::ui::text::visible_name(&prefix)))
}

fn holds_odd(patch: &mut File) -> std::io::Result<bool> {
    let mut buffer = vec![0; 64 << 10];
    let mut odd = false;
    loop {
        match patch.read(&mut buffer)? {
            0 => break,
            got => odd |= buffer[..got].iter().any(|b| matches!(b, b'\r' | 0)),
        }
    }
    patch.rewind()?;
    Ok(odd)
}

fn encode(text: &mut dyn Read, out: &mut dyn Write) -> std::io::Result<()> {
    let mut buffer = Vec::with_capacity(LINE);
    loop {
        buffer.clear();
        text.take(LINE as u64).read_to_end(&mut buffer)?;
        if buffer.is_empty() {
            return out.write_all(b"\n");
        }
        writeln!(out, "{}", STANDARD.encode(&buffer))?;
    }
}

/// The subject, and the rest such that no line of it ends the message.
fn split(text: &str) -> (String, String) {
    let mut lines = text.lines();
    let subject: Vec<&str> = lines.by_ref().take_while(|line| !line.trim().is_empty()).collect();
    let mut body = String::new();
    for line in lines {
        let ends = ["---", "diff -", "Index: ", "From ", ">From ", "From:", "Date:", "Subject:"];
        let ends = ends.iter().any(|start| line.starts_with(start));
        body.push_str(if ends { " " } else { "" });
        body.push_str(line.trim_end());
        body.push('\n');
    }
    (subject.join(" "), body)
}

/// Name, address and date of `NAME <EMAIL> SECONDS ZONE`.
fn author(ident: &str) -> Option<(&str, &str, String)> {
    let (name, rest) = ident.split_once('<')?;
    let (address, when) = rest.split_once('>')?;
    let (seconds, zone) = when.trim().split_once(' ')?;
    let at = jiff::Timestamp::from_second(seconds.parse().ok()?).ok()?;
    let (hours, minutes): (i32, i32) =
        (zone.get(1..3)?.parse().ok()?, zone.get(3..5)?.parse().ok()?);
    let offset = (hours * 60 + minutes) * 60 * if zone.starts_with('-') { -1 } else { 1 };
    let zoned = at
        .to_zoned_datetime(jiff::tz::TimeZone::fixed(jiff::tz::Offset::from_seconds(offset).ok()?));
    Some((name.trim(), address, zoned.strftime("%a, %d %b %Y %H:%M:%S %z").to_string()))
}

/// Text of a mail's head, encoded where it is not plain.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || " .,:;!?'()/_-+*#&%@".contains(c);
    if text.chars().all(plain) && !text.contains("=?") {
        return text.to_owned();
    }
    // Words of a mail's head are short; one is cut only between characters.
    let mut words = vec![String::new()];
    for c in text.chars() {
        if words.last().is_some_and(|word| word.len() + c.len_utf8() > 42) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.push(c);
        }
    }
    let encoded = words.iter().map(|word| format!("=?UTF-8?B?{}?=", STANDARD.encode(word)));
    encoded.collect::<Vec<_>>().join("\n ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_says_who_and_when_in_plain_letters() {
        let (name, address, date) = author("Ada L <a@b.c> 1700000000 -0330").unwrap();
        assert_eq!((name, address), ("Ada L", "a@b.c"));
        assert_eq!(date, "Tue, 14 Nov 2023 18:43:20 -0330");
        assert_eq!(word("Fix: it (now)"), "Fix: it (now)");
        assert_eq!(word("é"), "=?UTF-8?B?w6k=?=");
        assert!(word(&"é✓".repeat(60)).lines().all(|line| line.len() < 78 && line.is_ascii()));
        assert!(word("=?UTF-8?Q?x?=").starts_with("=?UTF-8?B?"));
    }

    #[test]
    fn no_line_of_a_message_ends_it() {
        let (subject, body) = split("One\ntwo\n\n---\nFrom x\ndiff --git a b\nplain\n");
        assert_eq!(subject, "One two");
        assert_eq!(body, " ---\n From x\n diff --git a b\nplain\n");
    }
}

//! What was decided in earlier reviews, by digest, in the session's folder: `review.json`.
//!
//! Content that changed has another digest and is asked about again. Losing the file loses nothing else.

use super::desk::Desk;
use crate::error::{Context, Result};
use crate::land::hunks::Wish;
use crate::session::store::show;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use landbox_shared::digest::Digest;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};

const VERSION: u16 = 1;
/// Most decisions that are kept; the oldest go.
const KEPT: usize = 20_000;
/// Larger edits are not kept.
const EDIT: usize = 64 << 10;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u16,
    answers: Vec<(String, Said)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Said {
    Yes,
    No,
    Edited(String),
}

/// The decisions of earlier reviews of one session.
#[derive(Debug)]
pub struct Memory {
    path: PathBuf,
    answers: Vec<(String, Said)>,
}

impl Memory {
    /// Reads them. What can't be read was never said.
    pub fn open(session_dir: &Path) -> Self {
        let path = session_dir.join("review.json");
        let read = std::fs::read(&path).ok();
        let document = read.and_then(|text| serde_json::from_slice::<Document>(&text).ok());
        let document = document.filter(|d| d.version == VERSION);
        Self { path, answers: document.map(|d| d.answers).unwrap_or_default() }
    }

    /// Gives a desk the answers it was given before.
    pub fn recall(&self, desk: &mut Desk) {
        let known: HashMap<&str, &Said> = self.answers.iter().map(|(d, s)| (&**d, s)).collect();
        desk.recall(&|digest: &Digest| match known.get(digest.to_string().as_str())? {
            Said::Yes => Some(Wish::Take),
            Said::No => Some(Wish::Leave),
            Said::Edited(text) => STANDARD.decode(text).ok().map(Wish::Edited),
        });
    }

    /// Keeps what was answered at a desk.
    pub fn keep(&mut self, desk: &Desk) -> Result<()> {
        let mut new = Vec::new();
        for question in desk.questions() {
            let said = match &question.answer {
                None => continue,
                Some(Wish::Take) => Said::Yes,
                Some(Wish::Leave) => Said::No,
                Some(Wish::Edited(bytes)) if bytes.len() > EDIT => continue,
                Some(Wish::Edited(bytes)) => Said::Edited(STANDARD.encode(bytes)),
            };
            new.push((question.digest.to_string(), said));
        }
        let again: HashMap<&str, ()> = new.iter().map(|(d, _)| (&**d, ())).collect();
        let old = self.answers.iter().filter(|(d, _)| !again.contains_key(&**d)).cloned();
        let mut answers: Vec<(String, Said)> = old.collect();
        answers.extend(new);
        answers.drain(..answers.len().saturating_sub(KEPT));
        self.answers = answers;
        self.write()
    }

    fn write(&self) -> Result<()> {
        let what = || format!("can't write {}", show(&self.path));
        let dir = self.path.parent().unwrap_or(Path::new("."));
        let document = Document { version: VERSION, answers: self.answers.clone() };
        let mut file = tempfile::Builder::new().prefix(".write-").tempfile_in(dir).context(what)?;
        serde_json::to_writer(&mut file, &document).context(what)?;
        file.flush().context(what)?;
        file.persist(&self.path).context(what)?;
        Ok(())
    }
}

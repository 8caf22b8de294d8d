//! Whether the helper trusts the caller's key.

use super::{Check, Status, from_failure};
use crate::host::{Facts, helper};
use crate::seal::Key;
use crate::session::store::show;
use landbox_shared::trust;
use std::path::Path;

const ID: &str = "trust";

/// Nothing to say where the caller's own folder of keys counts: `landbox` keeps that by itself.
pub(super) fn enrolled(facts: &Facts) -> Option<Check> {
    let capable = facts.uid != 0 && helper::find().is_ok_and(|helper| helper.is_capable());
    capable.then(|| look(facts, Path::new(trust::SYSTEM)))
}

fn look(facts: &Facts, folder: &Path) -> Check {
    let key = match Key::load(facts.key_dir.as_path()) {
        Ok(key) => key,
        Err(failure) => return from_failure(ID, failure),
    };
    let path = folder.join(trust::file_name(&key.id()));
    let found = match std::fs::read_to_string(&path).map(|text| trust::read_line(&text)) {
        Ok(Some((_, uid))) if uid == facts.uid => {
            return Check::ok(ID, format!("your key is enrolled: {}", show(&path)));
        }
        Ok(Some((_, uid))) => format!("{} enrols your key for uid {uid}", show(&path)),
        Ok(None) => format!("{} can't be understood", show(&path)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            format!("your key is not in {}", show(folder))
        }
        Err(e) => format!("{} can't be read: {e}", show(&path)),
    };
    let cost = "no session can be run: this helper runs only what a key of the machine's approved";
    let passwd = std::fs::read("/etc/passwd").unwrap_or_default();
    let comment = trust::name_of(&passwd, facts.uid).unwrap_or_default();
    let fix = enrolment(&key, facts.uid, &comment);
    Check::bad(ID, Status::Failed, found, cost, Some(fix))
}

/// The command that enrols a key.
fn enrolment(key: &Key, uid: u32, comment: &str) -> String {
    let line = trust::line(&key.public(), uid, "");
    let comment = shell_words::quote(comment);
    format!("sudo landbox-audit trust add {} {comment}", line.trim()).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_enrols_has_the_words_of_the_keys_own_line() {
        let dir = tempfile::tempdir().unwrap();
        let key = Key::load(&dir.path().join("landbox")).unwrap();
        let line = trust::line(&key.public(), 1000, "alice");
        let command = enrolment(&key, 1000, "alice");
        assert_eq!(command, format!("sudo landbox-audit trust add {}", line.trim()));
    }
}

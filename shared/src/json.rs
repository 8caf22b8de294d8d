//! Texts in a JSON document by where they stand, for programs that read no more of one. Nothing is made of it but slices.

/// How deep objects and lists may lie in each other.
const DEPTH: u8 = 64;

/// The texts at the end of a path of keys, in order; lists on the way are gone through. They are as they are written:
/// what was escaped stays so. `None` where the document is not whole, or where a key is escaped, which could be any.
pub fn texts<'a>(document: &'a [u8], path: &[&str]) -> Option<Vec<&'a [u8]>> {
    let mut reader = Reader { rest: document, found: Vec::new() };
    reader.value(Some(path), DEPTH)?;
    reader.skip();
    reader.rest.is_empty().then_some(reader.found)
}

struct Reader<'a> {
    rest: &'a [u8],
    found: Vec<&'a [u8]>,
}

impl<'a> Reader<'a> {
    /// Goes over a value; `path` is what is left of the way to what is looked for, if this is on it.
    fn value(&mut self, path: Option<&[&str]>, depth: u8) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        if self.eat(b'{') {
            self.several(b'}', |reader| {
                let key = reader.string()?;
                let plain = !key.contains(&b'\\');
                let inner = path
                    .and_then(|path| path.split_first())
                    .filter(|(first, _)| first.as_bytes() == key)
                    .map(|(_, inner)| inner);
                (plain && reader.eat(b':')).then(|| reader.value(inner, depth))?
            })
        } else if self.eat(b'[') {
            self.several(b']', |reader| reader.value(path, depth))
        } else if self.rest.first() == Some(&b'"') {
            let text = self.string()?;
            self.found.extend(path.filter(|path| path.is_empty()).map(|_| text));
            Some(())
        } else {
            let word = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
            let length = self.rest.iter().take_while(|byte| word(byte)).count();
            self.rest = &self.rest[length..];
            (length > 0).then_some(())
        }
    }

    /// Goes over what stands between commas, up to `end`.
    fn several(&mut self, end: u8, mut one: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        if self.eat(end) {
            return Some(());
        }
        loop {
            self.skip();
            one(self)?;
            if self.eat(end) {
                return Some(());
            }
            self.eat(b',').then_some(())?;
        }
    }

    fn string(&mut self) -> Option<&'a [u8]> {
        let text = self.rest.strip_prefix(b"\"")?;
        let mut escaped = false;
        let end = text.iter().position(|byte| {
            let ends = *byte == b'"' && !escaped;
            escaped = *byte == b'\\' && !escaped;
            ends
        })?;
        self.rest = &text[end + 1..];
        Some(&text[..end])
    }

    fn skip(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    /// Goes over blanks and `byte`, if that is next.
    fn eat(&mut self, byte: u8) -> bool {
        self.skip();
        let rest = self.rest.strip_prefix(&[byte]);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: &str = r#"{"launches": [
        {"number": 1, "boundary": null, "failure": {"message": "\"evidence_digest\": \"sha256:x\"", "path": "evidence_digest"}},
        {"number": 2, "boundary": {"namespaces": ["user", "mnt"], "evidence_digest": "sha256:1", "abi": -1.5e+3}},
        {"number": 3, "boundary": {"evidence_digest": "sha256:2"}}], "evidence_digest": "elsewhere", "empty": [{}, [], true]}"#;

    fn found(document: &str, path: &[&str]) -> Option<Vec<String>> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        texts(document.as_bytes(), path).map(|found| found.into_iter().map(text).collect())
    }

    #[test]
    fn texts_are_found_by_where_they_stand_and_nowhere_else() {
        let path = ["launches", "boundary", "evidence_digest"];
        assert_eq!(found(STATE, &path).unwrap(), ["sha256:1", "sha256:2"]);
        assert_eq!(found(STATE, &["evidence_digest"]).unwrap(), ["elsewhere"]);
        assert_eq!(found(STATE, &["launches", "boundary", "namespaces"]).unwrap(), ["user", "mnt"]);
        assert_eq!(found(STATE, &["launches", "number"]).unwrap(), [""; 0]);
        assert_eq!(found(STATE, &["nothing"]).unwrap(), [""; 0]);
    }

    #[test]
    fn a_document_that_is_not_whole_says_nothing() {
        for end in 0..STATE.len() {
            assert_eq!(found(&STATE[..end], &["evidence_digest"]), None, "{end}");
        }
        for bad in ["{} {}", "{\"a\" 1}", "{\"a\": }", "[1,]", "[1 2]", "{\"\\u0061\": 1}", "\0\0"]
        {
            assert_eq!(found(bad, &[]), None, "{bad}");
        }
        let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(found(&deep(64), &[]).is_some());
        assert!(found(&deep(65), &[]).is_none());
        assert!(found(&"[".repeat(1 << 20), &[]).is_none());
    }
}

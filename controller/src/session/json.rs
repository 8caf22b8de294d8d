//! How a session's documents are written: an object a line for each key, a list on one. A policy can list thousands of
//! ports, and a line for each would be most of what starting a session writes.

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use std::io::{self, Write};

/// A document as text, with a final newline.
pub(super) fn to_bytes(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(4096);
    value.serialize(&mut Serializer::with_formatter(&mut bytes, Lines::default()))?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Where the text stands.
#[derive(Debug, Default)]
struct Lines {
    depth: usize,
    /// Whether the object that ends has something in it.
    filled: bool,
}

impl Lines {
    fn line<W: ?Sized + Write>(&self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| writer.write_all(b"  "))
    }
}

impl Formatter for Lines {
    fn begin_array_value<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth += 1;
        self.filled = false;
        writer.write_all(b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth -= 1;
        if self.filled {
            self.line(writer)?;
        }
        writer.write_all(b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if !first {
            writer.write_all(b",")?;
        }
        self.line(writer)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.filled = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_list_takes_one_line_and_an_object_one_for_each_key() {
        let value =
            json!({"a": {}, "b": [1, 2, 3], "c": [{"d": [], "e": "\u{1}"}, null], "f": {"g": 1.5}});
        let text = String::from_utf8(to_bytes(&value).unwrap()).unwrap();
        let wanted = "{\n  \"a\": {},\n  \"b\": [1, 2, 3],\n  \"c\": [{\n    \"d\": [],\n    \"e\": \"\\u0001\"\n  }, null],\n  \"f\": {\n    \"g\": 1.5\n  }\n}\n";
        assert_eq!(text, wanted);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        assert_eq!(to_bytes(&json!([])).unwrap(), b"[]\n");
    }
}

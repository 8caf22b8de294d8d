//! Byte strings in JSON documents: text form under the key, and the raw bytes in base64 under `<key>_b64` where the two
//! differ.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use landbox_shared::bytes;
use serde::ser::SerializeMap;

/// Adds `key`, and `key_b64` where the text form differs from the bytes. Absent is null.
pub fn bytes_entry<M: SerializeMap>(
    map: &mut M,
    key: &str,
    value: Option<&[u8]>,
) -> Result<(), M::Error> {
    map.serialize_entry(key, &value.map(bytes::escape))?;
    match value {
        Some(raw) if bytes::needs_escape(raw) => {
            map.serialize_entry(&format!("{key}_b64"), &BASE64_STANDARD.encode(raw))
        }
        Some(_) | None => Ok(()),
    }
}

/// Adds an array under `key`, and an array of the same length under `key_b64` (null where the text is enough) if any
/// text form differs from its bytes.
pub fn bytes_array_entry<M: SerializeMap, B: AsRef<[u8]>>(
    map: &mut M,
    key: &str,
    values: &[B],
) -> Result<(), M::Error> {
    let texts: Vec<String> = values.iter().map(|v| bytes::escape(v.as_ref())).collect();
    map.serialize_entry(key, &texts)?;
    if !values.iter().any(|v| bytes::needs_escape(v.as_ref())) {
        return Ok(());
    }
    let raw: Vec<Option<String>> = values
        .iter()
        .map(AsRef::as_ref)
        .map(|v| bytes::needs_escape(v).then(|| BASE64_STANDARD.encode(v)))
        .collect();
    map.serialize_entry(&format!("{key}_b64"), &raw)
}

//! The form of netlink messages: a header, a family header, and attributes, all aligned to four bytes.

/// Length of the header of a message.
const HEAD: usize = 16;
/// A request.
pub const REQUEST: u16 = 0x1;
/// The answer is a list.
pub const DUMP: u16 = 0x300;
/// Wants an acknowledgement.
pub const ACK: u16 = 0x4;
/// Makes the object, and must not find it there.
pub const CREATE: u16 = 0x600;
/// The attribute holds attributes.
const NESTED: u16 = 0x8000;
/// What is left of an attribute's type without its flags.
const TYPE: u16 = 0x3fff;
/// An error, or with number 0 an acknowledgement.
const ERROR: u16 = 2;
/// The end of a list.
const DONE: u16 = 3;
/// The list changed while it was read.
const INTERRUPTED: u16 = 0x10;
/// What is said of such a list, and why it is asked for again.
pub const EINTR: i32 = 4;

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// What it is about.
    pub kind: u16,
    /// The family header and the attributes.
    pub body: &'a [u8],
}

/// What a packet of answers says beside its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// One more object.
    Object(Message<'a>),
    /// The end, or what the kernel refused (an error number; 0: nothing; [`EINTR`]: the list changed while it was made).
    End(i32),
}

/// Reads the answers in one packet, each with the number of its request. `None`: it is not well formed.
pub fn answers(mut packet: &[u8]) -> Option<Vec<(u32, Answer<'_>)>> {
    let mut answers = Vec::new();
    while !packet.is_empty() {
        let length = usize::try_from(u32_at(packet, 0)?).ok()?;
        let (kind, flags) = (u16_at(packet, 4)?, u16_at(packet, 6)?);
        let body = packet.get(HEAD..length)?;
        let answer = match kind {
            _ if flags & INTERRUPTED != 0 => Answer::End(EINTR),
            // The number is there wherever the kernel has something to say.
            ERROR | DONE => Answer::End(u32_at(body, 0)?.cast_signed().wrapping_neg()),
            kind => Answer::Object(Message { kind, body }),
        };
        answers.push((u32_at(packet, 8)?, answer));
        packet = packet.get(aligned(length)..).unwrap_or_default();
    }
    Some(answers)
}

/// Takes every object in one packet of answers to request `seq`; says whether it has the last. Whatever was sent before
/// must have passed, too: its errors lie before the answer. Fails with an error number.
pub fn gather(
    packet: &[u8],
    seq: u32,
    mut take: impl FnMut(Message<'_>) -> Option<()>,
) -> Result<bool, i32> {
    const EPROTO: i32 = 71;
    const EBADMSG: i32 = 74;
    let answers = Some(packet).filter(|packet| !packet.is_empty()).and_then(answers);
    for (of, answer) in answers.ok_or(EBADMSG)? {
        match answer {
            Answer::End(0) if of == seq => return Ok(true),
            Answer::End(0) => {}
            Answer::End(errno) => return Err(errno),
            Answer::Object(message) if of == seq => take(message).ok_or(EPROTO)?,
            Answer::Object(_) => return Err(EBADMSG),
        }
    }
    Ok(false)
}

/// Makes a message.
pub fn message(kind: u16, flags: u16, seq: u32, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD + body.len());
    let length = u32::try_from(HEAD + body.len()).unwrap_or(u32::MAX);
    out.extend(length.to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out.extend(seq.to_ne_bytes());
    out.extend([0; 4]);
    out.extend_from_slice(body);
    out
}

/// Makes an attribute, padded.
pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = 4 + value.len();
    let mut out = Vec::with_capacity(aligned(length));
    out.extend(u16::try_from(length).unwrap_or(u16::MAX).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend_from_slice(value);
    out.resize(aligned(length), 0);
    out
}

/// Makes an attribute that holds a text, with the final NUL.
pub fn text(kind: u16, value: &str) -> Vec<u8> {
    attribute(kind, &[value.as_bytes(), &[0]].concat())
}

/// Makes an attribute that holds others.
pub fn nested(kind: u16, attributes: &[Vec<u8>]) -> Vec<u8> {
    attribute(kind | NESTED, &attributes.concat())
}

/// The attributes in a stretch of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    /// Those of a message, after a family header of `head` bytes. `None`: it is shorter.
    pub fn after(head: usize, body: &'a [u8]) -> Option<Self> {
        body.get(aligned(head)..).map(Self)
    }

    /// The first of this kind.
    pub fn get(self, kind: u16) -> Option<&'a [u8]> {
        self.into_iter().find(|(found, _)| *found == kind).map(|(_, value)| value)
    }

    /// Those inside the first of this kind.
    pub fn inside(self, kind: u16) -> Option<Self> {
        self.get(kind).map(Self)
    }

    /// A number in network order.
    pub fn be32(self, kind: u16) -> Option<u32> {
        self.get(kind)?.try_into().ok().map(u32::from_be_bytes)
    }

    /// A number in network order.
    pub fn be64(self, kind: u16) -> Option<u64> {
        self.get(kind)?.try_into().ok().map(u64::from_be_bytes)
    }

    /// A text, without its final NUL.
    pub fn text(self, kind: u16) -> Option<&'a str> {
        std::str::from_utf8(self.get(kind)?).ok().map(|text| text.trim_end_matches('\0'))
    }
}

impl<'a> IntoIterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        Iter(self.0)
    }
}

/// Goes through attributes; ends at the first that is not well formed.
#[derive(Clone, Debug)]
pub struct Iter<'a>(&'a [u8]);

impl<'a> Iterator for Iter<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(u16_at(self.0, 0)?);
        let value = self.0.get(4..length)?;
        let kind = u16_at(self.0, 2)? & TYPE;
        self.0 = self.0.get(aligned(length)..).unwrap_or_default();
        Some((kind, value))
    }
}

fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|b| u16::from_ne_bytes(*b))
}

/// A number in the machine's order, at an offset.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_ne_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_as_they_were_made() {
        let inner = [text(1, "name"), attribute(2, &7u32.to_be_bytes())];
        let body = [vec![0; 4], attribute(5, b"odd"), nested(6, &inner)].concat();
        let all = Attributes::after(4, &body).unwrap();
        assert_eq!(all.get(5), Some(&b"odd"[..]));
        let inside = all.inside(6).unwrap();
        assert_eq!((inside.text(1), inside.be32(2)), (Some("name"), Some(7)));
        assert_eq!((all.get(7), inside.be64(2)), (None, None));
    }

    #[test]
    fn answers_have_the_number_of_their_request() {
        let error = message(ERROR, 0, 2, &(-2i32).to_ne_bytes());
        let packet = [message(9, 0, 1, b"mine"), error, message(DONE, 0, 3, &[0; 4])].concat();
        let object = Answer::Object(Message { kind: 9, body: b"mine" });
        let expected = vec![(1, object), (2, Answer::End(2)), (3, Answer::End(0))];
        assert_eq!(answers(&packet), Some(expected));
    }

    #[test]
    fn what_one_request_is_answered_is_taken_until_its_end() {
        let (one, two) = (message(9, 0, 1, b"one,"), message(9, 0, 1, b"two,"));
        let end = |seq, errno: i32| message(DONE, 0, seq, &(-errno).to_ne_bytes());
        let gathered = |packet: &[Vec<u8>]| {
            let mut taken = Vec::new();
            let mut take = |message: Message<'_>| {
                taken.push(message.body.to_vec());
                (message.body != b"bad,").then_some(())
            };
            let ended = gather(&packet.concat(), 1, &mut take);
            (ended, taken.concat())
        };
        assert_eq!(gathered(&[one.clone(), two.clone()]), (Ok(false), b"one,two,".to_vec()));
        assert_eq!(gathered(&[one.clone(), end(1, 0)]), (Ok(true), b"one,".to_vec()));
        // Of an earlier request: that it passed, that it failed, an object.
        assert_eq!(gathered(&[end(7, 0), one.clone(), end(1, 0)]).0, Ok(true));
        assert_eq!(gathered(&[end(7, 12), one.clone()]), (Err(12), vec![]));
        assert_eq!(gathered(&[message(9, 0, 7, b"mine")]).0, Err(74));
        assert_eq!(gathered(&[message(9, 0, 1, b"bad,")]).0, Err(71));
        assert_eq!(gathered(&[]).0, Err(74));
        assert_eq!(gathered(&[one[..17].to_vec()]).0, Err(74));
        // The kernel says at any message that the list has changed, at the last one, too.
        for kind in [9, DONE] {
            let changed = message(kind, INTERRUPTED, 1, &[0; 4]);
            assert_eq!(gathered(&[one.clone(), changed]), (Err(EINTR), b"one,".to_vec()));
        }
    }

    #[test]
    fn cut_lists_are_refused() {
        let whole = message(9, 0, 1, b"mine");
        for length in 1..whole.len() {
            assert_eq!(answers(&whole[..length]), None, "{length}");
        }
        assert_eq!(answers(&[0; 16]), None);
    }

    #[test]
    fn hostile_lengths_end_the_attributes() {
        for bytes in [&[3, 0, 1, 0][..], &[9, 0, 1, 0, 1], &[0; 8], &[4]] {
            assert_eq!(Attributes(bytes).into_iter().count(), 0, "{bytes:?}");
        }
    }
}

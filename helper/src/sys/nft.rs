//! Packet-filter objects, written as netlink messages by libnftnl. Its safe interface has no maps, no ranges, no
//! recorders and no messages without an acknowledgement each, so the objects are filled in here, attribute by attribute.
//! Which attributes is decided elsewhere.

use landbox_shared::network::ruleset::form::{Expression, Kind, Object, Parts, VALUE};
use nftnl::nftnl_sys as c;
use nftnl::{Batch, MsgType, NlMsg};
use std::ffi::c_void;

/// The family `inet`.
const INET: u16 = 1;

/// Calls `set` with number, bytes and length of each part. Behind the bytes there is room for the largest of the fixed
/// sizes that libnftnl copies for some numbers whatever the length.
fn put(parts: &Parts, mut set: impl FnMut(u16, *const c_void, u32)) {
    for (number, value) in parts {
        let (mut room, bytes) = ([0u8; VALUE], value.bytes());
        let length = bytes.len().min(VALUE);
        room[..length].copy_from_slice(&bytes[..length]);
        set(*number, room.as_ptr().cast(), u32::try_from(length).unwrap_or(0));
    }
}

/// Out of memory is the one way in which libnftnl makes nothing; Rust's own answer to that is the same.
fn made<T>(object: *mut T) -> *mut T {
    if object.is_null() {
        std::process::abort();
    }
    object
}

fn expression(Expression { name, parts }: &Expression) -> *mut c::nftnl_expr {
    // SAFETY: the name is a NUL-terminated constant. An unknown one gives null, which ends the process.
    let expr = made(unsafe { c::nftnl_expr_alloc(name.as_ptr()) });
    put(parts, |number, data, length| {
        // SAFETY: `data` has VALUE bytes of which `length` count (`Object::new`), more than any fixed attribute has; a
        // text ends with a NUL. libnftnl copies them and refuses numbers the expression hasn't.
        unsafe { c::nftnl_expr_set(expr, number, data, length) };
    });
    expr
}

fn element(parts: &Parts) -> *mut c::nftnl_set_elem {
    // SAFETY: takes nothing.
    let element = made(unsafe { c::nftnl_set_elem_alloc() });
    put(parts, |number, data, length| {
        // SAFETY: as in `expression`.
        unsafe { c::nftnl_set_elem_set(element, number, data, length) };
    });
    element
}

/// Makes one object of libnftnl, fills it in, writes it, and frees it with all that was added to it.
macro_rules! write {
    ($object:expr, $header:expr, $alloc:ident, $set:ident, $build:ident, $free:ident, $fill:expr) => {{
        // SAFETY: takes nothing.
        let made = made(unsafe { c::$alloc() });
        put($object.parts(), |number, data, length| {
            // SAFETY: as in `expression`; the object was just made and is freed below.
            unsafe { c::$set(made, number, data, length) };
        });
        #[allow(clippy::redundant_closure_call)]
        ($fill)(made);
        let (number, flags) = $header.1;
        // SAFETY: whoever calls `NlMsg::write` promises a buffer with room for the largest message.
        let header = unsafe { c::nftnl_nlmsg_build_hdr($header.0, number, INET, flags, $header.2) };
        // SAFETY: the header lies in that buffer, and `Object::new` bounds the message.
        unsafe { c::$build(header, made) };
        // SAFETY: made above, and used no more.
        unsafe { c::$free(made) };
    }};
}

/// An object on its way into a batch.
struct Adding<'a>(&'a Object);

// SAFETY: `Object::new` bounds the message to less than the largest possible one.
unsafe impl NlMsg for Adding<'_> {
    #[rustfmt::skip] // one line a function
    unsafe fn write(&self, buffer: *mut c_void, seq: u32, _: MsgType) {
        let Self(object) = self;
        let header = (buffer.cast(), object.kind().message(), seq);
        match object.kind() {
            Kind::Table => write!(object, header, nftnl_table_alloc, nftnl_table_set_data,
                nftnl_table_nlmsg_build_payload, nftnl_table_free, |_| {}),
            Kind::Chain => write!(object, header, nftnl_chain_alloc, nftnl_chain_set_data,
                nftnl_chain_nlmsg_build_payload, nftnl_chain_free, |_| {}),
            // Rule and set own the expressions, the set its elements, from the moment they are added.
            Kind::Rule => write!(object, header, nftnl_rule_alloc, nftnl_rule_set_data,
                nftnl_rule_nlmsg_build_payload, nftnl_rule_free, |rule| for each in object.expressions() {
                    // SAFETY: both were just made.
                    unsafe { c::nftnl_rule_add_expr(rule, expression(each)) };
                }),
            Kind::Set => write!(object, header, nftnl_set_alloc, nftnl_set_set_data,
                nftnl_set_nlmsg_build_payload, nftnl_set_free, |set| for each in object.expressions() {
                    // SAFETY: both were just made.
                    unsafe { c::nftnl_set_add_expr(set, expression(each)) };
                }),
            Kind::Elements => write!(object, header, nftnl_set_alloc, nftnl_set_set_data,
                nftnl_set_elems_nlmsg_build_payload, nftnl_set_free, |set| for each in object.elements() {
                    // SAFETY: both were just made.
                    unsafe { c::nftnl_set_elem_add(set, element(each)) };
                }),
        }
    }
}

/// The bytes of one transaction, in pages.
pub(crate) fn transaction(objects: &[Object]) -> Vec<Vec<u8>> {
    let mut batch = Batch::new();
    objects.iter().for_each(|object| batch.add(&Adding(object), MsgType::Add));
    batch.finalize().iter().map(<[u8]>::to_vec).collect()
}

//! What the store keeps, drops and makes of damage.

use super::*;
use crate::land::changeset::Base;

fn rel(path: &[u8]) -> RelPath {
    RelPath::new(path).unwrap()
}

fn record(base: Base) -> Record {
    Record::of(base)
}

#[test]
fn records_survive_and_those_nobody_asks_for_go() {
    let dir = tempfile::tempdir().unwrap();
    let layer = LayerId::new("project").unwrap();
    let mut store = Store::open(dir.path(), &layer).unwrap();
    let link = Base::Known(Node::Symlink { target: b"\xff\n".to_vec() });
    store.put(rel(b"d/\xff\nx"), record(link.clone()));
    store.put(rel(b"gone"), record(Base::Absent));
    store.save(3).unwrap();
    drop(store);
    let mut store = Store::open(dir.path(), &layer).unwrap();
    assert_eq!(store.scanned, 3);
    assert_eq!(store.get(&rel(b"d/\xff\nx")).unwrap().base, link);
    store.save(3).unwrap();
    drop(store);
    let mut store = Store::open(dir.path(), &layer).unwrap();
    assert!(store.get(&rel(b"gone")).is_none());
    assert!(store.get(&rel(b"d/\xff\nx")).is_some());
}

#[test]
fn children_are_the_direct_ones() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path(), &LayerId::new("project").unwrap()).unwrap();
    for path in ["a", "a/b", "a/b/c", "a-x", "a/z", "ab"] {
        store.put(rel(path.as_bytes()), record(Base::Absent));
    }
    let mut found = store.children(Some(&rel(b"a")));
    found.sort();
    assert_eq!(found, [b"b", b"z"]);
    assert_eq!(store.children(None).len(), 3);
}

#[test]
fn a_torn_store_reads_as_empty() {
    let dir = tempfile::tempdir().unwrap();
    let layer = LayerId::new("project").unwrap();
    let mut store = Store::open(dir.path(), &layer).unwrap();
    store.put(rel(b"a"), record(Base::Absent));
    store.put(rel(b"b"), record(Base::Absent));
    store.save(1).unwrap();
    let path = store.path();
    drop(store);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 9]).unwrap();
    let mut store = Store::open(dir.path(), &layer).unwrap();
    assert_eq!(store.scanned, 0);
    assert!(store.get(&rel(b"a")).is_none());
}

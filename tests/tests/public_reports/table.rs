//! The table of reported faults names what is there.

use super::read;
use std::path::Path;

/// A text without its line ends.
fn flowing(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_test_and_every_limit_that_the_table_names_is_there() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let top = tests.parent().unwrap();
    let page = read(tests.join("REPORTS.md"));
    let mut named = 0;
    for (file, test) in page.split('`').skip(1).step_by(2).filter_map(|w| w.split_once("::")) {
        let places = [tests.join("tests").join(file), top.join(file)];
        let place = places.iter().find(|place| place.exists());
        let source = read(place.unwrap_or_else(|| panic!("there is no {file}")));
        assert!(source.contains(&format!("fn {test}(")), "there is no {test} in {file}");
        named += 1;
    }
    assert!(named > 90, "{named}");
    let readme = flowing(&read(top.join("README.md")));
    for limit in page.lines().flat_map(|line| line.split('"').skip(1).step_by(2)) {
        assert!(readme.contains(limit), "README.md does not say: {limit}");
    }
}

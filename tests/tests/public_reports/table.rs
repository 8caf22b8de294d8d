//! The table of reported faults names what is there.

use landbox_tests::pages;

/// A text without its line ends.
fn flowing(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_test_and_every_limit_that_the_table_names_is_there() {
    let page = pages::read("REPORTS.md");
    let named = pages::tests_named_in(&page);
    assert!(named > 90, "{named}");
    let readme = flowing(&pages::read("../README.md"));
    for limit in page.lines().flat_map(|line| line.split('"').skip(1).step_by(2)) {
        assert!(readme.contains(limit), "README.md does not say: {limit}");
    }
}

//! Pages beside the tests that say which test holds what.

use std::fs;
use std::path::Path;

/// A page of this folder.
#[track_caller]
pub fn read(name: &str) -> String {
    text(&Path::new(env!("CARGO_MANIFEST_DIR")).join(name))
}

/// How many tests `page` names, as `` `FILE::TEST` ``, FILE from the suite's folder or the top; each is there.
#[track_caller]
pub fn tests_named_in(page: &str) -> usize {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut named = 0;
    for (file, test) in page.split('`').skip(1).step_by(2).filter_map(|w| w.split_once("::")) {
        let places = [tests.join("tests").join(file), tests.join("..").join(file)];
        let place = places.iter().find(|place| place.exists());
        let source = text(place.unwrap_or_else(|| panic!("there is no {file}")));
        assert!(source.contains(&format!("fn {test}(")), "there is no {test} in {file}");
        named += 1;
    }
    named
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

use super::*;
use landbox_shared::path::AbsPath;

/// Whether a rule for that folder alone fits what lies at `path` in `project`.
fn lies_in(word: &'static str, project: &str, path: &str, is_link: bool) -> bool {
    let mut index = Index::default();
    let first = word.split('/').next().unwrap();
    index.folders.insert(first.as_bytes(), vec![(word.as_bytes(), 0)]);
    let project = AbsPath::new(project).unwrap();
    let site = Site { project: &project, home: &project };
    let lower = Lower::of(&RelPath::new(path).unwrap());
    let mut found = BTreeSet::new();
    index.folders(&Place::of(&lower, &site, is_link), &mut found);
    !found.is_empty()
}

#[test]
fn every_rule_is_in_lower_case_and_said_once() {
    let mut seen = std::collections::HashSet::new();
    for (Rule(_, words, why), patterns) in rules() {
        assert_eq!(*words, words.to_ascii_lowercase());
        assert!(!why.is_empty() && !why.ends_with('.'));
        for pattern in patterns {
            let (Name(word) | Start(word) | End(word) | Hidden(word) | In(word) | Home(word)) =
                pattern;
            assert!(!word.is_empty() && !word.contains(['*', '~']), "{word}");
            assert!(matches!(pattern, In(_) | Home(_)) || !word.contains('/'), "{word}");
            assert!(seen.insert(pattern), "{word}");
        }
    }
}

#[test]
fn a_folder_is_meant_by_whole_names() {
    assert!(lies_in(".vscode", "/p", "a/.vscode/x", false));
    assert!(lies_in(".github/workflows", "/p", ".github/workflows/x", false));
    assert!(!lies_in(".vscode", "/p", "a/x.vscode/x", false));
    assert!(!lies_in(".vscode", "/p", ".vscode-test/x", false));
    assert!(!lies_in(".vscode", "/p", ".vscode", false));
    assert!(lies_in(".vscode", "/p", ".vscode", true));
}

#[test]
fn the_place_of_the_project_counts_only_together_with_the_path() {
    assert!(lies_in(".config/autostart", "/home/a/.config", "autostart/x", false));
    assert!(!lies_in(".claude", "/home/a/.claude/tree", "src/x", false));
    assert!(!lies_in(".config/autostart", "/home/a/.config/autostart", "x", false));
    assert!(lies_in(".config/autostart", "/", ".config/autostart/x", false));
}

#[test]
fn a_link_counts_for_the_folders_that_it_may_lead_to() {
    assert!(lies_in(".github/workflows", "/p", ".github", true));
    assert!(lies_in(".github/workflows", "/p/.github", "workflows", true));
    assert!(!lies_in(".github/workflows", "/p", ".git", true));
    assert!(!lies_in(".github/workflows", "/p", ".github", false));
}

//! Package manifests: which of their parts run code. A changed list of dependencies is an ordinary edit; a changed
//! script is not.

use super::{Lower, Risk, RiskKind};
use landbox_shared::path::RelPath;
use serde_json::Value;

/// A manifest in JSON, and the keys under which it holds what is run.
struct Manifest {
    name: &'static [u8],
    keys: &'static [&'static str],
    why: &'static str,
}

const MANIFESTS: &[Manifest] = &[
    Manifest {
        name: b"package.json",
        keys: &[
            // Run by install, test, start and by name.
            "scripts",
            // Compiles, which runs binding.gyp.
            "gypfile",
            // Put on PATH for every script of the project, where a name may hide a system command.
            "bin",
            // Hook managers, which install git hooks from here.
            "husky",
            "simple-git-hooks",
            "lint-staged",
            "pre-commit",
            "gitHooks",
            // Downloaded and run by corepack, volta and the like.
            "packageManager",
            "devEngines",
            "volta",
            // Settings of the package manager itself, such as which packages may run scripts.
            "pnpm",
            "config",
            "overrides",
            "resolutions",
            "trustedDependencies",
            // Configuration of tools that load code by it.
            "jest",
            "babel",
            "eslintConfig",
            "prettier",
            "stylelint",
            "postcss",
            "commitlint",
            "release",
            "mocha",
            "ava",
            "nyc",
            "c8",
            "xo",
            "nx",
            "wireit",
        ],
        why: "its scripts or settings of the package manager changed",
    },
    Manifest {
        name: b"composer.json",
        keys: &["scripts", "config", "repositories", "extra"],
        why: "its scripts or settings of the package manager changed",
    },
    Manifest {
        name: b"deno.json",
        keys: &["tasks", "imports", "importMap"],
        why: "its tasks or imports changed",
    },
    Manifest {
        name: b"deno.jsonc",
        keys: &["tasks", "imports", "importMap"],
        why: "its tasks or imports changed",
    },
    Manifest {
        name: b"global.json",
        keys: &["sdk", "msbuild-sdks"],
        why: "what builds it, and is downloaded for that, changed",
    },
];

/// A manifest in TOML or INI, of which the sections that begin like one of these run code.
struct Sections {
    name: &'static [u8],
    starts: &'static [&'static str],
    /// Keys that count wherever they stand.
    keys: &'static [&'static str],
    why: &'static str,
}

const SECTIONS: &[Sections] = &[
    Sections {
        name: b"pyproject.toml",
        // The build system is downloaded and run; tools of the same file run hooks and plug-ins.
        starts: &["build-system", "tool.", "project.scripts", "project.entry-points"],
        keys: &[],
        why: "its build system or the settings of tools changed",
    },
    Sections {
        name: b"cargo.toml",
        // Patches replace code of other packages; profiles and the rest run nothing.
        starts: &["patch", "replace", "build-dependencies", "target."],
        // A build script by another name.
        keys: &["build", "proc-macro", "links"],
        why: "what its build runs or replaces changed",
    },
    Sections {
        name: b"setup.cfg",
        starts: &["options", "tool:", "build", "install", "aliases"],
        keys: &[],
        why: "what its installation runs changed",
    },
];

/// Whether a file of this name is a manifest.
pub(super) fn is_one(path: &RelPath) -> bool {
    let lower = Lower::of(path);
    let name = lower.name();
    MANIFESTS.iter().any(|m| m.name == name) || SECTIONS.iter().any(|s| s.name == name)
}

/// Judges a manifest by its two contents.
pub(super) fn judge<'a>(
    path: &RelPath,
    new: &[u8],
    old: &dyn Fn() -> Option<&'a [u8]>,
) -> Option<Risk> {
    let lower = Lower::of(path);
    let name = lower.name();
    if let Some(manifest) = MANIFESTS.iter().find(|m| m.name == name) {
        let same = match (parts(new), old().map(parts)) {
            (Some(new), None) => manifest.keys.iter().all(|key| new.get(*key).is_none()),
            (Some(new), Some(Some(old))) => {
                manifest.keys.iter().all(|key| new.get(*key) == old.get(*key))
            }
            // What we can't understand, a package manager may.
            (Some(_), Some(None)) | (None, _) => false,
        };
        return (!same).then(|| Risk::new(RiskKind::Install, manifest.why));
    }
    let sections = SECTIONS.iter().find(|s| s.name == name)?;
    let differs = sections.of(new) != sections.of(old().unwrap_or_default());
    differs.then(|| Risk::new(RiskKind::Install, sections.why))
}

/// The document of a manifest; comments are what some allow.
fn parts(bytes: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(bytes).ok()?;
    let value: Option<Value> =
        jsonc_parser::parse_to_serde_value(text, &jsonc_parser::ParseOptions::default()).ok()?;
    value.filter(Value::is_object)
}

impl Sections {
    /// The lines that matter.
    fn of<'a>(&self, bytes: &'a [u8]) -> Vec<&'a [u8]> {
        // Before the first heading a key may name the section it belongs to.
        let mut heading = false;
        let mut inside = false;
        let mut out = Vec::new();
        for line in bytes.split(|b| matches!(b, b'\n' | b'\r')).map(<[u8]>::trim_ascii) {
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            // Quotes and spaces are ways to write the same name; so are escapes, which are not read here.
            let bare = |text: &[u8]| -> Vec<u8> {
                let marks = |b: &u8| !matches!(b, b'[' | b']' | b' ' | b'"' | b'\'' | b'\t');
                text.iter().copied().filter(marks).collect()
            };
            let key = bare(line.split(|b| *b == b'=').next().unwrap_or_default());
            if line.starts_with(b"[") {
                heading = true;
                inside = self.starts.iter().any(|start| key.starts_with(start.as_bytes()));
            } else if !heading {
                let names = |start: &&str| key.starts_with(start.trim_end_matches('.').as_bytes());
                inside |= self.starts.iter().any(names);
            }
            let escaped = key.contains(&b'\\');
            inside |= escaped && line.starts_with(b"[");
            let first = key.split(|b| *b == b'.').next().unwrap_or_default();
            if inside || escaped || self.keys.iter().any(|k| k.as_bytes() == first) {
                out.push(line);
            }
        }
        out
    }
}

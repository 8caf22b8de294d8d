//! What the task is started with. It travels in a frame of its own, never on disk and never in an argument list.

use serde::{Deserialize, Serialize};
use std::ffi::{CStr, CString};
use std::fmt;

/// Arguments and environment of the task.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// The argument vector; the first one names the program, looked up in `PATH` of [`Exec::env`] if it has no slash.
    pub argv: Vec<Vec<u8>>,
    /// `NAME=value` strings.
    pub env: Vec<Vec<u8>>,
}

// The environment holds secrets: debug output shows counts alone.
impl fmt::Debug for Exec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exec {{ argv: {} strings, env: {} strings }}", self.argv.len(), self.env.len())
    }
}

/// Where a program is looked up without a `PATH`.
const DEFAULT_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";

impl Exec {
    /// What is wrong with it whatever the plan is.
    pub fn flaw(&self) -> Option<&'static str> {
        let Self { argv, env } = self;
        if argv.first().is_none_or(Vec::is_empty) {
            return Some("the command is empty");
        }
        let clean = argv.iter().chain(env).all(|text| !text.contains(&0));
        (!clean).then_some("a NUL byte in an argument or in the environment")
    }

    /// Where its program may lie, in the order in which execvp(3) tries.
    pub fn candidates(&self) -> Vec<Vec<u8>> {
        let name = self.argv.first().map(Vec::as_slice).unwrap_or_default();
        if name.contains(&b'/') {
            return vec![name.to_vec()];
        }
        let path = self.env.iter().find_map(|text| text.strip_prefix(b"PATH="));
        let in_folder = |folder: &[u8]| match folder {
            // An empty entry is the working folder.
            b"" => [b"./", name].concat(),
            folder if folder.ends_with(b"/") => [folder, name].concat(),
            folder => [folder, b"/", name].concat(),
        };
        path.unwrap_or(DEFAULT_PATH).split(|b| *b == b':').map(in_folder).collect()
    }
}

/// What is told of a program that no place had: the first error that says more than "not there", as with execvp(3).
#[derive(Clone, Copy, Debug)]
pub struct Tried {
    /// The number of the error.
    pub errno: i32,
}

impl Default for Tried {
    fn default() -> Self {
        Self { errno: Self::NOT_THERE[0] }
    }
}

impl Tried {
    /// ENOENT, ENOTDIR, ESTALE, ENODEV, ETIMEDOUT.
    const NOT_THERE: [i32; 5] = [2, 20, 116, 19, 110];
    const EACCES: i32 = 13;

    /// Notes what became of one place; says whether that is the end. A folder of the search path that may not be entered
    /// says nothing about the program, unless that is `there`.
    pub fn note(&mut self, errno: i32, there: impl FnOnce() -> bool) -> bool {
        let ends = errno != Self::EACCES && !Self::NOT_THERE.contains(&errno);
        if ends || (errno == Self::EACCES && there()) {
            self.errno = errno;
        }
        ends
    }
}

/// An [`Exec`] as execve(2) wants it.
#[derive(Clone)]
pub struct Program {
    /// Where it may lie.
    pub candidates: Vec<CString>,
    /// Its arguments.
    pub argv: Vec<CString>,
    /// Its environment.
    pub env: Vec<CString>,
}

impl Program {
    /// `None` where a NUL byte is in the way.
    pub fn new(exec: Exec) -> Option<Self> {
        let all = |texts: Vec<Vec<u8>>| {
            texts.into_iter().map(|text| CString::new(text).ok()).collect::<Option<Vec<_>>>()
        };
        let candidates = all(exec.candidates())?;
        Some(Self { candidates, argv: all(exec.argv)?, env: all(exec.env)? })
    }

    /// Its arguments where `shell` runs the script at `path`, which names no interpreter.
    pub fn as_script<'a>(&'a self, shell: &'a CStr, path: &'a CStr) -> Vec<&'a CStr> {
        [shell, path].into_iter().chain(self.argv.iter().skip(1).map(CString::as_c_str)).collect()
    }

    /// Whether it is named by a path, and looked for nowhere else.
    pub fn is_path(&self) -> bool {
        self.argv.first().is_some_and(|name| name.as_bytes().contains(&b'/'))
    }
}

// As above: the environment holds secrets.
impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { candidates, argv, env } = self;
        let counts = [candidates.len(), argv.len(), env.len()];
        write!(f, "Program {{ candidates, argv, env: {counts:?} strings }}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exec(name: &str, path: Option<&str>) -> Exec {
        let env = path.map(|path| format!("PATH={path}").into()).into_iter().collect();
        Exec { argv: vec![name.into()], env }
    }

    #[test]
    fn a_name_with_a_slash_is_taken_as_it_is() {
        assert_eq!(exec("./a", Some("/bin")).candidates(), [b"./a".to_vec()]);
    }

    #[test]
    fn a_bare_name_is_looked_up_in_order_and_an_empty_entry_is_here() {
        let found = exec("a", Some("/x::/y/")).candidates();
        assert_eq!(found, [b"/x/a".to_vec(), b"./a".to_vec(), b"/y/a".to_vec()]);
        assert_eq!(exec("a", None).candidates().last().unwrap(), b"/bin/a");
    }

    #[test]
    fn the_first_error_that_says_more_than_not_there_is_told() {
        // The places' errors, whether the program is at one that refuses, and what is told.
        for (errors, there, told) in [
            (&[2, 20, 116][..], true, 2),
            (&[2, 13, 2], true, 13),
            (&[2, 13, 2], false, 2),
            (&[13, 8, 7], true, 8),
            (&[2, 7, 13], true, 7),
        ] {
            let mut tried = Tried::default();
            let ends = errors.iter().position(|errno| tried.note(*errno, || there));
            assert_eq!((tried.errno, ends.is_some()), (told, [7, 8].contains(&told)), "{errors:?}");
        }
    }

    #[test]
    fn a_command_has_a_name_and_no_nul_byte() {
        assert_eq!(exec("a", Some("/b")).flaw(), None);
        assert!(exec("", None).flaw().is_some());
        assert!(Exec { argv: vec![], env: vec![] }.flaw().is_some());
        assert!(exec("a\0b", None).flaw().is_some());
        assert!(exec("a", Some("/b\0")).flaw().is_some());
    }
}

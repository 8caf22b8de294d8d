//! The flags by which `diff` and `land` are told which changes are meant.

use crate::error::{Context, Result};
use crate::land::kind::Group;
use crate::land::resolve::Choices;
use crate::land::select::{Exclude, Selection, Wanted};
use crate::ui::card::{Asked, word};
use clap::{Args, ValueEnum};
use landbox_shared::path::AbsPath;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

#[derive(Debug, Args)]
pub(super) struct SelectArgs {
    /// Include what the project's own ignore rules cover
    #[arg(long)]
    with_ignored: bool,
    /// Only changes of this group
    #[arg(long, value_name = "GROUP", conflicts_with = "with_ignored")]
    only_group: Option<OnlyGroup>,
    /// Leave out what GLOB matches, written as in .gitignore; may be given more than once
    #[arg(long, value_name = "GLOB", allow_hyphen_values = true)]
    exclude: Vec<String>,
    /// Only these files and folders, as seen from here or from the project. A rename goes by either of its names
    #[arg(value_name = "PATH", last = true)]
    paths: Vec<OsString>,
}

/// [`Group`] as it is typed.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum OnlyGroup {
    /// The project proper
    Project,
    /// What ignore rules cover
    Ignored,
    /// Git's own files, which never land
    Git,
}

/// The directory whose newest session is meant where none is named.
pub(super) fn here() -> Result<Option<AbsPath>> {
    let here = std::env::current_dir().and_then(|dir| dir.canonicalize());
    let here = here.context(|| "the current folder is gone, or can't be looked at".into());
    let here = here.map_err(|failure| failure.hint("name a session: landbox ls lists them"))?;
    Ok(AbsPath::from_path(&here).ok())
}

/// Typed paths are read from here; without a here, from the project.
fn wanted(paths: Vec<OsString>) -> Vec<Wanted> {
    let here = std::env::current_dir().and_then(|dir| dir.canonicalize()).ok();
    let here = here.and_then(|dir| AbsPath::from_path(&dir).ok());
    paths.into_iter().map(|path| Wanted::new(path.into_vec(), here.clone())).collect()
}

/// What lies at these paths; everything where there are none.
pub(super) fn of_paths(paths: Vec<OsString>) -> Selection {
    Selection { paths: wanted(paths), ..Selection::default() }
}

impl SelectArgs {
    /// Whether they choose a part.
    pub(super) fn chooses(&self) -> bool {
        self.only_group.is_some() || !self.exclude.is_empty() || !self.paths.is_empty()
    }

    /// The same as words of a command line.
    pub(super) fn asked(&self) -> Asked {
        let mut options = String::new();
        if self.with_ignored {
            options.push_str(" --with-ignored");
        }
        if let Some(group) = self.only_group {
            options.push_str(match group {
                OnlyGroup::Project => " --only-group project",
                OnlyGroup::Ignored => " --only-group ignored",
                OnlyGroup::Git => " --only-group git",
            });
        }
        for glob in &self.exclude {
            options.push_str(" --exclude ");
            options.push_str(&word(glob.as_bytes()));
        }
        let mut paths = String::new();
        for path in &self.paths {
            paths.push_str(if paths.is_empty() { " -- " } else { " " });
            paths.push_str(&word(path.as_bytes()));
        }
        Asked { options, paths, ..Asked::default() }
    }

    pub(super) fn selection(self) -> Result<Selection> {
        Ok(Selection {
            with_ignored: self.with_ignored,
            only: self.only_group.map(|group| match group {
                OnlyGroup::Project => Group::Project,
                OnlyGroup::Ignored => Group::Ignored,
                OnlyGroup::Git => Group::Git,
            }),
            paths: wanted(self.paths),
            exclude: Exclude::new(&self.exclude)?,
            all: false,
            back: false,
            checkpoint: None,
            reviewed: None,
            choices: Choices::default(),
        })
    }
}

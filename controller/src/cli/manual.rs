//! The manual: one page a command, made from the one definition of the command and a few sections that it can't know.

use clap::Command;
use clap_mangen::Man;
use std::io;

/// What is said of the command as a whole.
const SECTIONS: &str = include_str!("manual.roff");
/// What stands at the end of every other page.
const SEE_ALSO: &str =
    ".SH \"SEE ALSO\"\n.BR landbox (1),\n.BR bots.json (5),\n.BR landbox\\-json (5)\n";
const MANUAL: &str = "Landbox Manual";

/// One page.
pub(super) struct Page {
    /// `landbox-run.1`.
    pub(super) file: String,
    /// In the language of man(7).
    pub(super) text: Vec<u8>,
}

/// A page for the command and for each of its visible subcommands, theirs included. `date` is that of the release.
pub(super) fn pages(root: Command, date: &str) -> io::Result<Vec<Page>> {
    let root = definition(root);
    let mut pages = Vec::new();
    collect(&root, "landbox", date, &mut pages)?;
    Ok(pages)
}

/// All of it as one page, to be read at once.
pub(super) fn one(root: Command) -> io::Result<Vec<u8>> {
    let root = definition(root);
    let mut out = Vec::new();
    Man::new(root.clone()).render(&mut out)?;
    sections(&root, "landbox", &mut out)?;
    out.extend_from_slice(SECTIONS.as_bytes());
    Ok(out)
}

fn definition(root: Command) -> Command {
    let mut root = root.disable_help_subcommand(true);
    root.build();
    root
}

/// The subcommands that are shown.
fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|c| !c.is_hide_set())
}

fn collect(command: &Command, name: &str, date: &str, pages: &mut Vec<Page>) -> io::Result<()> {
    let is_root = name == "landbox";
    let man = Man::new(command.clone().display_name(name.to_owned()))
        .title(name.to_uppercase())
        .date(date)
        .source(concat!("landbox ", env!("CARGO_PKG_VERSION")))
        .manual(MANUAL);
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if visible(command).next().is_some() {
        man.render_subcommands_section(&mut text)?;
    }
    text.extend_from_slice(if is_root { SECTIONS } else { SEE_ALSO }.as_bytes());
    pages.push(Page { file: format!("{name}.1"), text });
    for inner in visible(command) {
        collect(inner, &format!("{name}-{}", inner.get_name()), date, pages)?;
    }
    Ok(())
}

/// Those of every subcommand below `command`, under the names as they are typed.
fn sections(command: &Command, name: &str, out: &mut Vec<u8>) -> io::Result<()> {
    for inner in visible(command) {
        let name = format!("{name} {}", inner.get_name());
        let man = Man::new(inner.clone().display_name(name.clone()));
        man.render_name_section(out)?;
        man.render_synopsis_section(out)?;
        man.render_description_section(out)?;
        man.render_options_section(out)?;
        sections(inner, &name, out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Cli;
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_manual_describes_every_visible_command() {
        let text = String::from_utf8(one(Cli::command()).unwrap()).unwrap();
        for command in Cli::command().get_subcommands().filter(|c| !c.is_hide_set()) {
            let name = format!("landbox {} \\- ", command.get_name().replace('-', "\\-"));
            assert!(text.contains(&name), "{name}");
        }
        assert!(text.contains("landbox sandbox\\-network\\-policy explain \\- "), "{text}");
        assert_eq!(text.matches(".TH ").count(), 1);
        assert!(text.contains("with\\-ignored"));
    }

    #[test]
    fn every_visible_command_has_a_page_of_its_own_and_no_other_has() {
        let pages = pages(Cli::command(), "2026-01-02").unwrap();
        let files: Vec<_> = pages.iter().map(|page| page.file.as_str()).collect();
        for file in ["landbox.1", "landbox-run.1", "landbox-sandbox-network-policy-check.1"] {
            assert!(files.contains(&file), "{files:?}");
        }
        for hidden in ["util", "send", "help"] {
            assert!(!files.iter().any(|file| file.contains(hidden)), "{files:?}");
        }
        for page in &pages {
            let text = String::from_utf8_lossy(&page.text);
            assert!(text.contains(" 2026\\-01\\-02 ") || text.contains(" 2026-01-02 "), "{text}");
            assert!(text.contains("SEE ALSO"), "{}", page.file);
        }
    }
}

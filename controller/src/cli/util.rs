//! `landbox util`: what packages are built from, made from the one definition of the command.

use super::{Cli, Invocation};
use crate::error::{Context, Result};
use clap::{Args, Command, CommandFactory, Subcommand};
use clap_complete::Shell;
use clap_mangen::Man;

#[derive(Debug, Args)]
pub(super) struct UtilArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Print the manual of every command as one page
    Man,
    /// Print completions
    Completions {
        /// For which shell
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Wake who is named on stdin if that ends without a word
    #[command(hide = true)]
    Thaw,
}

pub(super) fn util(call: &Invocation, args: UtilArgs) -> Result<u8> {
    let text = match args.what {
        What::Man => manual()?,
        What::Completions { shell } => completions(shell),
        What::Thaw => {
            crate::land::live::guard_main(std::io::stdin().lock());
            return Ok(0);
        }
    };
    call.ui.result(text)?;
    Ok(0)
}

/// The command and its visible subcommands, one after another.
fn manual() -> Result<Vec<u8>> {
    let failed = || "can't write the manual".to_owned();
    let mut root = Cli::command();
    root.build();
    let mut out = Vec::new();
    Man::new(root.clone()).render(&mut out).context(failed)?;
    for command in visible(&root) {
        let name = format!("landbox {}", command.get_name());
        page(command, &name, &mut out).context(failed)?;
        for inner in visible(command) {
            page(inner, &format!("{name} {}", inner.get_name()), &mut out).context(failed)?;
        }
    }
    Ok(out)
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help")
}

fn page(command: &Command, name: &str, out: &mut Vec<u8>) -> std::io::Result<()> {
    let page = Man::new(command.clone().display_name(name));
    page.render_name_section(out)?;
    page.render_synopsis_section(out)?;
    page.render_description_section(out)?;
    page.render_options_section(out)
}

fn completions(shell: Shell) -> Vec<u8> {
    let mut command: Command = Cli::command();
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut command, "landbox", &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn the_manual_describes_every_visible_command() {
        let text = String::from_utf8(manual().unwrap()).unwrap();
        for command in Cli::command().get_subcommands().filter(|c| !c.is_hide_set()) {
            let name = format!("landbox {} \\- ", command.get_name().replace('-', "\\-"));
            assert!(text.contains(&name), "{name}");
        }
        assert!(text.contains("landbox sandbox\\-network\\-policy explain \\- "), "{text}");
        assert_eq!(text.matches(".TH ").count(), 1);
        assert!(text.contains("with\\-ignored"));
    }

    #[test]
    fn every_shell_completes_every_command() {
        for shell in Shell::value_variants() {
            let text = String::from_utf8(completions(*shell)).unwrap();
            assert!(text.contains("discard"), "{shell}");
        }
    }

    #[test]
    fn the_definition_of_the_command_is_sound() {
        Cli::command().debug_assert();
    }
}

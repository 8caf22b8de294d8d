//! `landbox doctor`.

use super::Invocation;
use crate::doctor::{self, Check, Report, Status};
use crate::error::Result;
use crate::ui::Ui;
use clap::Args;

/// Width of the column of names.
const NAMES: usize = 16;

#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// Install fuse-overlayfs where it is missing (by apt, as root or with passwordless sudo)
    #[arg(long)]
    fix: bool,
}

/// A red line makes it fail.
pub(super) fn doctor(call: &Invocation, args: DoctorArgs) -> Result<u8> {
    let mut report = doctor::examine();
    if args.fix {
        if report.lacks_fuse() {
            call.ui.status("landbox: installing fuse-overlayfs");
            doctor::install_fuse()?;
            report = doctor::examine();
        } else if report.checks.iter().any(|check| check.fix.is_some()) {
            call.ui.status("landbox: no missing package; the lines below say what to type");
        }
    }
    if call.ui.json {
        call.ui.document(&report)?;
    } else {
        call.ui.result(text(&report, &call.ui))?;
    }
    Ok(u8::from(!report.ok))
}

fn text(report: &Report, ui: &Ui) -> String {
    let mut out = String::new();
    for check in &report.checks {
        line(&mut out, check, ui.color_stdout());
    }
    out
}

fn line(out: &mut String, check: &Check, color: bool) {
    let (mark, on) = match check.status {
        Status::Ok => ("ok  ", "\x1b[32m"),
        Status::Warning => ("warn", "\x1b[33m"),
        Status::Failed => ("FAIL", "\x1b[31m"),
    };
    let (on, off) = if color { (on, "\x1b[0m") } else { ("", "") };
    let name = check.id.replace('_', " ");
    let pad = " ".repeat(NAMES.saturating_sub(name.len()));
    out.push_str(&format!("{on}{mark}{off}  {name}{pad}  {}\n", check.found));
    let indent = " ".repeat(NAMES + 8);
    if let Some(cost) = &check.cost {
        out.push_str(&format!("{indent}costs: {cost}\n"));
    }
    if let Some(fix) = &check.fix {
        out.push_str(&format!("{indent}fix:   {fix}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_is_wrong_what_it_costs_and_what_to_type() {
        let mut out = String::new();
        let check = Check {
            id: "kernel_overlay",
            status: Status::Warning,
            found: "refused".into(),
            cost: Some("it is slower".into()),
            fix: Some("sudo x".into()),
        };
        line(&mut out, &check, false);
        assert_eq!(
            out,
            "warn  kernel overlay    refused\n                        costs: it is slower\n                        fix:   sudo x\n"
        );
    }
}

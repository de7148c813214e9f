//! Notes the revision that is built: a failure prints it, since a seed replays on it alone.
#![allow(
    clippy::print_stdout,
    reason = "this is how a build script talks to cargo"
)]

use std::path::Path;
use std::process::Command;

/// What git says to this, if there is a git and it knows the answer.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn main() {
    let is_packaged = Path::new(".cargo_vcs_info.json").exists();
    let revision = if is_packaged {
        None
    } else {
        git(&["rev-parse", "--short=12", "HEAD"])
    };
    let revision = match revision {
        None => format!("version {}", env!("CARGO_PKG_VERSION")),
        Some(revision) => {
            let changes = git(&["status", "--porcelain", "--untracked-files=no"]);
            match changes {
                Some(changes) if changes.is_empty() => revision,
                Some(_) | None => format!("{revision}-modified"),
            }
        }
    };
    println!("cargo:rustc-env=STILLPOINT_REVISION={revision}");
    for path in ["build.rs", "Cargo.toml", "src", "../src", "../Cargo.toml"] {
        println!("cargo:rerun-if-changed={path}");
    }
    // What moves with every commit and every checkout.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"])
        && Path::new(&log).exists()
    {
        println!("cargo:rerun-if-changed={log}");
    }
}

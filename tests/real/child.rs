//! Deeds that need a process of their own: one that is killed, watched by `strace`, or given a
//! file system of its own.
//!
//! The process is this very binary in the role of [`child`]. Where the machine does not give what
//! a test needs, the test says so and is not done; with `STILLPOINT_NOTHING_SKIPPED=1` it fails.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::common::skipped::skipped;

const DEEDS: &str = "STILLPOINT_TEST_DEEDS";
const PLACE: &str = "STILLPOINT_TEST_PLACE";
/// An exit status of ours and nobody else's: what is needed is not to be had.
const NOT_TO_BE_HAD: i32 = 77;

/// Not a test: what a child does. In the parent it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Ok(deeds) = std::env::var(DEEDS) else {
        return;
    };
    let place = PathBuf::from(std::env::var_os(PLACE).unwrap());
    match &*deeds {
        "b26" => super::dead::work_for_ever(&place).await,
        "open elsewhere" => super::local::refused_while_open(&place).await,
        "b48" => super::local::read_only_directory(&place).await,
        "b79" => super::disks::families_apart(&place).await,
        "b87" => super::families::open_for_ever(&place),
        "b89" => super::store::traced(&place).await,
        "b91" => super::dead::work_for_ever(&place).await,
        "b93" => super::disks::other_file_system(&place).await,
        "b96" => super::disks::full(&place).await,
        "b99" => super::dead::snapshots_for_ever(&place),
        "b120 read-only at the start" => super::disks::read_only_from_the_start(&place).await,
        other => panic!("no deeds {other}"),
    }
}

/// This binary in the role of the child, to be killed.
fn doing(deeds: &str, place: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(arguments());
    told(&mut command, deeds, place);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// A process of whose life only this much is awaited: `started`, or `completed`.
pub fn begin(deeds: &str, place: &Path, until: &str) -> Child {
    let until = place.join(until);
    fs::remove_file(&until).ok();
    let mut child = doing(deeds, place).spawn().unwrap();
    crate::common::wait_for("the child", || {
        assert_eq!(child.try_wait().unwrap(), None, "the child ended by itself");
        until.exists()
    });
    child
}

fn arguments() -> [&'static str; 4] {
    ["--exact", "child::child", "--nocapture", "--test-threads=1"]
}

fn told(command: &mut Command, deeds: &str, place: &Path) {
    command
        .env(DEEDS, deeds)
        .env(PLACE, place)
        .env("TMPDIR", place);
}

/// Runs the deeds as the child of `wrapper` to their end, or says why not. Whether they were done.
pub fn run(deeds: &str, place: &Path, mut wrapper: Command) -> bool {
    told(&mut wrapper, deeds, place);
    let output = match wrapper.output() {
        Ok(output) => output,
        Err(error) => {
            skipped(deeds, format_args!("{wrapper:?} cannot be run: {error}"));
            return false;
        }
    };
    let words = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(NOT_TO_BE_HAD) {
        skipped(deeds, words.trim());
        return false;
    }
    assert!(
        output.status.success(),
        "{deeds}: {}\n{words}",
        output.status
    );
    assert!(
        words.contains("1 passed"),
        "{deeds}: nothing was run\n{words}"
    );
    true
}

/// The child below another program, `strace` for one.
pub fn below(program: &str, arguments_of_program: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments_of_program);
    command.arg(std::env::current_exe().unwrap());
    command.args(arguments());
    command
}

/// The child in a mount space of its own, after `first`, a shell's words that mount something.
pub fn mounted(first: &str) -> Command {
    apart(&["--mount"], first)
}

/// The child in a process space of its own: it sees none of the processes that run here, and the
/// kernel's lists show it nothing of them.
pub fn unseeing() -> Command {
    apart(&["--pid", "--fork", "--mount-proc"], "true")
}

fn apart(spaces: &[&str], first: &str) -> Command {
    let mut command = Command::new("unshare");
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(spaces);
    // `unshare` itself fails with status 1 where it is not allowed: that is told apart by trying.
    let mut probe = Command::new("unshare");
    probe.args(command.get_args()).arg("true");
    if !probe.output().is_ok_and(|output| output.status.success()) {
        let mut none = Command::new("sh");
        none.args(["-c", "echo no space of our own; exit 77"]);
        return none;
    }
    let becoming = arguments().join(" ");
    command
        .args(["sh", "-c"])
        .arg(format!(
            "({first}) || exit {NOT_TO_BE_HAD}\nexec \"$1\" {becoming}"
        ))
        .arg("sh")
        .arg(std::env::current_exe().unwrap());
    command
}

/// The words that mount a small file system in memory at a directory, which is made.
pub fn tmpfs(at: &Path, size_mib: u64) -> String {
    fs::create_dir_all(at).unwrap();
    format!(
        "mount -t tmpfs -o size={size_mib}m tmpfs '{}'",
        at.display()
    )
}

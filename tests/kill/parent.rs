//! Starts children, listens to them, kills them.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::child::{DEEDS, PLACE, SAYS, STOP};
use crate::truth::History;

/// Twenty times what the slowest child takes.
const SILENCE_MAX: Duration = Duration::from_secs(60);
const SIGKILL: i32 = 9;

/// What a child has said by its end.
#[derive(Debug, Default)]
pub struct Told {
    pub cuts: Vec<History>,
    /// How many of the cuts there were when the last completion was told, and that checkpoint.
    completed: Option<History>,
    /// Whether it came to the end of its deeds.
    pub ended: bool,
    /// Where it stopped itself.
    pub stopped: Option<String>,
    pub lines: u64,
}

impl Told {
    fn hear(&mut self, line: &str) {
        self.lines += 1;
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "cut" => self.cuts.push(History::parse(rest)),
            "completed" => self.completed = Some(History::parse(rest)),
            "ended" => self.ended = true,
            "stopped" => self.stopped = Some(rest.to_owned()),
            "point" => {}
            other => panic!("a child says {other}"),
        }
    }

    /// What a restart may find: the last checkpoint that was told to be completed, or a later one
    /// whose completion was not told any more.
    pub fn allowed(&self, before: &History) -> Vec<History> {
        let all: Vec<_> = std::iter::once(before).chain(&self.cuts).cloned().collect();
        let least = self.completed.as_ref().unwrap_or(before);
        let from = all.iter().position(|history| history == least);
        all[from.unwrap()..].to_vec()
    }
}

struct Actor {
    child: Child,
    lines: Receiver<String>,
}

impl Actor {
    fn start(deeds: &str, place: &Path, stop: Option<&str>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "child", "--nocapture", "--test-threads=1"])
            .env(DEEDS, deeds)
            .env(PLACE, place)
            .stdout(Stdio::piped());
        if let Some(stop) = stop {
            command.env(STOP, stop);
        }
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                // The harness ends its own words without a new line.
                if let Some((_, said)) = line.split_once(SAYS) {
                    let _ = sender.send(said.to_owned());
                }
            }
        });
        Self { child, lines }
    }

    fn hear(&self) -> Option<String> {
        use std::sync::mpsc::RecvTimeoutError;
        match self.lines.recv_timeout(SILENCE_MAX) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("a child has been silent for too long"),
        }
    }

    /// Hears it to its end, which is either of two: its deeds', or SIGKILL. That may find it in what
    /// goes on after the deeds.
    fn end(mut self, told: &mut Told) {
        while let Some(line) = self.hear() {
            told.hear(&line);
        }
        let status = self.child.wait().unwrap();
        if told.ended && told.stopped.is_none() {
            assert!(status.success(), "{status}");
        } else {
            assert_eq!(status.signal(), Some(SIGKILL), "{status}, {told:?}");
        }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A child that stops itself, or comes to its end.
pub fn run(deeds: &str, place: &Path, stop: Option<&str>) -> Told {
    let mut told = Told::default();
    Actor::start(deeds, place, stop).end(&mut told);
    told
}

/// A child that is killed once it has said so many lines. By then it may be further.
pub fn kill_after(deeds: &str, place: &Path, lines: u64) -> Told {
    let mut actor = Actor::start(deeds, place, None);
    let mut told = Told::default();
    while told.lines < lines {
        let line = actor.hear();
        told.hear(&line.expect("it works for ever"));
    }
    actor.child.kill().unwrap();
    actor.end(&mut told);
    told
}

//! One life of the worker's process, as its parent sees it.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use stillpoint::{Error, ErrorKind};

use super::message::{Completed, Message, Task};

/// A worker that says nothing for so long hangs.
const SILENCE_MAX: Duration = Duration::from_secs(120);
const LOOKED_EVERY: Duration = Duration::from_millis(100);
const LINES_MAX: usize = 1024;

/// When to kill the worker.
pub struct Orders {
    pub kill: bool,
    /// Not before so many events are counted.
    pub after_position: u64,
    /// Nor before so many checkpoints have completed in this life.
    pub after_completed: u64,
    /// From then on, when so many uploads have begun.
    pub at_upload: u64,
}

/// How a life ended.
pub enum End {
    Killed,
    Finished { position: u64 },
}

/// A checkpoint that completed in this life, and the files deleted from then to the next one.
pub struct Row {
    pub completed: Completed,
    pub deleted_files: u64,
}

pub struct Life {
    pub number: u64,
    pub position: u64,
    pub rows: Vec<Row>,
    pub aborted: u64,
    /// Deleted before the first checkpoint of this life completed.
    pub deleted_before: u64,
    process: Process,
    uploads: BTreeSet<String>,
    cut: Option<u64>,
    finished: Option<u64>,
    failed: Option<String>,
}

impl Life {
    pub fn start(task: &Task, number: u64) -> Result<Self, Error> {
        Ok(Self {
            number,
            position: 0,
            rows: Vec::new(),
            aborted: 0,
            deleted_before: 0,
            process: Process::start(task)?,
            uploads: BTreeSet::new(),
            cut: None,
            finished: None,
            failed: None,
        })
    }

    /// Files whose upload had begun and not ended.
    pub fn uploads_under_way(&self) -> impl Iterator<Item = &String> {
        self.uploads.iter()
    }

    /// The checkpoint whose cut was taken and that had neither completed nor been aborted.
    pub fn checkpoint_under_way(&self) -> Option<u64> {
        self.cut
    }

    /// Follows the worker to its end, which may be brought about by the orders.
    pub fn watch(
        &mut self,
        orders: &Orders,
        bar: &ProgressBar,
        is_interrupted: &AtomicBool,
    ) -> Result<End, Error> {
        let mut heard_at = Instant::now();
        let mut uploads_begun = 0;
        loop {
            if is_interrupted.load(Ordering::Acquire) {
                return Err(Error::new(ErrorKind::Cancelled, "interrupted"));
            }
            let message = match self.process.lines.recv_timeout(LOOKED_EVERY) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) if heard_at.elapsed() < SILENCE_MAX => continue,
                Err(RecvTimeoutError::Timeout) => {
                    let cause = format!("the worker said nothing for {} s", SILENCE_MAX.as_secs());
                    return Err(Error::new(ErrorKind::Deadline, cause));
                }
                Err(RecvTimeoutError::Disconnected) => return self.ended(),
            };
            heard_at = Instant::now();
            let begins_upload = matches!(message, Message::UploadBegun { .. });
            self.hear(message);
            bar.set_position(self.position);
            if orders.kill && begins_upload && self.is_due(orders) {
                uploads_begun += 1;
                if uploads_begun >= orders.at_upload {
                    self.process.kill()?;
                    // What it had said before it died.
                    while let Ok(message) = self.process.lines.recv() {
                        self.hear(message);
                    }
                    return Ok(End::Killed);
                }
            }
        }
    }

    fn is_due(&self, orders: &Orders) -> bool {
        let completed = u64::try_from(self.rows.len()).unwrap_or(u64::MAX);
        completed >= orders.after_completed && self.position >= orders.after_position
    }

    fn hear(&mut self, message: Message) {
        match message {
            Message::Restored { position, .. } | Message::Position { position } => {
                self.position = position;
            }
            Message::Cut { checkpoint } => self.cut = Some(checkpoint),
            Message::UploadBegun { file } => {
                self.uploads.insert(file);
            }
            Message::UploadEnded { file } => {
                self.uploads.remove(&file);
            }
            Message::Completed(completed) => {
                self.cut = self.cut.filter(|cut| *cut != completed.checkpoint);
                self.rows.push(Row {
                    completed,
                    deleted_files: 0,
                });
            }
            Message::Aborted { checkpoint, .. } => {
                self.cut = self.cut.filter(|cut| *cut != checkpoint);
                self.aborted += 1;
            }
            Message::Deleted { .. } => match self.rows.last_mut() {
                Some(row) => row.deleted_files += 1,
                None => self.deleted_before += 1,
            },
            Message::Finished { position } => self.finished = Some(position),
            Message::Failed { reason } => self.failed = Some(reason),
        }
    }

    /// The worker has ended by itself.
    fn ended(&mut self) -> Result<End, Error> {
        let status = self.process.child.wait().map_err(|error| {
            Error::new(ErrorKind::Other, format!("waiting for the worker: {error}"))
        })?;
        match (self.finished, self.failed.take()) {
            (Some(position), None) if status.success() => Ok(End::Finished { position }),
            (_, Some(reason)) => Err(Error::new(
                ErrorKind::Other,
                format!("the worker failed: {reason}"),
            )),
            (_, None) => Err(Error::new(
                ErrorKind::Other,
                format!("the worker ended with {status}"),
            )),
        }
    }
}

/// The worker's process; killed when this is dropped.
struct Process {
    child: Child,
    lines: Receiver<Message>,
}

impl Process {
    fn start(task: &Task) -> Result<Self, Error> {
        let failed =
            |error: String| Error::new(ErrorKind::Other, format!("starting the worker: {error}"));
        let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
        let task = serde_json::to_string(task).map_err(|error| failed(error.to_string()))?;
        let mut child = Command::new(program)
            .args(["demo-worker", &task])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // What is typed reaches the demo alone; the worker ends with it.
            .process_group(0)
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let (sender, lines) = sync_channel(LINES_MAX);
        let Some(output) = child.stdout.take() else {
            return Err(failed("it has no output".to_owned()));
        };
        std::thread::spawn(move || read_lines(output, |message| sender.send(message).is_ok()));
        Ok(Self { child, lines })
    }

    /// SIGKILL: the process does nothing more, not even what it is in the middle of.
    fn kill(&mut self) -> Result<(), Error> {
        let killed = self.child.kill().and_then(|()| self.child.wait());
        killed
            .map(drop)
            .map_err(|error| Error::new(ErrorKind::Other, format!("killing the worker: {error}")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Hands on each line that is a message; the last one may be cut short by a kill.
fn read_lines(output: ChildStdout, mut hand_on: impl FnMut(Message) -> bool) {
    for line in BufReader::new(output).lines() {
        let Ok(line) = line else { return };
        if let Ok(message) = serde_json::from_str(&line)
            && !hand_on(message)
        {
            return;
        }
    }
}

//! What the command prints: one document, as text for people or as JSON for programs.

use std::fmt::{self, Display, Write as _};
use std::io::{self, Write as _};
use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;
use serde_json::Value;
use stillpoint::Error;
use stillpoint::protocol::time::WallClock;

use crate::exit::Exit;

/// What a command has found out, and how the process is to end.
pub struct Outcome {
    text: String,
    json: Value,
    exit: Exit,
}

impl Outcome {
    /// A document that is shown to people as its `Display` says, to programs as its `Serialize`.
    pub fn new(document: &(impl Display + Serialize), exit: Exit) -> Result<Self, Error> {
        let json = serde_json::to_value(document)
            .map_err(|error| Error::new(stillpoint::ErrorKind::Internal, error.to_string()))?;
        Ok(Self {
            text: plain(&document.to_string()),
            json,
            exit,
        })
    }

    /// Nothing more to be said.
    #[cfg(feature = "rocksdb")]
    pub fn silent(exit: Exit) -> Self {
        Self {
            text: String::new(),
            json: Value::Null,
            exit,
        }
    }

    /// Prints it on standard output.
    pub fn print(self, command: &str, as_json: bool) -> Exit {
        let printed = if as_json {
            print_json(command, self.json)
        } else {
            print(&self.text)
        };
        after_printing(printed, self.exit)
    }
}

/// Prints an error: on standard error, or as the JSON document that was asked for.
pub fn print_error(command: &str, error: &Error, as_json: bool) -> Exit {
    let exit = Exit::of(error);
    let printed = if as_json {
        let error = serde_json::to_value(Fault::from(error)).unwrap_or(Value::Null);
        let document = Value::Object([("error".to_owned(), error)].into_iter().collect());
        print_json(command, document)
    } else {
        let text = plain(&error.to_string());
        writeln!(io::stderr().lock(), "stillpoint {command}: {text}")
    };
    after_printing(printed, exit)
}

fn print_json(command: &str, mut document: Value) -> io::Result<()> {
    if let Value::Object(fields) = &mut document {
        fields.insert("command".to_owned(), Value::from(command));
    }
    print(&format!("{document:#}\n"))
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// A text of several lines as one.
pub fn in_a_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}

/// How many of something, in words.
pub fn counted(count: u64, one: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {one}s"),
    }
}

/// A text without what a terminal would obey: names come from outside.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() && character != '\n' {
            plain.extend(character.escape_default());
        } else {
            plain.push(character);
        }
    }
    plain
}

/// Whoever reads the output may have had enough of it; anything else is a failure.
fn after_printing(printed: io::Result<()>, exit: Exit) -> Exit {
    match printed {
        Ok(()) => exit,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => exit,
        Err(_) => Exit::worst([exit, Exit::Unavailable]),
    }
}

/// An error as programs read it.
#[derive(Serialize)]
pub struct Fault {
    kind: String,
    message: String,
    text: String,
    participant: Option<String>,
    checkpoint: Option<u64>,
    file: Option<String>,
    phase: Option<String>,
    alternatives: Vec<u64>,
}

impl From<&Error> for Fault {
    fn from(error: &Error) -> Self {
        Self {
            kind: error.kind().to_string(),
            message: error.message().to_owned(),
            text: in_a_line(&error.to_string()),
            participant: error.participant().map(str::to_owned),
            checkpoint: error.checkpoint().map(|checkpoint| checkpoint.0),
            file: error.file().map(str::to_owned),
            phase: error.phase().map(|phase| phase.to_string()),
            alternatives: error
                .alternatives()
                .iter()
                .map(|checkpoint| checkpoint.0)
                .collect(),
        }
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Bytes that a user attached: as hexadecimal digits, and as text if they are one.
#[derive(Serialize)]
pub struct UserBytes {
    hex: String,
    text: Option<String>,
}

impl UserBytes {
    pub fn new(bytes: &[u8]) -> Self {
        let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
            // Writing to a string can't fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        let text = std::str::from_utf8(bytes)
            .ok()
            .filter(|text| !text.contains(char::is_control));
        Self {
            hex,
            text: text.map(str::to_owned),
        }
    }
}

impl Display for UserBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_MAX: usize = 64;
        match &self.text {
            Some(text) if text.is_empty() => f.write_str("none"),
            Some(text) if text.len() <= SHOWN_MAX => write!(f, "{text:?}"),
            Some(_) | None => {
                let shown: String = self.hex.chars().take(SHOWN_MAX).collect();
                let rest = if shown.len() < self.hex.len() {
                    "…"
                } else {
                    ""
                };
                write!(f, "0x{shown}{rest} ({} bytes)", self.hex.len() / 2)
            }
        }
    }
}

/// A length for people: `4.20 MiB`.
pub fn bytes(size_bytes: u64) -> String {
    indicatif::HumanBytes(size_bytes).to_string()
}

/// Names that the library did not write, a line each.
pub fn unparsable(f: &mut fmt::Formatter<'_>, indent: &str, names: &[String]) -> fmt::Result {
    names.iter().try_for_each(|name| {
        writeln!(
            f,
            "{indent}left: {name:?}, which no rule can parse: nobody's to delete"
        )
    })
}

/// A time of the calendar: `2026-03-01T10:00:00.000Z`.
pub fn calendar(at: WallClock) -> String {
    // Later than the year 9999 can't be written so.
    const LAST: u64 = 253_402_300_799_999;
    let since = Duration::from_millis(at.0.min(LAST));
    humantime::format_rfc3339_millis(UNIX_EPOCH + since).to_string()
}

/// Rows of cells below a heading, each column as wide as its widest cell. The first column is
/// aligned to the left, the others to the right.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new<const N: usize>(heading: [&str; N]) -> Self {
        Self {
            rows: vec![heading.map(str::to_owned).to_vec()],
        }
    }

    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.to_vec());
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..columns).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                if column == 0 {
                    write!(line, "  {cell:<width$}")?;
                } else {
                    write!(line, "  {cell:>width$}")?;
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

//! Three checkpoints, a crash, a restore: with state in memory and checkpoints in a directory.
//!
//! `cargo run --example quickstart`
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::path::Path;

use stillpoint::{CheckpointReport, FileSystem, MemoryState, Repository, Restored};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = tempfile::tempdir()?;
    let checkpoints = scratch.path().join("checkpoints");
    let local = scratch.path().join("orders-7");
    let repository = Repository::open(FileSystem::at(&checkpoints)).await?;

    println!("A first start: count the words of a stream, with a checkpoint after each line.");
    count_words(&repository, &local, "first life").await?;

    println!("\nThe process is gone. A second one starts where the last checkpoint was:");
    count_words(&repository, &local, "second life").await?;

    println!(
        "  (Ids go on with a new block in each life, so that no two checkpoints ever share one.)"
    );

    println!("\nWhat is kept, seen from outside:");
    let inspection = repository.inspect("orders/7").await?;
    for checkpoint in inspection.checkpoints() {
        println!(
            "  checkpoint {}: {} bytes in {} file(s), position {}",
            checkpoint.checkpoint.0,
            checkpoint.size_bytes,
            checkpoint.files,
            position(Some(&checkpoint.user_bytes)),
        );
    }
    println!(
        "  (State in memory is one small file, stored anew each time; of a RocksDB, only new files are.)"
    );
    Ok(())
}

const STREAM: [&str; 6] = [
    "to be or not to be",
    "that is the question",
    "whether it is nobler in the mind",
    "to suffer the slings and arrows",
    "of outrageous fortune",
    "or to take arms",
];

/// One life of a service. The first takes three checkpoints, reads on, and crashes.
async fn count_words(
    repository: &Repository,
    local: &Path,
    life: &str,
) -> Result<(), Box<dyn std::error::Error>> {
    let claim = repository.claim("orders/7").await?; // fences whoever held it before
    let restored = claim.restore_into(local).await?; // empty on the first start
    let start = position(restored.user_bytes());
    let crashes = restored.is_empty();
    println!("  {life}: the stream is read from line {start}");
    let state = open(&restored)?;
    let participant = restored.attach(state.clone())?;

    for (line, text) in STREAM.iter().enumerate().skip(start) {
        for word in text.split(' ') {
            let count = state.get(word.as_bytes()).map_or(0, |count| count[0]);
            state.put(word.as_bytes(), &[count + 1]);
        }
        if crashes && line == 3 {
            println!("  {life}: crashes after line {line}, which no checkpoint holds");
            return Ok(());
        }
        // The cut is taken here, with the position of the stream at the same instant ...
        let checkpoint = participant.checkpoint((line + 1).to_string())?;
        // ... the rest goes on beside, and once it is complete the stream may forget.
        show(&checkpoint.completed().await?);
    }
    let to = state.get(b"to").map_or(0, |count| count[0]);
    println!("  {life}: \"to\" was counted {to} times");
    assert_eq!(to, 4, "each word counts exactly once");
    participant.close().await?;
    Ok(())
}

fn open(restored: &Restored) -> Result<MemoryState, Box<dyn std::error::Error>> {
    if restored.is_empty() {
        return Ok(MemoryState::new());
    }
    Ok(MemoryState::open(restored.directory())?)
}

fn position(user_bytes: Option<&[u8]>) -> usize {
    let text = user_bytes.and_then(|bytes| std::str::from_utf8(bytes).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn show(report: &CheckpointReport) {
    println!(
        "  checkpoint {} is complete: {} bytes of state, {} bytes uploaded",
        report.checkpoint.0, report.state_bytes, report.uploaded_bytes,
    );
}

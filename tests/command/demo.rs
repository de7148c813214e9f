//! The demo, small.

use crate::support::run;

#[cfg(not(feature = "rocksdb"))]
#[test]
fn needs_rocksdb() {
    let said = run(["demo", "--json"]);
    assert_eq!(said.code, 2, "{said:?}");
    let message = said.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("--features cli,rocksdb"), "{message}");
}

#[cfg(feature = "rocksdb")]
mod with_rocksdb {
    use std::fs;
    use std::os::unix::process::CommandExt;
    use std::process::Stdio;
    use std::time::{Duration, Instant};

    use rustix::process::{Pid, Signal, kill_process_group};
    use stillpoint::rocksdb::{DB, IteratorMode, Options};

    use super::run;
    use crate::documented::compare;
    use crate::support::{answer, command, error, numbers, texts};

    /// As a terminal does it: the signal goes to all processes in the foreground.
    #[test]
    fn who_interrupts_it_is_told_so() {
        let mut demo = command();
        demo.args(["demo", "--json", "--seconds", "60"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0);
        let demo = demo.spawn().unwrap();
        let group = Pid::from_child(&demo);
        let deadline = Instant::now() + Duration::from_secs(600);
        // Its worker may be another thread's child.
        let has_worker = || {
            let tasks = fs::read_dir(format!("/proc/{}/task", demo.id())).unwrap();
            tasks.flatten().any(|task| {
                let children = fs::read_to_string(task.path().join("children"));
                children.is_ok_and(|children| !children.trim().is_empty())
            })
        };
        while !has_worker() {
            assert!(Instant::now() < deadline, "no worker");
            std::thread::sleep(Duration::from_millis(10));
        }
        kill_process_group(group, Signal::INT).unwrap();
        let output = demo.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{output:?}");
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["error"]["kind"], "cancelled");
    }

    #[test]
    fn kills_restores_and_matches() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("all of it");
        let said = run([
            "demo",
            "--json",
            "--keys",
            "3000",
            "--events",
            "30000",
            "--seconds",
            "2",
            "--interval-ms",
            "100",
            "--kills",
            "2",
            "--seed",
            "5",
            "--retain",
            "3",
            "--directory",
            directory.to_str().unwrap(),
        ]);
        let account = said.json();
        assert_eq!(said.code, 0, "{said:?}");
        assert_eq!(account["matched"], true);
        assert_eq!(account["finished_at"], 30_000);
        assert_eq!(account["left_over_files"], 0);
        let kills = account["kills"].as_array().unwrap();
        let counting: Vec<_> = kills.iter().filter(|kill| kill["counts"] == true).collect();
        assert_eq!(counting.len(), 2, "{account:#}");
        for kill in &counting {
            assert!(!texts(&kill["uploads_cut_off"]).is_empty());
        }
        let comparisons = account["comparisons"].as_array().unwrap();
        assert_eq!(comparisons.len(), kills.len() + 1);
        for comparison in comparisons {
            assert_eq!(comparison["keys"], 3_000);
            for difference in ["missing", "unexpected", "different"] {
                assert_eq!(comparison[difference], 0, "{comparison:#}");
            }
        }
        compare("`demo`", std::slice::from_ref(&account));

        // What the demo leaves is a repository as any other.
        let root = directory.join("checkpoints");
        answer(&root, &["verify", "--all", "--full"]);
        let shown = answer(&root, &["show", "newest"]);
        assert_eq!(shown["checkpoint"]["user_bytes"]["text"], "30000");
        let state = shown["files"]
            .as_array()
            .unwrap()
            .iter()
            .find(|file| file["kind"] == "state");
        let state = state.expect("a RocksDB has tables");
        let explained = answer(&root, &["explain", state["local"].as_str().unwrap()]);
        let found = explained["files"]
            .as_array()
            .unwrap()
            .iter()
            .find(|file| file["name"] == state["name"]);
        let held_by = numbers(&found.expect("it is among them")["held_by"]).len();
        assert_eq!(state["references"], held_by);

        let target = place.path().join("restored");
        let to = target.to_str().unwrap();
        answer(&root, &["restore", "newest", "--to", to]);
        let db = DB::open_for_read_only(&Options::default(), &target, false).unwrap();
        assert_eq!(db.iterator(IteratorMode::Start).count(), 3_000);
        drop(db);
        let again = answer(&root, &["restore", "newest", "--to", to]);
        assert_eq!(
            again["kept_files"].as_u64().unwrap() + 1,
            shown["files"].as_array().unwrap().len() as u64
        );
        fs::remove_dir_all(&root).unwrap();
        error(&root, &["ls"], 3, "not found");
    }

    #[test]
    fn a_directory_that_is_not_empty_is_refused() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("letters"), b"dear").unwrap();
        let said = run([
            "demo",
            "--json",
            "--directory",
            place.path().to_str().unwrap(),
        ]);
        assert_eq!(said.code, 2, "{said:?}");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
        let said = run(["demo", "--json", "--kills", "many"]);
        assert_eq!(said.code, 2);
    }
}

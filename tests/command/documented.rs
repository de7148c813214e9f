//! The README says what the command says: exit statuses, and every field of every document.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{World, ask, run};

const README: &str = include_str!("../../README.md");

/// The cells of the rows of the first table after a line, without its heading.
fn table_after(line: &str) -> Vec<Vec<String>> {
    let at = README
        .find(line)
        .unwrap_or_else(|| panic!("README lacks {line:?}"));
    let rows = README[at..]
        .lines()
        .skip(1)
        .skip_while(|line| !line.starts_with('|'));
    let rows = rows.take_while(|line| line.starts_with('|')).skip(2);
    let cells = |row: &str| {
        let inner = row.trim_matches('|').replace("\\|", "/");
        inner
            .split('|')
            .map(|cell| cell.trim().to_owned())
            .collect()
    };
    rows.map(cells).collect()
}

#[test]
fn exit_statuses() {
    let help = run(["--help"]);
    assert_eq!(help.code, 0);
    let (_, table) = help.out.split_once("Exit status:\n").unwrap();
    let told: Vec<Vec<String>> = table
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| {
            let (code, meaning) = line.trim().split_once("  ").unwrap();
            vec![code.to_owned(), meaning.to_owned()]
        })
        .collect();
    assert_eq!(told, table_after("### Exit status"));
    for command in ["ls", "show", "verify", "explain", "gc", "restore", "demo"] {
        let help = run([command, "--help"]);
        assert_eq!(help.code, 0, "{help:?}");
        assert!(
            help.out.contains("Exit status:") && help.out.contains("--json"),
            "{}",
            help.out
        );
        assert!(
            README.contains(&format!("`stillpoint {command}")),
            "{command}"
        );
    }
}

/// What a document may hold: each path, with the kinds of value there.
type Fields = BTreeMap<String, BTreeSet<String>>;

/// The fields that README gives for something, with those of the types that it names.
fn documented(name: &str, prefix: &str, into: &mut Fields) {
    for row in table_after(&format!("Fields of {name}")) {
        for path in row[0].split(", ") {
            let path = format!("{prefix}{}", path.trim_matches('`'));
            let mut kinds = BTreeSet::new();
            for kind in row[1].split(" or ") {
                match kind {
                    "text" | "number" | "boolean" | "null" => {
                        kinds.insert(kind.to_owned());
                    }
                    named => {
                        kinds.insert("fields".to_owned());
                        documented(&format!("`{named}`, wherever"), &format!("{path}."), into);
                    }
                }
            }
            into.insert(path, kinds);
        }
    }
}

fn found(value: &Value, path: &str, into: &mut Fields) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(elements) => {
            // The field is there, with nothing in it.
            into.entry(format!("{path}[]")).or_default();
            for element in elements {
                found(element, &format!("{path}[]"), into);
            }
            return;
        }
        Value::Object(fields) => {
            let prefix = if path.is_empty() {
                String::new()
            } else {
                format!("{path}.")
            };
            for (name, value) in fields {
                found(value, &format!("{prefix}{name}"), into);
            }
            if !path.is_empty() {
                into.entry(path.to_owned())
                    .or_default()
                    .insert("fields".to_owned());
            }
            return;
        }
    };
    into.entry(path.to_owned())
        .or_default()
        .insert(kind.to_owned());
}

/// Documents of a command show exactly the fields that README gives. Elements of lists, whose
/// field is the list's own, count only where there are any that are no objects.
pub fn compare(name: &str, documents: &[Value]) {
    let mut expected = Fields::new();
    documented(name, "", &mut expected);
    expected
        .entry("command".to_owned())
        .or_default()
        .insert("text".to_owned());
    let mut seen = Fields::new();
    for document in documents {
        found(document, "", &mut seen);
    }
    // A list of objects needs no line of its own, each of their fields has one.
    seen.retain(|path, kinds| {
        expected.contains_key(path)
            || !(path.ends_with("[]") && kinds.iter().all(|kind| kind == "fields"))
    });
    for (path, kinds) in &seen {
        let allowed = expected
            .get(path)
            .unwrap_or_else(|| panic!("{name}: README lacks `{path}`"));
        assert!(
            kinds.is_subset(allowed),
            "{name}: `{path}` is {kinds:?}, README says {allowed:?}"
        );
    }
    for path in expected.keys() {
        // What is below a field that was null in all documents is described elsewhere.
        let shown = seen.contains_key(path);
        let parent_is_null = path.match_indices('.').any(|(at, _)| {
            seen.get(&path[..at])
                .is_some_and(|kinds| kinds.iter().all(|kind| kind == "null"))
        });
        assert!(
            shown || parent_is_null,
            "{name}: `{path}` is in README and in no document"
        );
    }
}

fn documents(root: &Path, asked: &[&[&str]]) -> Vec<Value> {
    asked
        .iter()
        .map(|arguments| ask(root, arguments).1)
        .collect()
}

#[tokio::test]
async fn fields() {
    let world = World::new(2).await;
    let (root, folder) = (world.root(), world.folder("orders/7"));
    let service = world.start_without_deletes("orders/7").await;
    for value in ["one", "two", "three"] {
        service.checkpoint(value).await;
    }
    fs::write(folder.join("shared/README.txt"), b"not ours").unwrap();
    fs::write(folder.join("shared/1/999"), b"stray").unwrap();
    let show = documents(&root, &[&["show", "newest"], &["show", "2"]]);
    let condemned = documents(&root, &[&["gc", "--dry-run"]]);
    let file = condemned[0]["participants"][0]["deleted"][0]
        .as_str()
        .unwrap();
    compare(
        "`explain`",
        &documents(
            &root,
            &[
                &["explain", show[0]["files"][0]["name"].as_str().unwrap()],
                &["explain", file],
                &["explain", "stillpoint.pack"],
            ],
        ),
    );
    compare("`show`", &show);
    // A folder in a condemned file's place can't be deleted as a file.
    fs::remove_file(folder.join(file)).unwrap();
    fs::create_dir(folder.join(file)).unwrap();
    fs::write(folder.join(file).join("in the way"), b"").unwrap();
    let mut gc = condemned.clone();
    gc.extend(documents(&root, &[&["gc"]]));
    fs::remove_dir_all(folder.join(file)).unwrap();
    gc.extend(documents(&root, &[&["gc"]]));
    drop(service);
    let broken = world.start("orders/8").await;
    broken.checkpoint("eight").await;
    broken.close().await;
    fs::write(world.folder("orders/8").join("CURRENT"), b"").unwrap();
    gc.extend(documents(&root, &[&["gc"]]));
    compare("`gc`", &gc);
    compare("`ls`", &documents(&root, &[&["ls"]]));

    let held = show[0]["files"][0]["name"].as_str().unwrap();
    let target = world.directory.path().join("restored");
    let restored = documents(
        &root,
        &[&[
            "restore",
            "newest",
            "--to",
            target.to_str().unwrap(),
            "--participant",
            "orders/7",
        ]],
    );
    compare("`restore`", &restored);
    fs::write(folder.join(held), b"").unwrap();
    let verify = documents(
        &root,
        &[
            &["verify", "--all"],
            &["verify", "--full", "--participant", "orders/7"],
        ],
    );
    compare("`verify`", &verify);

    let errors = documents(
        &root,
        &[
            &["show", "1", "--participant", "orders/7"],
            &["ls", "--participant", "none"],
        ],
    );
    compare("an error document", &errors);
    let usage = run(["show", "--json", "--root", "x", "one", "two"]);
    assert_eq!(usage.code, 2);
    compare("an error document", &[errors, vec![usage.json()]].concat());
    assert_eq!(usage.json()["error"]["kind"], "invalid");
    assert!(usage.err.is_empty(), "{usage:?}");
}

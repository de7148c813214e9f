//! Values as the specification has them: what TLC prints is read, and what the code comes to is made.
//!
//! Two values are equal if TLA+ says so: a sequence is the function of its places, and sets have no
//! order. A value prints in one way only, so that a state can be told from others by its text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Value {
    /// A number.
    Number(u64),
    /// TRUE or FALSE.
    Truth(bool),
    /// A string, or a model value, by its name.
    Word(String),
    /// A set.
    Set(BTreeSet<Self>),
    /// A function; a sequence is one of its places, from 1.
    Function(BTreeMap<Self, Self>),
    /// A record, by its fields.
    Record(BTreeMap<String, Self>),
}

impl Value {
    /// A string or model value.
    #[must_use]
    pub fn word(word: &str) -> Self {
        Self::Word(word.to_owned())
    }

    /// A set of numbers.
    #[must_use]
    pub fn numbers<'a>(numbers: impl IntoIterator<Item = &'a u64>) -> Self {
        Self::Set(numbers.into_iter().map(|n| Self::Number(*n)).collect())
    }

    /// A function of the numbers from 1 to `last`.
    #[must_use]
    pub fn places(last: u64, value: impl Fn(u64) -> Self) -> Self {
        Self::Function((1..=last).map(|n| (Self::Number(n), value(n))).collect())
    }

    /// A record.
    #[must_use]
    pub fn record<const N: usize>(fields: [(&str, Self); N]) -> Self {
        let fields = fields.into_iter();
        Self::Record(
            fields
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        )
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Truth(truth)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Truth(true) => f.write_str("TRUE"),
            Self::Truth(false) => f.write_str("FALSE"),
            Self::Word(word) => f.write_str(word),
            Self::Set(items) => {
                f.write_str("{")?;
                for (index, item) in items.iter().enumerate() {
                    let comma = if index > 0 { "," } else { "" };
                    write!(f, "{comma}{item}")?;
                }
                f.write_str("}")
            }
            Self::Function(pairs) => {
                f.write_str("(")?;
                for (index, (key, value)) in pairs.iter().enumerate() {
                    let comma = if index > 0 { "," } else { "" };
                    write!(f, "{comma}{key}:{value}")?;
                }
                f.write_str(")")
            }
            Self::Record(fields) => {
                f.write_str("[")?;
                for (index, (name, value)) in fields.iter().enumerate() {
                    let comma = if index > 0 { "," } else { "" };
                    write!(f, "{comma}{name}:{value}")?;
                }
                f.write_str("]")
            }
        }
    }
}

/// Reads a state as TLC prints it: `/\ name = value` for each variable.
///
/// # Errors
/// What is not understood.
pub fn parse_state(text: &str) -> Result<Value, String> {
    let mut reader = Reader { text, at: 0 };
    let mut variables = BTreeMap::new();
    while reader.eats("/\\") {
        let name = reader.name()?;
        reader.expect("=")?;
        variables.insert(name, reader.value()?);
    }
    reader.skip();
    if reader.at < text.len() {
        return Err(reader.trouble("a state is over, and something follows"));
    }
    Ok(Value::Record(variables))
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn trouble(&self, what: &str) -> String {
        let rest: String = self.rest().chars().take(60).collect();
        format!("{what}: {rest:?}")
    }

    fn skip(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn eats(&mut self, token: &str) -> bool {
        self.skip();
        let is_next = self.rest().starts_with(token);
        if is_next {
            self.at += token.len();
        }
        is_next
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.eats(token) {
            return Ok(());
        }
        Err(self.trouble(&format!("{token:?} is missing")))
    }

    fn name(&mut self) -> Result<String, String> {
        self.skip();
        let rest = self.rest();
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        if end == 0 {
            return Err(self.trouble("a name is missing"));
        }
        let name = rest[..end].to_owned();
        self.at += end;
        Ok(name)
    }

    fn value(&mut self) -> Result<Value, String> {
        if self.eats("<<") {
            let items = self.items(">>")?;
            let places = (1..).map(Value::Number).zip(items);
            return Ok(Value::Function(places.collect()));
        }
        if self.eats("{") {
            return Ok(Value::Set(self.items("}")?.into_iter().collect()));
        }
        if self.eats("[") {
            return self.fields();
        }
        if self.eats("(") {
            return self.pairs();
        }
        if self.eats("\"") {
            let word = self.name()?;
            self.expect("\"")?;
            return Ok(Value::Word(word));
        }
        let word = self.name()?;
        Ok(match (word.as_str(), word.parse()) {
            ("TRUE", _) => Value::Truth(true),
            ("FALSE", _) => Value::Truth(false),
            (_, Ok(number)) => Value::Number(number),
            (_, Err(_)) => Value::Word(word),
        })
    }

    fn items(&mut self, end: &str) -> Result<Vec<Value>, String> {
        let mut items = Vec::new();
        if self.eats(end) {
            return Ok(items);
        }
        loop {
            items.push(self.value()?);
            if self.eats(end) {
                return Ok(items);
            }
            self.expect(",")?;
        }
    }

    fn fields(&mut self) -> Result<Value, String> {
        let mut fields = BTreeMap::new();
        loop {
            let name = self.name()?;
            self.expect("|->")?;
            fields.insert(name, self.value()?);
            if self.eats("]") {
                return Ok(Value::Record(fields));
            }
            self.expect(",")?;
        }
    }

    fn pairs(&mut self) -> Result<Value, String> {
        let mut pairs = BTreeMap::new();
        loop {
            let key = self.value()?;
            self.expect(":>")?;
            pairs.insert(key, self.value()?);
            if self.eats(")") {
                return Ok(Value::Function(pairs));
            }
            self.expect("@@")?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_as_tlc_prints_it() {
        let text = "/\\ at = << [ st |-> \"run\",\n  files |-> {2, 1} ] >>\n/\\ m = (t2 :> 0 @@ t1 :> 3)\n/\\ b = <<>>";
        let state = parse_state(text).expect("it is a state");
        assert_eq!(
            state.to_string(),
            "[at:(1:[files:{1,2},st:run]),b:(),m:(t1:3,t2:0)]"
        );
        assert!(parse_state("/\\ a = {1").is_err());
        assert!(parse_state("/\\ a = 1 b").is_err());
    }

    #[test]
    fn what_is_made_is_what_is_read() {
        let read = parse_state("/\\ a = <<{}, {1}>>").expect("it is a state");
        let made = Value::record([(
            "a",
            Value::places(2, |n| Value::numbers([1_u64].iter().filter(|_| n > 1))),
        )]);
        assert_eq!(read, made);
    }
}

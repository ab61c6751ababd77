//! Conditions on arguments: how the table writes them, and the tests of 32-bit words they become.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A value of a condition: a number, or the name of one under `constants`.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// As it stands.
    Number(u32),
    /// Looked up.
    Name(String),
}

/// One condition on an argument; the head of each table says what the fields mean.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// Argument, 0 to 5.
    pub index: u32,
    /// The low 32 bits are one of these.
    #[serde(default)]
    pub is: Vec<Value>,
    /// Bits cleared before comparing with `is`.
    #[serde(default)]
    pub ignoring: Vec<Value>,
    /// Bits that are set.
    #[serde(default)]
    pub all_of: Vec<Value>,
    /// Bits that are clear.
    #[serde(default)]
    pub none_of: Vec<Value>,
    /// Bits that may be set besides `all_of`, and no others.
    #[serde(default)]
    pub only: Vec<Value>,
    /// All 64 bits are zero.
    #[serde(default)]
    pub null: bool,
}

/// A test of one 32-bit word of the call: `word & mask` is one of `is`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Test {
    /// Byte offset in the kernel's description of the call.
    pub offset: u32,
    /// Bits that count.
    pub mask: u32,
    /// Values that pass; never empty.
    pub is: Vec<u32>,
}

/// Byte offset of the first argument.
const ARGUMENTS: u32 = 16;
/// Both architectures store the low word first.
const LOW: u32 = 0;
const HIGH: u32 = 4;

impl Condition {
    /// The tests that must all pass.
    ///
    /// # Errors
    /// A sentence on what is wrong: an unknown name, no such argument, a mixture of forms.
    pub fn tests(&self, constants: &BTreeMap<String, u32>) -> Result<Vec<Test>, String> {
        if self.index > 5 {
            return Err(format!("no argument {}", self.index));
        }
        let test = |half, mask, is| Test {
            offset: ARGUMENTS + 8 * self.index + half,
            mask,
            is,
        };
        let flags = [&self.all_of, &self.none_of, &self.only];
        let has_flags = flags.iter().any(|list| !list.is_empty());
        match (self.null, self.is.is_empty(), has_flags) {
            (true, true, false) if self.ignoring.is_empty() => Ok(vec![
                test(LOW, u32::MAX, vec![0]),
                test(HIGH, u32::MAX, vec![0]),
            ]),
            (false, false, false) => {
                let ignored = union(&self.ignoring, constants)?;
                let mut is = Vec::new();
                for value in &self.is {
                    let number = value.number(constants)?;
                    if number & ignored != 0 {
                        return Err(format!("{value:?} can never be: its bits are ignored"));
                    }
                    is.push(number);
                }
                Ok(vec![test(LOW, !ignored, is)])
            }
            (false, true, true) if self.ignoring.is_empty() => {
                let set = union(&self.all_of, constants)?;
                let clear = union(&self.none_of, constants)?;
                if set & clear != 0 {
                    return Err("a bit both set and clear".to_owned());
                }
                let others = match &self.only[..] {
                    [] => 0,
                    only => !(union(only, constants)? | set),
                };
                Ok(vec![test(LOW, set | clear | others, vec![set])])
            }
            _ => Err(
                "give one of: is (with ignoring), all_of with none_of and only, null".to_owned(),
            ),
        }
    }
}

impl Value {
    fn number(&self, constants: &BTreeMap<String, u32>) -> Result<u32, String> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Name(name) => constants
                .get(name)
                .copied()
                .ok_or_else(|| format!("{name} is not among the constants")),
        }
    }
}

fn union(values: &[Value], constants: &BTreeMap<String, u32>) -> Result<u32, String> {
    values
        .iter()
        .try_fold(0, |bits, value| Ok(bits | value.number(constants)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tests(text: &str) -> Result<Vec<(u32, u32, Vec<u32>)>, String> {
        let condition: Condition = toml::from_str(text).map_err(|e| e.to_string())?;
        let constants = BTreeMap::from([("A".to_owned(), 1), ("B".to_owned(), 6)]);
        let found = condition.tests(&constants)?;
        Ok(found
            .into_iter()
            .map(|t| (t.offset, t.mask, t.is))
            .collect())
    }

    #[test]
    fn each_form_becomes_tests_of_words() {
        let all = u32::MAX;
        assert_eq!(
            tests("index = 1\nis = [0, 'B']"),
            Ok(vec![(24, all, vec![0, 6])])
        );
        assert_eq!(
            tests("index = 0\nis = ['A']\nignoring = ['B']"),
            Ok(vec![(16, !6, vec![1])])
        );
        assert_eq!(
            tests("index = 2\nall_of = ['A']\nnone_of = ['B']"),
            Ok(vec![(32, 7, vec![1])])
        );
        assert_eq!(
            tests("index = 2\nall_of = ['A']\nonly = ['B']"),
            Ok(vec![(32, !6, vec![1])])
        );
        assert_eq!(
            tests("index = 5\nnull = true"),
            Ok(vec![(56, all, vec![0]), (60, all, vec![0])])
        );
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "index = 6\nis = [0]",
            "index = 0",
            "index = 0\nis = ['C']",
            "index = 0\nis = [1]\nnull = true",
            "index = 0\nignoring = ['A']",
            "index = 0\nis = ['A']\nignoring = ['A']",
            "index = 0\nall_of = ['A']\nnone_of = ['A']",
            "index = 0\nis = [0]\nonly = ['A']",
            "index = 0\nis = [4294967296]",
            "index = 0\nis = [-1]",
        ] {
            assert!(tests(text).is_err(), "{text}");
        }
    }
}

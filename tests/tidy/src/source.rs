//! The tracked files, and how long the files and functions among them are. Relies on rustfmt for the shape of code.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::workspace::root;

/// A tracked text file.
#[derive(Clone, Debug)]
pub struct File {
    /// Path from the repository's root.
    pub path: String,
    /// Content.
    pub text: String,
}

impl File {
    /// Whether its name ends so.
    pub fn is(&self, extension: &str) -> bool {
        Path::new(&self.path)
            .extension()
            .is_some_and(|found| found == extension)
    }

    /// Whether it is Rust that only tests compile.
    pub fn is_test(&self) -> bool {
        let stem = PathBuf::from(&self.path);
        let name = stem.file_name().and_then(|name| name.to_str());
        name == Some("tests.rs") || self.path.split('/').any(|part| part == "tests")
    }

    /// Lines before a `#[cfg(test)]` module in the same file.
    pub fn lines_without_tests(&self) -> usize {
        let mut lines = self.text.lines();
        lines
            .by_ref()
            .take_while(|line| *line != "#[cfg(test)]")
            .count()
    }
}

/// Every tracked file that is text and exists.
pub fn tracked() -> Vec<File> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root())
        .output()
        .expect("git starts");
    assert!(output.status.success(), "git ls-files failed");
    let listed = String::from_utf8(output.stdout).expect("paths are UTF-8");
    listed
        .split_terminator('\0')
        .filter_map(|path| {
            let text = fs::read_to_string(root().join(path)).ok()?;
            Some(File {
                path: path.to_owned(),
                text,
            })
        })
        .collect()
}

/// Functions longer than `limit` lines of code: name and length. Blank lines and comments don't count.
pub fn long_functions(text: &str, limit: usize) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut long = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else {
            continue;
        };
        let indent = &line[..line.len() - line.trim_start().len()];
        let end = format!("{indent}}}");
        let body = lines[at..].iter().skip(1).take_while(|line| **line != end);
        let length = body.filter(|line| is_code(line)).count();
        let declared_only = lines[at..]
            .iter()
            .find(|line| line.ends_with([';', '{', '}']));
        let has_body = declared_only.is_some_and(|line| line.ends_with('{'));
        if has_body && length > limit {
            long.push((name.to_owned(), length));
        }
    }
    long
}

fn function_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    for word in [
        "pub(crate) ",
        "pub(super) ",
        "pub ",
        "const ",
        "async ",
        "unsafe ",
        "extern \"C\" ",
    ] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let rest = rest.strip_prefix("fn ")?;
    rest.split(['(', '<']).next()
}

fn is_code(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with("//")
}

#[cfg(test)]
mod tests {
    use super::long_functions;

    #[test]
    fn a_function_is_as_long_as_its_code() {
        let text = "impl A {\n    pub async fn b(&self) {\n        // why\n        c();\n\n        d();\n    }\n}\nfn e() {}\n";
        assert_eq!(long_functions(text, 1), [("b".to_owned(), 2)]);
        assert_eq!(long_functions(text, 2), []);
    }
}

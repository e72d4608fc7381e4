//! Licence expressions of packages (SPDX, with the old `/` for OR). Never knows which package it reads.

/// Licences that a dependency may come under.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Unlicense",
    "Zlib",
];

/// Whether one way of reading the expression needs only allowed licences.
pub fn is_allowed(expression: &str) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let allowed = any_of(&mut rest);
    allowed && rest.is_empty()
}

/// `term OR term …`
fn any_of(rest: &mut &[&str]) -> bool {
    let mut allowed = all_of(rest);
    while let Some(("OR", tail)) = first(rest) {
        *rest = tail;
        allowed |= all_of(rest);
    }
    allowed
}

/// `licence AND licence …`
fn all_of(rest: &mut &[&str]) -> bool {
    let mut allowed = one(rest);
    while let Some(("AND", tail)) = first(rest) {
        *rest = tail;
        allowed &= one(rest);
    }
    allowed
}

/// A licence, perhaps with an exception, or an expression in parentheses
fn one(rest: &mut &[&str]) -> bool {
    let Some((word, tail)) = first(rest) else {
        return false;
    };
    *rest = tail;
    if word == "(" {
        let allowed = any_of(rest);
        return match first(rest) {
            Some((")", tail)) => {
                *rest = tail;
                allowed
            }
            _ => false,
        };
    }
    if let ["WITH", exception, tail @ ..] = *rest {
        *rest = tail;
        return ALLOWED.contains(&format!("{word} WITH {exception}").as_str());
    }
    ALLOWED.contains(&word)
}

fn first<'a, 'b>(words: &'b [&'a str]) -> Option<(&'a str, &'b [&'a str])> {
    words.split_first().map(|(word, tail)| (*word, tail))
}

#[cfg(test)]
mod tests {
    use super::is_allowed;

    #[test]
    fn an_expression_is_allowed_if_one_way_through_it_is() {
        for (expression, expected) in [
            ("MIT", true),
            ("MIT/Apache-2.0", true),
            ("GPL-2.0", false),
            ("GPL-2.0 OR MIT", true),
            ("MIT AND GPL-2.0", false),
            ("(MIT OR GPL-2.0) AND Unicode-3.0", true),
            ("Apache-2.0 WITH LLVM-exception OR GPL-2.0", true),
            ("GPL-2.0 WITH Classpath-exception-2.0", false),
            ("(MIT", false),
            ("MIT)", false),
            ("", false),
        ] {
            assert_eq!(is_allowed(expression), expected, "{expression}");
        }
    }
}

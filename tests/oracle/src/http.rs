//! `GET` over HTTP/1.1, as a load balancer's probe sends it.
//!
//! Owns the request and the cutting of the answer; compares nothing.

use std::{
    collections::BTreeMap,
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

const PATIENCE: Duration = Duration::from_secs(2);
/// Longest answer that is read.
const LIMIT: u64 = 64 * 1024;

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Status code.
    pub code: u16,
    /// Headers, names in small letters.
    pub headers: BTreeMap<String, String>,
    /// Body.
    pub body: String,
}

/// Asks from the namespace of the calling thread.
pub fn get(at: SocketAddr, path: &str) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&at, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream.take(LIMIT).read_to_string(&mut text)?;
    cut(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, text))
}

fn cut(text: &str) -> Option<Answer> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let code = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    Some(Answer {
        code,
        headers: lines.map(header).collect::<Option<_>>()?,
        body: body.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_cut_into_its_parts() {
        let answer =
            cut("HTTP/1.1 503 Service Unavailable\r\nX-A: b: c\r\n\r\n{\n}").expect("whole");
        assert_eq!(answer.code, 503);
        assert_eq!(
            answer.headers,
            BTreeMap::from([("x-a".to_owned(), "b: c".to_owned())])
        );
        assert_eq!(answer.body, "{\n}");
        assert_eq!(cut("HTTP/1.1"), None);
    }
}

//! A fake API server over plain HTTP for one kind, which fails in the ways that servers fail.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
    time::Instant,
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{Request, Response, body::Frame, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch};

/// How the watches of a phase fail, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Failure {
    /// HTTP 410.
    Gone,
    /// HTTP 200, an ERROR event with code 410.
    ExpiredEvent,
    /// HTTP 200, an ERROR event that says it in words only.
    TooOldEvent,
    /// HTTP 504.
    Timeout,
    /// The connection ends in the middle of a line.
    Reset,
}

const FAILURES: [Failure; 5] = [
    Failure::Gone,
    Failure::ExpiredEvent,
    Failure::TooOldEvent,
    Failure::Timeout,
    Failure::Reset,
];

struct State {
    objects: Vec<Value>,
    version: u64,
    /// Watches from this version on fail; 0: none does.
    failing_below: u64,
    served: BTreeMap<Failure, usize>,
    next: usize,
    lists: Vec<Instant>,
}

/// The fake. Ends with its task.
#[derive(Clone)]
pub(crate) struct Fake {
    state: Arc<Mutex<State>>,
    cut: watch::Sender<u64>,
    address: std::net::SocketAddr,
}

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

impl Fake {
    pub(crate) async fn start(version: u64, objects: Vec<Value>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fake = Self {
            state: Arc::new(Mutex::new(State {
                objects,
                version,
                failing_below: 0,
                served: BTreeMap::new(),
                next: 0,
                lists: Vec::new(),
            })),
            cut: watch::channel(0).0,
            address: listener.local_addr().unwrap(),
        };
        let served = fake.clone();
        tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    return;
                };
                let fake = served.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        let answer = fake.answer(&request);
                        async move { Ok::<_, Infallible>(answer) }
                    });
                    let _ended = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        fake
    }

    pub(crate) fn client(&self) -> Client {
        let mut config = Config::new(format!("http://{}", self.address).parse().unwrap());
        config.default_retry = false;
        Client::try_from(config).unwrap()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Ends every open watch; from now on each watch from a version up to this one fails.
    pub(crate) fn fail(&self, version: u64) {
        self.lock().failing_below = version + 1;
        self.cut.send_modify(|cuts| *cuts += 1);
    }

    /// New lists tell this.
    pub(crate) fn heal(&self, version: u64, objects: Vec<Value>) {
        let mut state = self.lock();
        state.version = version;
        state.objects = objects;
    }

    /// How often each failure was served.
    pub(crate) fn served(&self) -> BTreeMap<Failure, usize> {
        self.lock().served.clone()
    }

    /// When lists were asked for.
    pub(crate) fn lists(&self) -> Vec<Instant> {
        self.lock().lists.clone()
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Body> {
        let query = request.uri().query().unwrap_or_default();
        let parameter = |wanted: &str| {
            query
                .split('&')
                .find_map(|pair| pair.strip_prefix(wanted)?.strip_prefix('='))
        };
        let mut state = self.lock();
        if parameter("watch") != Some("true") {
            state.lists.push(Instant::now());
            return json_body(
                200,
                &json!({
                    "apiVersion": "v1",
                    "kind": "List",
                    "metadata": {"resourceVersion": state.version.to_string()},
                    "items": state.objects,
                }),
            );
        }
        let from: u64 = parameter("resourceVersion").unwrap_or("0").parse().unwrap();
        if from >= state.failing_below {
            return open_watch(self.cut.subscribe());
        }
        let failure = FAILURES[state.next % FAILURES.len()];
        state.next += 1;
        *state.served.entry(failure).or_default() += 1;
        match failure {
            Failure::Gone => json_body(
                410,
                &status(410, "Expired", "too old resource version: 1000 (4000)"),
            ),
            Failure::ExpiredEvent => json_body(
                200,
                &json!({"type": "ERROR", "object": status(410, "Expired", "gone")}),
            ),
            Failure::TooOldEvent => {
                let object = status(
                    500,
                    "InternalError",
                    "too old resource version: 1000 (4000)",
                );
                json_body(200, &json!({"type": "ERROR", "object": object}))
            }
            Failure::Timeout => json_body(504, &status(504, "Timeout", "etcd does not answer")),
            Failure::Reset => {
                let frames = [
                    Ok(Frame::data(Bytes::from_static(
                        b"{\"type\":\"MODIFIED\",\"obj",
                    ))),
                    Err(std::io::Error::other("reset")),
                ];
                Response::new(BodyExt::boxed_unsync(StreamBody::new(stream::iter(frames))))
            }
        }
    }
}

fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message})
}

fn json_body(code: u16, body: &Value) -> Response<Body> {
    let bytes = Bytes::from(format!("{body}\n"));
    let body = Full::new(bytes)
        .map_err(|never| match never {})
        .boxed_unsync();
    Response::builder().status(code).body(body).unwrap()
}

/// A watch that tells nothing and stays open until it is cut.
fn open_watch(mut cut: watch::Receiver<u64>) -> Response<Body> {
    let first = *cut.borrow_and_update();
    let silent = stream::once(async move {
        let _closed = cut.wait_for(|cuts| *cuts != first).await;
    });
    let frames = silent.filter_map(|()| async { None::<Result<Frame<Bytes>, std::io::Error>> });
    Response::new(BodyExt::boxed_unsync(StreamBody::new(frames)))
}

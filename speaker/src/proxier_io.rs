//! Brings the kernel's table in step with the newest [`NodeView`], and keeps it there.
//!
//! Owns an OS thread of its own, so that loading rules delays neither ARP answers nor heartbeats. Feeds
//! `speaker_proxier::Planner`, carries out its changes, decides nothing.
//!
//! ```text
//! start(settings, healthz_port) -> (Handle, watch of Programmed)      handle.update(NodeView), the newest counts
//! ```
//! On start the table that is there is taken over: flows and affinity memory live on, only what differs is written. When
//! somebody else changes the ruleset (its generation is asked for once a second) the table is read back and what differs is
//! put right. A batch that the kernel refuses is followed by a read-back, then by one change at a time: what is refused then
//! concerns one Service, which is reported, and all the others are in step. Health ports (`health_io`) are fed from here.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use api_model::{Port, ServiceKey};
use speaker_proxier::{
    Change, Planner, Reason, Refusal,
    conntrack::Forget,
    nft::{
        Operation, Table, Transaction,
        compile::{FEW_READY_MADE_SLOTS, READY_MADE_SLOTS, Settings, ready_made_up_to},
    },
    node_view::NodeView,
};
use tokio::sync::watch;
use tracing::{debug, error, info, warn};

use crate::{
    conntrack_io,
    health_io::{self, Board},
    netlink::Netlink,
    nft_io::{Found, NftError, NftIo},
};

/// How `nft` says that a batch is longer than the send buffer, which only root outside of user namespaces can enlarge.
const TOO_LONG: &str = "Message too long";
/// How often the ruleset's generation is asked for.
const LOOK: Duration = Duration::from_secs(1);
/// The table is read back this often even when nobody seems to have changed it.
const VERIFY: Duration = Duration::from_secs(300);
/// A read-back may take this part of the time, but what somebody else changed never waits longer than `REST`.
const VERIFY_SHARE: u32 = 20;
const REST: Duration = Duration::from_secs(30);
/// Elements that the kernel refused are tried again so often; everything else goes on meanwhile.
const REFUSED_AGAIN: Duration = Duration::from_secs(30);

/// Which rules are in the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Programmed {
    /// The view that the table follows; 0 before the first.
    pub generation: u64,
    /// Load balancer addresses whose rules are in the kernel, by Service.
    pub vips: Arc<BTreeMap<ServiceKey, BTreeSet<IpAddr>>>,
    /// What is not as asked, by Service.
    pub refusals: BTreeMap<ServiceKey, Vec<Refusal>>,
    /// The last attempt ended with an error: the table is not in step.
    pub failing: bool,
    /// How often rules that somebody else had changed were put right.
    pub restored: u64,
}

/// Feeds the thread. Dropping it ends the thread; the rules stay, so that a restart is hitless.
#[derive(Debug)]
pub struct Handle {
    mailbox: Arc<Mailbox>,
    board: Arc<Board>,
    thread: Option<JoinHandle<()>>,
    /// Ends after the thread that feeds it.
    _health: health_io::Handle,
}

#[derive(Debug, Default)]
struct Mailbox {
    letter: Mutex<Letter>,
    posted: Condvar,
}

#[derive(Debug, Default)]
struct Letter {
    view: Option<Arc<NodeView>>,
    stop: bool,
}

impl Handle {
    /// Replaces the view to follow.
    pub fn update(&self, view: Arc<NodeView>) {
        self.board.pending();
        self.post(|letter| letter.view = Some(view));
    }

    fn post(&self, change: impl FnOnce(&mut Letter)) {
        change(
            &mut self
                .mailbox
                .letter
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        self.mailbox.posted.notify_one();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.post(|letter| letter.stop = true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Starts the thread in the network namespace of the calling one; `/healthz` and `/livez` are answered on `healthz_port`,
/// or nowhere. Errors: no `CAP_NET_ADMIN`, or no `nf_tables`.
pub fn start(
    settings: Settings,
    healthz_port: Option<Port>,
) -> Result<(Handle, watch::Receiver<Programmed>), NftError> {
    let failed = |doing| move |source| NftError::Netlink { doing, source };
    let nft = NftIo::open(settings)?;
    let conntrack = Netlink::open().map_err(failed("opening a conntrack socket"))?;
    let (programmed, receiver) = watch::channel(Programmed::default());
    let mailbox = Arc::new(Mailbox::default());
    let board = Arc::new(Board::default());
    let health =
        health_io::start(board.clone(), healthz_port).map_err(failed("starting a thread"))?;
    let now = Instant::now();
    let keeper = Keeper {
        nft,
        conntrack,
        mailbox: mailbox.clone(),
        board: board.clone(),
        programmed,
        planner: None,
        ready_made_slots: READY_MADE_SLOTS,
        view: None,
        refusals: BTreeMap::new(),
        ruleset: 0,
        out_of_step: false,
        verified: now,
        verify_cost: Duration::ZERO,
        failures: 0,
        restored: 0,
        to_forget: Forget::default(),
        try_refused_again: None,
    };
    let thread = std::thread::Builder::new()
        .name("proxier".into())
        .spawn(move || keeper.run())
        .map_err(failed("starting a thread"))?;
    Ok((
        Handle {
            mailbox,
            board,
            thread: Some(thread),
            _health: health,
        },
        receiver,
    ))
}

enum Next {
    /// A view was posted.
    Follow(Arc<NodeView>),
    /// Nobody posted anything for a while.
    Look,
    /// The handle is gone.
    Stop,
}

struct Keeper {
    nft: NftIo,
    conntrack: Netlink,
    mailbox: Arc<Mailbox>,
    board: Arc<Board>,
    programmed: watch::Sender<Programmed>,
    /// `None` until the first view.
    planner: Option<Planner>,
    /// Choosers for sets of up to so many slots are part of the fixed text.
    ready_made_slots: u32,
    view: Option<Arc<NodeView>>,
    refusals: BTreeMap<ServiceKey, Vec<Refusal>>,
    /// The kernel's generation after our last change.
    ruleset: u32,
    /// The table may not be what the planner thinks.
    out_of_step: bool,
    verified: Instant,
    verify_cost: Duration,
    failures: u32,
    restored: u64,
    /// Flows still to be looked at.
    to_forget: Forget,
    /// When the elements that the kernel refused are tried again.
    try_refused_again: Option<Instant>,
}

impl Keeper {
    fn run(mut self) {
        loop {
            let next = self.wait();
            let begun = Instant::now();
            let done = match next {
                Next::Stop => return,
                Next::Follow(view) => {
                    self.board.follow(&view);
                    self.follow(&view)
                }
                Next::Look => self.look(),
            };
            match done {
                Ok(()) => {
                    self.failures = 0;
                    if self.view.is_some() && !self.out_of_step {
                        self.board.in_step();
                    }
                }
                Err(error) => {
                    self.failures = self.failures.saturating_add(1);
                    self.out_of_step = true;
                    self.board.pending();
                    error!(%error, failures = self.failures, "rules not in step, trying again");
                }
            }
            self.show();
            debug!(took = ?begun.elapsed(), "proxier sync");
        }
    }

    /// What to do next.
    fn wait(&self) -> Next {
        // Failing attempts are spaced out: 1, 2, 4 … 16 s.
        let pause = LOOK.saturating_mul(1 << self.failures.min(4));
        let letter = self
            .mailbox
            .letter
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (mut letter, _) = self
            .mailbox
            .posted
            .wait_timeout_while(letter, pause, |letter| {
                letter.view.is_none() && !letter.stop
            })
            .unwrap_or_else(PoisonError::into_inner);
        match letter.view.take() {
            _ if letter.stop => Next::Stop,
            Some(view) => Next::Follow(view),
            None => Next::Look,
        }
    }

    fn follow(&mut self, view: &Arc<NodeView>) -> Result<(), NftError> {
        self.view = Some(view.clone());
        let Some(mut planner) = self.planner.take() else {
            return self.begin(view);
        };
        let change = planner.update(view);
        self.planner = Some(planner);
        self.note(&change);
        if self.out_of_step {
            self.verify()?;
        } else {
            self.carry_out(&change.transaction)?;
        }
        self.forget();
        Ok(())
    }

    /// The first view: takes over the table that is there, or puts a new one with all its elements at once.
    fn begin(&mut self, view: &NodeView) -> Result<(), NftError> {
        let table = match self.nft.read()? {
            Found::Table(table) => table,
            Found::Unusable(why) => return self.begin_anew(why, view),
        };
        let mut planner = Planner::adopt(&table);
        let change = planner.resume(&table, view);
        info!(
            adopted = table.len(),
            changes = change.transaction.operations.len(),
            services = view.services.len(),
            "first snapshot over the table that was there"
        );
        self.planner = Some(planner);
        self.note(&change);
        self.carry_out(&change.transaction)?;
        self.forget();
        Ok(())
    }

    fn begin_anew(&mut self, why: &str, view: &NodeView) -> Result<(), NftError> {
        info!(
            why,
            services = view.services.len(),
            "putting the whole table in place"
        );
        self.plan_anew(view);
        let table = self.replace()?;
        self.resync(&table)?;
        self.forget();
        Ok(())
    }

    fn read_or_replace(&mut self) -> Result<Table, NftError> {
        match self.nft.read()? {
            Found::Table(table) => Ok(table),
            Found::Unusable(why) => {
                warn!(why, "putting the whole table in place again");
                self.restored += 1;
                self.replace()
            }
        }
    }

    /// A planner that knows nothing but this view.
    fn plan_anew(&mut self, view: &NodeView) {
        let mut planner = Planner::with_ready_made(self.ready_made_slots);
        let change = planner.update(view);
        self.planner = Some(planner);
        self.note(&change);
    }

    /// All as it should be in one transaction; with fewer ready-made choosers where it is too long for the socket.
    fn replace(&mut self) -> Result<Table, NftError> {
        match self.replace_as_planned() {
            Err(NftError::Text(refused))
                if refused.contains(TOO_LONG) && self.ready_made_slots > FEW_READY_MADE_SLOTS =>
            {
                info!(
                    slots = FEW_READY_MADE_SLOTS,
                    "small batches only: services have up to so many endpoints"
                );
                self.ready_made_slots = FEW_READY_MADE_SLOTS;
                if let Some(view) = self.view.clone() {
                    self.plan_anew(&view);
                }
                self.replace_as_planned()
            }
            done => done,
        }
    }

    /// The fixed text alone when all together is refused, so that the elements can follow one by one.
    fn replace_as_planned(&mut self) -> Result<Table, NftError> {
        if let Some(planner) = &self.planner {
            match self.nft.replace(planner.table()) {
                Err(NftError::Text(refused)) if !refused.contains(TOO_LONG) => {
                    warn!(refused, "putting the fixed text in place");
                }
                Err(NftError::Text(refused)) => debug!(refused, "putting the fixed text in place"),
                done => return done,
            }
        }
        self.nft.replace(ready_made_up_to(self.ready_made_slots))
    }

    /// Nobody posted anything: has somebody else changed the ruleset?
    fn look(&mut self) -> Result<(), NftError> {
        if self.planner.is_none() {
            let Some(view) = self.view.clone() else {
                return Ok(());
            };
            return self.begin(&view);
        }
        let changed = self.nft.generation()? != self.ruleset;
        let rested = self.verified.elapsed() >= (self.verify_cost * VERIFY_SHARE).min(REST);
        let again = self
            .try_refused_again
            .is_some_and(|at| at <= Instant::now());
        if self.out_of_step || again || changed && rested || self.verified.elapsed() >= VERIFY {
            self.verify()?;
        }
        self.forget();
        Ok(())
    }

    /// Reads the table back and puts right what differs.
    fn verify(&mut self) -> Result<(), NftError> {
        let begun = Instant::now();
        let ours = self.out_of_step || self.try_refused_again.is_some();
        let table = self.read_or_replace()?;
        let differs = self.resync(&table)?;
        self.restored += u64::from(differs && !ours);
        self.verified = Instant::now();
        self.verify_cost = begun.elapsed();
        Ok(())
    }

    /// Puts right what differs; says whether something did.
    fn resync(&mut self, table: &Table) -> Result<bool, NftError> {
        let Some(planner) = &self.planner else {
            return Ok(false);
        };
        let transaction = planner.resync(table);
        if !transaction.is_empty() {
            warn!(
                changes = transaction.operations.len(),
                "the table differs, putting it right"
            );
        }
        self.out_of_step = false;
        self.carry_out(&transaction)?;
        Ok(!transaction.is_empty())
    }

    fn carry_out(&mut self, transaction: &Transaction) -> Result<(), NftError> {
        match self.apply(transaction) {
            Ok(()) => Ok(()),
            Err(error) => {
                warn!(%error, "a change was refused, reading the table back");
                self.repair()
            }
        }
    }

    fn apply(&mut self, transaction: &Transaction) -> Result<(), NftError> {
        self.nft.make_chains(&transaction.chains)?;
        self.nft.apply(&transaction.operations)?;
        self.ruleset = self.nft.generation()?;
        Ok(())
    }

    /// One change at a time: what is refused concerns one Service.
    fn repair(&mut self) -> Result<(), NftError> {
        self.try_refused_again = None;
        for refusals in self.refusals.values_mut() {
            refusals.retain(|refusal| refusal.reason != Reason::KernelRefused);
        }
        self.refusals.retain(|_, refusals| !refusals.is_empty());
        let table = self.read_or_replace()?;
        let Some(planner) = &self.planner else {
            return Ok(());
        };
        let transaction = planner.resync(&table);
        self.nft.make_chains(&transaction.chains)?;
        let mut refused: Vec<(ServiceKey, Operation, String)> = Vec::new();
        for operation in &transaction.operations {
            if let Err(error) = self.nft.apply(std::slice::from_ref(operation)) {
                let owners = planner.owners(operation.key());
                refused.extend(
                    owners
                        .into_iter()
                        .map(|key| (key, *operation, error.to_string())),
                );
            }
        }
        for (key, operation, error) in refused {
            let detail = format!("{:?}: {error}", operation.key());
            warn!(service = %key, reason = Reason::KernelRefused.as_str(), detail, "a change was refused");
            let refusal = Refusal::new(&key, Reason::KernelRefused, detail);
            self.refusals.entry(key).or_default().push(refusal);
            self.try_refused_again = Some(Instant::now() + REFUSED_AGAIN);
        }
        self.ruleset = self.nft.generation()?;
        Ok(())
    }

    fn note(&mut self, change: &Change) {
        self.to_forget.merge(change.forget.clone());
        for key in &change.services {
            self.refusals.remove(key);
        }
        for refusal in &change.refusals {
            self.refusals
                .entry(refusal.service.clone())
                .or_default()
                .push(refusal.clone());
        }
    }

    fn forget(&mut self) {
        if self.to_forget.is_empty() {
            return;
        }
        match conntrack_io::forget(&mut self.conntrack, &self.to_forget) {
            Ok(0) => {}
            Ok(flows) => info!(flows, "flows to former endpoints forgotten"),
            // A kernel without conntrack has no flows to forget.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                warn!(%error, "flows to former endpoints remain, trying again");
                return;
            }
        }
        self.to_forget = Forget::default();
    }

    fn all_refusals(&self) -> BTreeMap<ServiceKey, Vec<Refusal>> {
        let mut all = self.refusals.clone();
        for refusal in self.board.refusals() {
            all.entry(refusal.service.clone())
                .or_default()
                .push(refusal);
        }
        all
    }

    fn show(&self) {
        let failing = self.failures > 0;
        // What failed to be written is not claimed; what was written before still stands.
        let vips = match &self.planner {
            Some(planner) if !failing => planner.programmed().clone(),
            Some(_) | None => self.programmed.borrow().vips.clone(),
        };
        let refused = |key: &ServiceKey| {
            let refusals = self.refusals.get(key);
            refusals.is_some_and(|all| all.iter().any(|it| it.reason == Reason::KernelRefused))
        };
        let vips = if vips.keys().any(refused) {
            let kept = vips.iter().filter(|(key, _)| !refused(key));
            Arc::new(
                kept.map(|(key, vips)| (key.clone(), vips.clone()))
                    .collect(),
            )
        } else {
            vips
        };
        let generation = self.view.as_ref().map_or(0, |view| view.generation);
        let next = Programmed {
            generation,
            vips,
            refusals: self.all_refusals(),
            failing,
            restored: self.restored,
        };
        self.programmed.send_if_modified(|shown| {
            let differs = *shown != next;
            *shown = next;
            differs
        });
    }
}

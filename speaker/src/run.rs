//! One task per speaker: watches, shells and the clock in, snapshots out.
//!
//! Owns the order of events and nothing else: what to do is derived in `derive` and decided in the cores. Facts that wait are
//! taken together, so that a burst of changes is derived once.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    io,
    net::IpAddr,
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use api_client::events::{self, Recorder, Severity};
use api_model::{Port, ServiceKey, Time};
use api_types::names::event;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Client, Resource};
use speaker_l2::{InterfaceName, Mac, announcer::VipSpec, candidate::Gate};
use speaker_proxier::{Refusal, nft::compile::Settings};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::sleep,
};
use tracing::{debug, info, warn};

use crate::{
    Config,
    bgp_io::{self, Bgp, Desired},
    derive::{Derived, derive},
    drain::Drain,
    ingest::{self, Change, Fact, Facts, Finding, Networks, NodeViews},
    l2_io, membership_io,
    nft_io::NftError,
    proxier_io,
    proxier_io::Programmed,
    status::{self, Report},
    watches::{self, KINDS, Told},
};

/// Facts that are taken together before the whole is derived anew.
const FACT_BATCH: usize = 4096;

/// Reason of the event on the Node when its rules had to be put right.
const RULES_RESTORED: &str = "RulesRestored";

/// Why a speaker can't run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A socket or thread could not be made.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The rules can't be reached.
    #[error("the proxier can't start: {0}")]
    Proxier(#[from] NftError),
}

/// Runs a speaker in the network namespace of the calling thread until `shutdown` completes. Then every address is
/// withdrawn; the rules stay, so that a restart is hitless.
pub async fn run(
    client: Client,
    config: Config,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    let mut speaker = Speaker::start(client.clone(), config)?;
    let mut told = watches::start(&client, &speaker.config.config_namespace);
    let mut shutdown = std::pin::pin!(shutdown);
    info!(node = %speaker.config.node, "speaker started");
    loop {
        let deadline = speaker
            .drain
            .next_deadline()
            .map(|due| due.since(speaker.now()));
        let drained = async {
            match deadline {
                Some(wait) => sleep(wait).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = &mut shutdown => break,
            first = told.next() => {
                let Some(first) = first else { break };
                speaker.take(first);
                for _ in 1..FACT_BATCH {
                    let Some(Some(next)) = told.next().now_or_never() else { break };
                    speaker.take(next);
                }
            }
            Ok(()) = speaker.members.changed() => {}
            Ok(()) = speaker.programmed.changed() => speaker.open_gate(),
            Some(event) = speaker.layer2_events.recv() => speaker.heard(event),
            () = drained => {}
        }
        speaker.step();
    }
    info!("speaker stops: addresses are withdrawn, rules stay");
    speaker.stop().await;
    Ok(())
}

struct Speaker {
    config: Config,
    begun: Instant,
    recorder: Recorder,
    // what is known
    facts: Facts,
    stored_findings: Vec<Finding>,
    unreadable: BTreeMap<(&'static str, String), Finding>,
    listed: BTreeSet<usize>,
    config_changed: bool,
    drain: Drain,
    gate: Gate,
    macs: BTreeMap<InterfaceName, Mac>,
    announced: BTreeMap<IpAddr, BTreeSet<String>>,
    // the parts
    views: NodeViews,
    view_sent: u64,
    proxier: Option<proxier_io::Handle>,
    programmed: watch::Receiver<Programmed>,
    /// Keeps `programmed` open when another proxy carries the packets.
    _no_proxier: Option<watch::Sender<Programmed>>,
    layer2: l2_io::Handle,
    layer2_events: mpsc::Receiver<l2_io::Event>,
    membership: membership_io::Handle,
    members: watch::Receiver<membership_io::View>,
    bgp: bgp_io::Handle,
    bgp_sessions: JoinHandle<()>,
    report: watch::Sender<Report>,
    reporter: JoinHandle<()>,
    // what was told last
    assigned: BTreeSet<(ServiceKey, &'static str)>,
    findings_told: BTreeSet<Finding>,
    view_refusals: Vec<Refusal>,
    refusals_told: BTreeSet<Refusal>,
    restored_told: u64,
}

impl Speaker {
    fn start(client: Client, config: Config) -> Result<Self, Error> {
        let failed = |doing| move |source| Error::Io { doing, source };
        let incarnation = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let me = speaker_membership::Config {
            me: config.node.clone(),
            cluster: 0,
            incarnation: u64::try_from(incarnation.as_millis()).unwrap_or(u64::MAX),
        };
        let (membership, members) = membership_io::start(me, config.heartbeat_port)
            .map_err(failed("listening for heartbeats"))?;
        let exclude = config.exclude_interfaces.clone();
        let (layer2, layer2_events) = l2_io::start(l2_io::Config { exclude })
            .map_err(failed("opening packet sockets (CAP_NET_RAW is needed)"))?;
        let (proxier, programmed, no_proxier) = if config.proxier {
            let (handle, programmed) =
                proxier_io::start(Settings::default(), Port::new(config.healthz_port))?;
            (Some(handle), programmed, None)
        } else {
            let (sender, programmed) = watch::channel(Programmed::default());
            (None, programmed, Some(sender))
        };
        let (recorder, _) =
            events::start(client.clone(), "roadstead-speaker", config.node.as_str());
        let (bgp, bgp_sessions) = Bgp::start(bgp_io::Config::for_node(&config.node));
        let (report, reports) = watch::channel(Report::default());
        let reporter = status::start(client, &config.config_namespace, &config.node, reports);
        Ok(Self {
            config,
            begun: Instant::now(),
            recorder,
            facts: Facts::default(),
            stored_findings: Vec::new(),
            unreadable: BTreeMap::new(),
            listed: BTreeSet::new(),
            config_changed: true,
            drain: Drain::default(),
            gate: Gate::default(),
            macs: BTreeMap::new(),
            announced: BTreeMap::new(),
            views: NodeViews::default(),
            view_sent: 0,
            proxier,
            programmed,
            _no_proxier: no_proxier,
            layer2,
            layer2_events,
            membership,
            members,
            bgp,
            bgp_sessions,
            report,
            reporter,
            assigned: BTreeSet::new(),
            findings_told: BTreeSet::new(),
            view_refusals: Vec::new(),
            refusals_told: BTreeSet::new(),
            restored_told: 0,
        })
    }

    fn now(&self) -> Time {
        Time::from_start(self.begun.elapsed())
    }

    fn take(&mut self, told: Told) {
        match told {
            Told::Fact(fact) => {
                self.take_fact(&fact);
                self.facts.take(fact);
            }
            Told::Unreadable(finding) => {
                warn!(
                    kind = finding.kind,
                    name = finding.name,
                    error = finding.message,
                    "an object can't be read"
                );
                self.unreadable
                    .insert((finding.kind, finding.name.clone()), finding);
            }
            Told::Listed(place) => {
                if self.listed.insert(place) && self.listed.len() == KINDS {
                    info!("every kind was listed");
                }
            }
        }
    }

    /// Notes what follows from a fact besides its place in the tables.
    fn take_fact(&mut self, fact: &Fact) {
        match fact {
            Fact::Service(change) => {
                let (service, new) = match change {
                    Change::Apply(service) => (service, Some(&**service)),
                    Change::Delete(service) => (service, None),
                };
                let Some(key) = ingest::service_key(service) else {
                    return;
                };
                if let Some(old) = self.facts.services.get(&key).cloned() {
                    let now = self.now();
                    self.drain.changed(now, &key, &old, new);
                }
            }
            Fact::Slice(_) | Fact::Node(_) => {}
            Fact::Pool(_)
            | Fact::L2Advertisement(_)
            | Fact::BgpAdvertisement(_)
            | Fact::BgpPeer(_)
            | Fact::BfdProfile(_)
            | Fact::Community(_)
            | Fact::Secret(_) => self.config_changed = true,
        }
        if let Some(place) = ingest::place_of(fact) {
            self.unreadable.remove(&place);
        }
    }

    /// A VIP may be announced for the first time when its rules are in the kernel.
    fn open_gate(&mut self) {
        let programmed = self.programmed.borrow_and_update().clone();
        for vip in programmed.vips.values().flatten() {
            self.gate.programmed(*vip);
        }
        if programmed.restored > self.restored_told {
            self.restored_told = programmed.restored;
            self.report_restored();
        }
        debug!(
            generation = programmed.generation,
            failing = programmed.failing,
            "programmed"
        );
    }

    fn heard(&mut self, event: l2_io::Event) {
        match event {
            l2_io::Event::Announced(vip, interface) => {
                self.announced
                    .entry(vip)
                    .or_default()
                    .insert(interface.to_string());
            }
            l2_io::Event::Withdrawn(vip, interface) => {
                if let Some(interfaces) = self.announced.get_mut(&vip) {
                    interfaces.remove(&*interface);
                    if interfaces.is_empty() {
                        self.announced.remove(&vip);
                    }
                }
            }
            // The shell has logged it; the metric counts it.
            l2_io::Event::Conflict(..) => {}
            l2_io::Event::Interfaces(macs) => self.macs = macs,
        }
    }

    /// Derives everything anew and tells each part.
    fn step(&mut self) {
        if self.listed.len() < KINDS {
            return;
        }
        let now = self.now();
        self.drain.expire(now);
        if std::mem::take(&mut self.config_changed) {
            self.stored_findings = self.facts.check();
        }
        self.tell_membership();
        self.tell_proxier();
        let members = self.members.borrow_and_update().clone();
        if self.proxier.is_none() {
            self.trust_other_proxy();
        }
        let derived = derive(&self.config, &self.facts, &members.alive, &mut self.gate);
        self.tell_layer2(&derived, &members);
        self.bgp.update(Desired {
            peers: derived.peers.clone(),
            routes: derived.wanted.routes.clone(),
        });
        self.tell_cluster(&derived);
        self.report_refusals();
    }

    fn tell_membership(&self) {
        let others = self
            .facts
            .nodes
            .iter()
            .filter(|(name, _)| **name != self.config.node);
        let addresses = others.filter_map(|(name, node)| {
            Some((name.clone(), *ingest::internal_addresses(node).first()?))
        });
        self.membership.update(membership_io::Peers {
            addresses: addresses.collect(),
            macs: self.macs.values().copied().collect(),
        });
    }

    fn tell_proxier(&mut self) {
        let Some(proxier) = &self.proxier else { return };
        let networks = Networks {
            pods: ingest::pod_networks(&self.config.pod_networks, &self.facts),
            services: self.config.service_networks.clone(),
        };
        let node = self.facts.nodes.get(&self.config.node);
        let this = ingest::this_node(&self.config.node, node.map(|node| &**node), &networks);
        let services = self.drain.effective(&self.facts.services);
        let (view, refusals) = self
            .views
            .build(this, &services, |key| self.facts.slices_of(key));
        self.view_refusals = refusals;
        if view.generation != self.view_sent {
            self.view_sent = view.generation;
            proxier.update(Arc::new(view));
        }
    }

    /// Without a proxier of ours nothing tells when rules are there; the condition says so.
    fn trust_other_proxy(&mut self) {
        for address in self
            .facts
            .services
            .values()
            .flat_map(|service| ingest::ingress_addresses(service))
        {
            self.gate.programmed(address);
        }
    }

    fn tell_layer2(&self, derived: &Derived, members: &membership_io::View) {
        let specs = derived.layer2.iter().map(|(address, decision)| {
            let announce = decision.announce() && members.settled;
            (
                *address,
                VipSpec {
                    interfaces: decision.interfaces.clone(),
                    announce,
                },
            )
        });
        self.layer2.update(l2_io::Snapshot {
            vips: specs.collect(),
            fellows: members.fellows.clone(),
        });
    }

    fn tell_cluster(&mut self, derived: &Derived) {
        let layer2 = derived.layer2_services(&self.announced);
        let bgp = derived.bgp_services();
        let mut assigned = BTreeSet::new();
        assigned.extend(layer2.keys().map(|key| (key.clone(), "layer2")));
        assigned.extend(bgp.keys().map(|key| (key.clone(), "bgp")));
        for (key, protocol) in assigned.difference(&self.assigned) {
            if let Some(service) = self.facts.services.get(key) {
                let node = &self.config.node;
                let message =
                    format!("announcing from node \"{node}\" with protocol \"{protocol}\"");
                self.recorder
                    .report(&**service, Severity::Normal, event::NODE_ASSIGNED, &message);
            }
        }
        self.assigned = assigned;
        let findings: BTreeSet<Finding> = self
            .stored_findings
            .iter()
            .chain(self.unreadable.values())
            .chain(&derived.findings)
            .cloned()
            .collect();
        self.report_findings(&findings);
        let report = Report {
            layer2,
            bgp,
            findings: Some(findings.iter().cloned().collect()),
        };
        self.findings_told = findings;
        self.report.send_if_modified(|shown| {
            let differs = *shown != report;
            *shown = report;
            differs
        });
    }

    /// Somebody else changes our rules: whoever looks after the node should know.
    fn report_restored(&self) {
        if let Some(node) = self.facts.nodes.get(&self.config.node) {
            let message = "rules of the table roadstead were changed by somebody else and are put right; \
                           see the speaker's log, and leave that table alone";
            self.recorder
                .report(&**node, Severity::Warning, RULES_RESTORED, message);
        }
    }

    /// A line and an event on the Service for each thing that the proxier does not do as asked, once.
    fn report_refusals(&mut self) {
        let programmed = self.programmed.borrow();
        let refusals: BTreeSet<Refusal> = programmed
            .refusals
            .values()
            .flatten()
            .chain(&self.view_refusals)
            .cloned()
            .collect();
        drop(programmed);
        for refusal in refusals.difference(&self.refusals_told) {
            let (key, reason) = (&refusal.service, refusal.reason.as_str());
            warn!(service = %key, reason, detail = refusal.detail, "a Service is not served as asked");
            if let Some(service) = self.facts.services.get(key) {
                self.recorder
                    .report(&**service, Severity::Warning, reason, &refusal.detail);
            }
        }
        self.refusals_told = refusals;
    }

    /// An event on the object for each finding that is new.
    fn report_findings(&self, findings: &BTreeSet<Finding>) {
        for finding in findings.difference(&self.findings_told) {
            let Some(object) = self.reference(finding) else {
                continue;
            };
            let reason = if finding.fatal {
                event::INVALID_CONFIGURATION
            } else {
                event::FIELD_NOT_SUPPORTED
            };
            self.recorder
                .report_on(&object, Severity::Warning, reason, &finding.message);
        }
    }

    fn reference(&self, finding: &Finding) -> Option<ObjectReference> {
        let stored = &self.facts.stored;
        let name = &finding.name;
        match finding.kind {
            "IPAddressPool" => Some(stored.pools.get(&name.as_str().into())?.object_ref(&())),
            "L2Advertisement" => Some(stored.l2_advertisements.get(name)?.object_ref(&())),
            "BGPAdvertisement" => Some(stored.bgp_advertisements.get(name)?.object_ref(&())),
            "BGPPeer" => Some(stored.bgp_peers.get(name)?.object_ref(&())),
            "BFDProfile" => Some(stored.bfd_profiles.get(name)?.object_ref(&())),
            "Community" => Some(stored.communities.get(name)?.object_ref(&())),
            _ => None,
        }
    }

    /// Silence first, then the end of the sessions; rules stay.
    async fn stop(self) {
        self.layer2.update(l2_io::Snapshot::default());
        let Self {
            layer2,
            membership,
            proxier,
            bgp,
            bgp_sessions,
            report,
            reporter,
            ..
        } = self;
        drop(bgp);
        let _ = bgp_sessions.await;
        let joined = tokio::task::spawn_blocking(move || {
            drop(layer2);
            drop(membership);
            drop(proxier);
        });
        let _ = joined.await;
        report.send_modify(|report| {
            report.layer2.clear();
            report.bgp.clear();
        });
        drop(report);
        let _ = tokio::time::timeout(std::time::Duration::from_secs(2), reporter).await;
    }
}

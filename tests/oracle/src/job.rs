//! A row made ready: its combinations of target, protocol and family, with addresses and ports.
//!
//! Owns the row's name and what its line says in the end. What can't be asked in full is refused here, with the reason.

use api_model::{IpFamily, Protocol};
use serde_json::Value;

use crate::{
    compare::{Judgement, judge},
    differences::Differences,
    expectation::{Expect, Row},
    observation::Observation,
    probe::Question,
    report::{Line, Verdict},
    scenario::Scenario,
    topology::Topology,
};

/// Differing combinations that a line shows.
const SHOWN: usize = 3;

/// A row ready to be asked.
#[derive(Debug)]
pub struct Job {
    /// `scenario#n from`.
    pub id: String,
    /// What every combination has to give.
    pub expect: Expect,
    /// What was recorded, and why something else is expected, where it is.
    instead_of: Option<(Expect, String)>,
    /// What to ask.
    pub combinations: Vec<Combination>,
}

/// One target over one protocol and family.
#[derive(Debug)]
pub struct Combination {
    /// `lb TCP IPv4`.
    pub name: String,
    /// What to ask.
    pub question: Question,
    /// Combinations of one lane share affinity memory, so they are not asked at the same time.
    pub lane: String,
    /// What was seen up to now.
    pub seen: Observation,
}

/// The name of a row: its scenario, its number from 1, who asks.
pub fn id(scenario: &str, number: usize, row: &Value) -> String {
    let from = row["from"].as_str().unwrap_or("?");
    format!("{scenario}#{number} {from}")
}

impl Job {
    /// Makes a row ready. The error says what of it can't be asked.
    pub fn new(
        id: String,
        row: &Value,
        scenario: &Scenario,
        topology: &Topology,
        differences: &Differences,
    ) -> Result<Self, String> {
        let row = Row::read(row).map_err(|error| error.to_string())?;
        let mut combinations = Vec::new();
        for target in &row.to {
            for protocol in &row.protocols {
                for family in &row.families {
                    let question =
                        question(&row.from, target, (*protocol, *family), scenario, topology)?;
                    combinations.push(Combination {
                        name: format!("{target} {protocol} {family}"),
                        question,
                        lane: format!("{} {} {protocol} {family}", scenario.name, row.from),
                        seen: Observation::default(),
                    });
                }
            }
        }
        let (expect, instead_of) = match differences.of(&id) {
            Some(wanted) => (
                wanted.expect.clone(),
                Some((row.expect, wanted.reason.clone())),
            ),
            None => (row.expect, None),
        };
        Ok(Self {
            id,
            expect,
            instead_of,
            combinations,
        })
    }

    /// Whether its connections are remembered.
    pub fn is_sticky(&self) -> bool {
        matches!(&self.expect, Expect::Served(served) if served.sticky)
    }

    /// What it came to.
    pub fn line(&self) -> Line {
        let differs = |it: &&Combination| judge(&self.expect, &it.seen) != Judgement::Equal;
        let differing: Vec<&Combination> = self.combinations.iter().filter(differs).collect();
        let verdict = match (&self.instead_of, differing.is_empty()) {
            (None, true) => Verdict::Pass,
            (Some((_, why)), true) => Verdict::WantedDifference(why.clone()),
            (instead_of, false) => {
                let expected = match instead_of {
                    Some((recorded, _)) if self.is_all(recorded) => {
                        format!(
                            "{} (a wanted difference; it is as recorded now: take it off the list)",
                            self.expect
                        )
                    }
                    Some(_) => format!("{} (a wanted difference)", self.expect),
                    None => self.expect.to_string(),
                };
                let got = got(&differing, self.combinations.len());
                Verdict::Fail { expected, got }
            }
        };
        Line {
            id: self.id.clone(),
            verdict,
        }
    }

    fn is_all(&self, expect: &Expect) -> bool {
        let mut all = self.combinations.iter();
        all.all(|it| judge(expect, &it.seen) == Judgement::Equal)
    }
}

fn got(differing: &[&Combination], of: usize) -> String {
    let shown = differing.iter().take(SHOWN);
    let mut words: Vec<String> = shown
        .map(|it| format!("{}: {}", it.name, it.seen))
        .collect();
    let more = differing.len().saturating_sub(SHOWN);
    if more > 0 {
        words.push(format!("and {more} more"));
    }
    let differing = differing.len();
    format!("{} [{differing} of {of} combinations]", words.join("; "))
}

fn question(
    from: &str,
    target: &str,
    (protocol, family): (Protocol, IpFamily),
    scenario: &Scenario,
    topology: &Topology,
) -> Result<Question, String> {
    let unknown = || format!("from {from:?} is not known");
    let space = topology.namespace_of(from).ok_or_else(unknown)?;
    let found = scenario.resolve(topology, target, protocol, family);
    let target = found.map_err(|error| error.to_string())?;
    let source = if space == from {
        None
    } else {
        Some(topology.addresses(from).ok_or_else(unknown)?.of(family))
    };
    Ok(Question {
        space,
        source,
        target,
        protocol,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{attempt::Reply, topology::OWN};

    const ROW: &str = "{from: p2c, to: [lb, ext], proto: [TCP], family: [IPv4], \
                       expect: {outcome: mixed, pods: [p1a], source: p2c}}";

    fn job(row: &str, differences: &str) -> Result<Job, String> {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/proxier/objects/s-both-ll.yaml"
        );
        let text = std::fs::read_to_string(path).expect("objects");
        let scenario = Scenario::read("s-both-ll", &text).expect("readable");
        let topology = Topology::read(OWN).expect("ours");
        let row = serde_yaml_ng::from_str(row).expect("YAML");
        let differences = Differences::read(differences).expect("a list");
        Job::new(
            id("s-both-ll", 7, &row),
            &row,
            &scenario,
            &topology,
            &differences,
        )
    }

    fn seen(job: &mut Job, replies: &[&[Reply]]) -> Verdict {
        let topology = Topology::read(OWN).expect("ours");
        for (combination, replies) in job.combinations.iter_mut().zip(replies) {
            for reply in *replies {
                combination.seen.count(reply.clone(), &topology);
            }
        }
        job.line().verdict
    }

    fn served(source: &str) -> Reply {
        let (pod, port) = ("p1a".to_owned(), 8080);
        Reply::Served {
            pod,
            port,
            source: source.parse().expect("an address"),
        }
    }

    #[test]
    fn a_row_passes_only_when_all_its_combinations_do() {
        let mut all = job(ROW, "").expect("a job");
        let mixed = [served("10.244.2.12"), Reply::Dropped];
        assert_eq!(seen(&mut all, &[&mixed, &mixed]), Verdict::Pass);
        let mut one = job(ROW, "").expect("a job");
        let verdict = seen(&mut one, &[&mixed, &[Reply::Dropped]]);
        let expected = "mixed by p1a source p2c, the others lost".to_owned();
        let got = "ext TCP IPv4: 1× dropped [1 of 2 combinations]".to_owned();
        assert_eq!(verdict, Verdict::Fail { expected, got });
        let mut nothing = job(ROW, "").expect("a job");
        assert!(matches!(seen(&mut nothing, &[]), Verdict::Fail { .. }));
    }

    #[test]
    fn a_wanted_difference_must_be_exactly_the_listed_one() {
        let list = "[[difference]]\nrows = [\"s-both-ll#7 p2c\"]\nreason = \"all are served\"\n\
                    expect = { outcome = \"served\", pods = [\"p1a\"], source = \"n2\" }\n";
        let as_listed = [served("172.31.0.12")];
        let verdict = seen(
            &mut job(ROW, list).expect("a job"),
            &[&as_listed, &as_listed],
        );
        assert_eq!(
            verdict,
            Verdict::WantedDifference("all are served".to_owned())
        );
        let otherwise = [served("172.31.0.11")];
        let verdict = seen(
            &mut job(ROW, list).expect("a job"),
            &[&otherwise, &otherwise],
        );
        assert!(matches!(verdict, Verdict::Fail { .. }), "{verdict:?}");
        let recorded = [served("10.244.2.12"), Reply::Dropped];
        let verdict = seen(&mut job(ROW, list).expect("a job"), &[&recorded, &recorded]);
        let Verdict::Fail { expected, .. } = verdict else {
            panic!("a stale entry passed: {verdict:?}");
        };
        assert!(expected.ends_with("take it off the list)"), "{expected}");
    }

    #[test]
    fn what_cannot_be_asked_is_refused_with_its_reason() {
        let refused = |from: &str, to: &str| job(&ROW.replace(from, to), "").map(|_| ());
        let because = |why: &str| Err(why.to_owned());
        assert_eq!(
            refused("p2c, to", "moon, to"),
            because("from \"moon\" is not known")
        );
        assert_eq!(
            refused("ext]", "sky]"),
            because("target \"sky\" is not known")
        );
        assert_eq!(
            refused("[TCP]", "[SCTP]"),
            because("proto: [\"SCTP\"] is not known")
        );
        assert_eq!(
            refused("mixed", "torn"),
            because("outcome: torn is not known")
        );
    }
}

//! A folder of scenarios, replayed: loaded a batch at a time, every combination of every row asked, compared, reported.
//!
//! Owns the order of things: which scenarios may be loaded together, which questions may be asked together, how often.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use lab::{Result, error::Doing as _};
use serde_json::Value;

use crate::{
    compare::{Judgement, judge},
    differences::Differences,
    expectation::RowFile,
    facts::HealthRow,
    flows, health,
    job::{Combination, Job, id},
    probe::{Prober, Question},
    proxier::Proxier,
    report::{Line, Verdict},
    scenario::Scenario,
};

/// Scenarios loaded at a time.
const BATCH: usize = 32;
/// Connections for each combination.
const CONNECTIONS: usize = 24;
/// Times that a combination is asked when chance hasn't shown everything yet.
const ASKS: usize = 6;
/// Rounds for a sticky combination, with the memory emptied in between.
const ROUNDS: usize = 20;
/// Rounds at most, when chance hasn't shown everything yet.
const MAX_ROUNDS: usize = 3 * ROUNDS;
/// Further connections of a round, all of which must find the endpoint of the first.
const FOLLOWERS: usize = 3;

/// A file of rows and its objects.
#[derive(Debug)]
pub struct Chapter {
    name: String,
    rows: Vec<Value>,
    scenario: std::result::Result<Scenario, String>,
}

impl Chapter {
    /// Whether it is this scenario and can be loaded.
    fn is(&self, scenario: &str) -> bool {
        self.name == scenario && self.scenario.is_ok()
    }
}

/// Reads `rows/*.yaml` and `objects/*.yaml` of a folder; only the scenarios asked for, or all.
pub fn read(folder: &Path, only: &[String]) -> Result<Vec<Chapter>> {
    let rows = folder.join("rows");
    let doing = format!("reading {}", rows.display());
    let entries = fs::read_dir(&rows).doing(doing.clone())?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths: Vec<_> = paths.collect::<std::io::Result<_>>().doing(doing)?;
    paths.retain(|path| path.extension().is_some_and(|it| it == "yaml"));
    paths.sort();
    let mut chapters = Vec::new();
    for path in paths {
        let doing = format!("reading {}", path.display());
        let text = fs::read_to_string(&path).doing(doing.clone())?;
        let file: RowFile = serde_yaml_ng::from_str(&text).doing(doing)?;
        if only.is_empty() || only.contains(&file.scenario) {
            let scenario = objects(folder, &file.scenario);
            let (name, rows) = (file.scenario, file.rows);
            chapters.push(Chapter {
                name,
                rows,
                scenario,
            });
        }
    }
    Ok(chapters)
}

fn objects(folder: &Path, name: &str) -> std::result::Result<Scenario, String> {
    let path = folder.join("objects").join(format!("{name}.yaml"));
    let text = fs::read_to_string(&path);
    let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
    Scenario::read(name, &text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Everything that a replay needs.
#[derive(Debug)]
pub struct Replay<'a, P> {
    /// Asks.
    pub prober: Prober<'a>,
    /// What is tested.
    pub proxier: P,
    /// Where it is wanted to differ.
    pub differences: &'a Differences,
    /// Health check node ports to be asked.
    pub health: &'a [(String, std::result::Result<HealthRow, String>)],
}

impl<P: Proxier> Replay<'_, P> {
    /// Replays everything; `report` gets each row's line.
    pub fn run(&mut self, chapters: &[Chapter], mut report: impl FnMut(Line)) -> Result<()> {
        for chapter in chapters {
            let Err(why) = &chapter.scenario else {
                continue;
            };
            for (number, row) in (1..).zip(&chapter.rows) {
                let id = id(&chapter.name, number, row);
                let verdict = Verdict::Unsupported(why.clone());
                report(Line { id, verdict });
            }
        }
        for (id, row) in self.health {
            let why = match row {
                Ok(row) if chapters.iter().any(|it| it.is(&row.scenario)) => continue,
                Ok(row) => format!("no scenario {}", row.scenario),
                Err(why) => why.clone(),
            };
            let (id, verdict) = (id.clone(), Verdict::Unsupported(why));
            report(Line { id, verdict });
        }
        for batch in batches(chapters) {
            for line in self.run_batch(&batch)? {
                report(line);
            }
        }
        Ok(())
    }

    fn run_batch(&mut self, batch: &Batch<'_>) -> Result<Vec<Line>> {
        let scenarios: Vec<&Scenario> = batch.iter().map(|(_, scenario)| *scenario).collect();
        self.proxier.program(&scenarios)?;
        let mut jobs: Vec<std::result::Result<Job, Line>> = Vec::new();
        for (chapter, scenario) in batch {
            for (number, row) in (1..).zip(&chapter.rows) {
                let id = id(&chapter.name, number, row);
                let topology = self.prober.topology;
                let job = Job::new(id.clone(), row, scenario, topology, self.differences);
                jobs.push(job.map_err(|why| Line {
                    id,
                    verdict: Verdict::Unsupported(why),
                }));
            }
        }
        let (mut sticky, mut plain): (Vec<_>, Vec<_>) =
            jobs.iter_mut().flatten().partition(|job| job.is_sticky());
        self.ask_plain(&mut plain)?;
        self.ask_sticky(&mut sticky)?;
        let line =
            |job: std::result::Result<Job, Line>| job.map_or_else(|line| line, |job| job.line());
        let mut lines: Vec<Line> = jobs.into_iter().map(line).collect();
        for (id, row) in self.health {
            let asked = |row: &HealthRow| {
                let mut loaded = scenarios.iter();
                let scenario = loaded.find(|it| it.name == row.scenario)?;
                Some(health::ask(row, scenario, &self.prober))
            };
            if let Some(verdict) = row.as_ref().ok().and_then(asked) {
                let id = id.clone();
                lines.push(Line { id, verdict });
            }
        }
        Ok(lines)
    }

    fn forget_flows(&self) -> Result<()> {
        let mut nodes = self.prober.topology.nodes.keys();
        nodes.try_for_each(|node| flows::forget(self.prober.network.space(node)))
    }

    fn ask_plain(&self, jobs: &mut [&mut Job]) -> Result<()> {
        for _ in 0..ASKS {
            self.forget_flows()?;
            let mut open = incomplete(jobs);
            let questions: Vec<&Question> = open.iter().map(|it| &it.question).collect();
            let seen = self.prober.ask(&questions, CONNECTIONS);
            for (combination, seen) in open.iter_mut().zip(seen) {
                combination.seen.add(&seen);
            }
        }
        Ok(())
    }

    /// One lane's combinations one after the other, all lanes at a time.
    fn ask_sticky(&mut self, jobs: &mut [&mut Job]) -> Result<()> {
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        let mut turns: Vec<Vec<(usize, usize)>> = Vec::new();
        for (job, held) in jobs.iter().enumerate() {
            for (combination, it) in held.combinations.iter().enumerate() {
                let place = places.entry(it.lane.clone()).or_default();
                if turns.len() <= *place {
                    turns.push(Vec::new());
                }
                if let Some(turn) = turns.get_mut(*place) {
                    turn.push((job, combination));
                }
                *place += 1;
            }
        }
        for turn in turns {
            for round in 0..MAX_ROUNDS {
                if !self.ask_round(jobs, &turn, round)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// One round for those combinations that need it; false when none does.
    fn ask_round(
        &mut self,
        jobs: &mut [&mut Job],
        turn: &[(usize, usize)],
        round: usize,
    ) -> Result<bool> {
        let mut asked: Vec<&mut Combination> = Vec::new();
        for (number, job) in jobs.iter_mut().enumerate() {
            let expect = job.expect.clone();
            for (place, it) in job.combinations.iter_mut().enumerate() {
                let needed = match judge(&expect, &it.seen) {
                    Judgement::Different => false,
                    Judgement::Incomplete => true,
                    Judgement::Equal => round < ROUNDS,
                };
                if needed && turn.contains(&(number, place)) {
                    asked.push(it);
                }
            }
        }
        if asked.is_empty() {
            return Ok(false);
        }
        self.forget_flows()?;
        self.proxier.forget_clients()?;
        let questions: Vec<&Question> = asked.iter().map(|it| &it.question).collect();
        let first = self.prober.ask(&questions, 1);
        let further = self.prober.ask(&questions, FOLLOWERS);
        for (it, (mut first, further)) in asked.iter_mut().zip(first.into_iter().zip(further)) {
            first.add(&further);
            it.seen.add_round(&first);
        }
        Ok(true)
    }
}

fn incomplete<'a>(jobs: &'a mut [&mut Job]) -> Vec<&'a mut Combination> {
    let mut open = Vec::new();
    for job in jobs {
        let Job {
            expect,
            combinations,
            ..
        } = &mut **job;
        let all = combinations.iter_mut();
        open.extend(all.filter(|it| judge(expect, &it.seen) == Judgement::Incomplete));
    }
    open
}

type Batch<'a> = Vec<(&'a Chapter, &'a Scenario)>;

/// Scenarios that may be loaded together: none shares an address, a node port or a name with another.
fn batches(chapters: &[Chapter]) -> Vec<Batch<'_>> {
    let mut batches: Vec<(BTreeSet<String>, Batch<'_>)> = Vec::new();
    for chapter in chapters {
        let Ok(scenario) = &chapter.scenario else {
            continue;
        };
        let claims = scenario.claims();
        let fits = |(held, batch): &&mut (BTreeSet<String>, Batch<'_>)| {
            batch.len() < BATCH && held.is_disjoint(&claims)
        };
        if let Some((held, batch)) = batches.iter_mut().find(fits) {
            held.extend(claims);
            batch.push((chapter, scenario));
        } else {
            batches.push((claims, vec![(chapter, scenario)]));
        }
    }
    batches.into_iter().map(|(_, batch)| batch).collect()
}

//! Requests as a program's blade makes them, and how long the controller takes to answer.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Result;
use mind_api::{
    Reply, Request,
    message::{Access, Open},
};
use mind_common::addr::PAGE_SIZE;
use mind_connection::{Client, ClientError};

use super::stand_in::{StandIn, unexpected};
use crate::samples::Samples;

/// Bytes of a page.
pub(super) const PAGE: u64 = PAGE_SIZE as u64;
/// The area that is opened again and again.
const AREA: &str = "area";

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// New memory.
    Map,
    /// The end of a vma.
    Unmap,
    /// Other permissions of a page.
    Protect,
    /// An area that is there.
    Open,
    /// A process enters its domain.
    Attach,
}

impl Kind {
    /// All of them.
    pub(super) const ALL: [Self; 5] = [
        Self::Map,
        Self::Unmap,
        Self::Protect,
        Self::Open,
        Self::Attach,
    ];

    /// Its name, in keys.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::Unmap => "unmap",
            Self::Protect => "protect",
            Self::Open => "open",
            Self::Attach => "attach",
        }
    }
}

/// What came of requests of one kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// How long those took that were carried out.
    pub(super) times: Samples,
    /// Why one was not.
    pub(super) refused: Option<String>,
}

impl Outcome {
    /// Notes an answer, and how long it took; what it says, if the controller has not refused.
    pub(super) fn note<T>(
        &mut self,
        (nanos, answer): (u64, Result<T, ClientError>),
    ) -> Result<Option<T>, ClientError> {
        match answer {
            Ok(value) => {
                self.times.add([nanos]);
                Ok(Some(value))
            }
            Err(ClientError::Refused(failure)) => {
                self.refused.get_or_insert_with(|| failure.to_string());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// What came of requests, by kind.
pub(super) type Outcomes = BTreeMap<Kind, Outcome>;

/// How long something takes, in nanoseconds, and what comes of it.
pub(super) async fn timed<T>(work: impl Future<Output = T>) -> (u64, T) {
    let begin = Instant::now();
    let result = work.await;
    (begin.elapsed().as_nanos() as u64, result)
}

/// A range that was mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mapped {
    pub(super) va: u64,
    pub(super) length: u64,
}

/// A process of a domain on a blade.
#[derive(Clone, Debug)]
pub(super) struct Program {
    client: Client,
    domain: u32,
    pid: i32,
}

impl Program {
    /// A process that enters the domain.
    ///
    /// # Errors
    ///
    /// The controller's refusal; here and below.
    pub(super) async fn enter(
        blade: &StandIn,
        domain: &str,
        pid: i32,
    ) -> Result<Self, ClientError> {
        Ok(Self {
            client: blade.client().clone(),
            domain: blade.enter(domain, pid).await?,
            pid,
        })
    }

    /// The number of its domain.
    pub(super) fn domain(&self) -> u32 {
        self.domain
    }

    pub(super) async fn map(&self, length: u64) -> Result<Mapped, ClientError> {
        self.mapped(Request::Map {
            domain: self.domain,
            length,
            access: Access::Write,
        })
        .await
    }

    pub(super) async fn unmap(&self, Mapped { va, length }: Mapped) -> Result<(), ClientError> {
        self.done(Request::Unmap {
            domain: self.domain,
            pid: self.pid,
            va,
            length,
        })
        .await
    }

    async fn protect(&self, range: Mapped, access: Access) -> Result<(), ClientError> {
        self.done(Request::Protect {
            domain: self.domain,
            va: range.va,
            length: range.length,
            access,
        })
        .await
    }

    async fn open(&self, open: Open) -> Result<Mapped, ClientError> {
        self.mapped(Request::OpenArea {
            domain: self.domain,
            pid: self.pid,
            name: AREA.to_owned(),
            length: PAGE,
            access: Access::Write,
            open,
        })
        .await
    }

    /// A blade has waited too long for a page.
    pub(super) async fn report_stuck(&self, va: u64) -> Result<(), ClientError> {
        self.done(Request::ReportStuck { va }).await
    }

    async fn mapped(&self, request: Request) -> Result<Mapped, ClientError> {
        match self.client.call(request).await? {
            Reply::Mapped { va, length } => Ok(Mapped { va, length }),
            other => Err(unexpected(&other)),
        }
    }

    async fn done(&self, request: Request) -> Result<(), ClientError> {
        match self.client.call(request).await? {
            Reply::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}

/// Two processes of a domain on two blades, with an area that the first has made.
pub(super) struct Pair {
    first: Program,
    second: Program,
    blade: Arc<StandIn>,
    name: String,
    /// The number of the last process that has entered and left.
    last: i32,
}

impl Pair {
    /// The processes enter the domain; the area is made.
    pub(super) async fn enter(
        (first, second): (&StandIn, &Arc<StandIn>),
        name: &str,
    ) -> Result<Self, ClientError> {
        let pair = Self {
            first: Program::enter(first, name, 1).await?,
            second: Program::enter(second, name, 1).await?,
            blade: Arc::clone(second),
            name: name.to_owned(),
            last: 1,
        };
        pair.first.open(Open::New).await?;
        Ok(pair)
    }

    /// The first process.
    pub(super) fn first(&self) -> &Program {
        &self.first
    }

    /// One request of each kind, by turns so that other load of the machine affects all of them alike. When it is over,
    /// there is what there was before.
    ///
    /// # Errors
    ///
    /// When the controller does not answer. What it refuses is noted.
    pub(super) async fn turn(&mut self, outcomes: &mut Outcomes) -> Result<(), ClientError> {
        self.last += 1;
        let pid = self.last;
        let entered = timed(self.blade.enter(&self.name, pid)).await;
        if let Some(domain) = outcomes.entry(Kind::Attach).or_default().note(entered)? {
            self.blade.exit(domain, pid).await?;
        }
        let opened = timed(self.second.open(Open::Existing)).await;
        if let Some(area) = outcomes.entry(Kind::Open).or_default().note(opened)? {
            self.second.unmap(area).await?;
        }
        let mapped = timed(self.first.map(PAGE)).await;
        if let Some(vma) = outcomes.entry(Kind::Map).or_default().note(mapped)? {
            let protected = timed(self.first.protect(vma, Access::Read)).await;
            outcomes.entry(Kind::Protect).or_default().note(protected)?;
            let unmapped = timed(self.first.unmap(vma)).await;
            outcomes.entry(Kind::Unmap).or_default().note(unmapped)?;
        }
        Ok(())
    }
}

/// Maps and unmaps a vma of that length, again and again; what came of both.
pub(super) async fn map_and_unmap(
    program: &Program,
    length: u64,
    count: usize,
) -> Result<(Outcome, Outcome), ClientError> {
    let (mut maps, mut unmaps) = (Outcome::default(), Outcome::default());
    for _ in 0..count {
        let Some(vma) = maps.note(timed(program.map(length)).await)? else {
            break;
        };
        unmaps.note(timed(program.unmap(vma)).await)?;
    }
    Ok((maps, unmaps))
}

/// Maps and unmaps a page until `until` says so, or a request is refused; how many requests were carried out, and why
/// one was not.
pub(super) async fn count_operations(
    program: Program,
    until: impl Fn() -> bool,
) -> Result<(u64, Option<String>), ClientError> {
    let mut outcome = Outcome::default();
    let mut count = 0;
    while !until() {
        let Some(vma) = outcome.note((0, program.map(PAGE).await))? else {
            break;
        };
        count += 1;
        if outcome.note((0, program.unmap(vma).await))?.is_none() {
            break;
        }
        count += 1;
    }
    Ok((count, outcome.refused))
}

/// What several clients did in the same time.
#[derive(Clone, Debug, Default)]
pub(super) struct Rate {
    /// Requests per second that were carried out.
    pub(super) per_s: f64,
    /// Why one was not.
    pub(super) refused: Option<String>,
}

/// Counts what all these programs do at once until `until` says so.
pub(super) async fn rate(
    programs: &[Program],
    until: impl Fn() -> bool + Clone + Send + 'static,
) -> Result<Rate> {
    let begin = Instant::now();
    let mut clients = tokio::task::JoinSet::new();
    for program in programs {
        clients.spawn(count_operations(program.clone(), until.clone()));
    }
    let (mut sum, mut refused) = (0, None);
    while let Some(client) = clients.join_next().await {
        let (count, why) = client??;
        sum += count;
        refused = refused.or(why);
    }
    let seconds = begin.elapsed().max(Duration::from_nanos(1)).as_secs_f64();
    Ok(Rate {
        per_s: sum as f64 / seconds,
        refused,
    })
}

#[cfg(test)]
mod tests {
    use mind_api::{Errno, Failure};

    use super::*;

    #[test]
    fn a_refusal_is_noted_beside_the_times_and_a_lost_connection_is_an_error() {
        let mut outcome = Outcome::default();
        assert_eq!(outcome.note((1_000, Ok(7))).expect("it is done"), Some(7));
        let failure = Failure::new(Errno::ENOMEM, "no slots");
        let refused = outcome.note::<u8>((9, Err(failure.into())));
        assert_eq!(refused.expect("it is an answer"), None);
        assert_eq!(outcome.refused.as_deref(), Some("no slots (ENOMEM)"));
        let quantiles = outcome.times.clone().quantiles().expect("one time");
        assert_eq!((quantiles.p50_us, quantiles.count), (1.0, 1));
        let lost = ClientError::Lost("gone".to_owned());
        assert!(outcome.note::<u8>((9, Err(lost))).is_err());
    }
}

//! Lists of the controller's, put together from the parts that they come in: each part goes on where the one before
//! says.
//!
//! `ask` carries a request to the controller, over a connection or not. While a list is read, what it is of may change:
//! what is there from the first part to the last is in it once.

use std::{collections::BTreeMap, future::Future};

use mind_api::{
    Reply, Request,
    operator::{
        BladeStatus, Check, Discrepancy, DomainLoss, DomainStatus, PortStatus, RegionOrder,
        RegionStatus, Status, Summary, VmaStatus,
    },
    program::BladeReport,
};

use crate::client::{Client, ClientError};

/// Entries that are asked for at once; the controller gives fewer where one frame does not hold as many.
const AT_ONCE: u32 = 1_000;

/// A part of a list, and where the next one begins.
type Part<T> = (Vec<T>, Option<u64>);

fn unexpected(reply: Reply) -> ClientError {
    let text = format!("{reply:?}");
    let start: String = text.chars().take(200).collect();
    ClientError::Lost(format!("it answers something else: {start}"))
}

/// Where a list goes on after a part that began at `from`.
fn after(from: u64, next: Option<u64>) -> Result<Option<u64>, ClientError> {
    match next {
        Some(next) if next <= from => Err(ClientError::Lost(format!(
            "a list goes on at {next:#x}, which is not beyond {from:#x}"
        ))),
        next => Ok(next),
    }
}

/// All parts from `from` on, each handed to `add`.
async fn read<T, F>(
    ask: &impl Fn(Request) -> F,
    from: u64,
    request: impl Fn(u64) -> Request,
    part: impl Fn(Reply) -> Result<Part<T>, Reply>,
    mut add: impl FnMut(Vec<T>),
) -> Result<(), ClientError>
where
    F: Future<Output = Result<Reply, ClientError>>,
{
    let mut place = Some(from);
    while let Some(from) = place {
        let (entries, next) = part(ask(request(from)).await?).map_err(unexpected)?;
        add(entries);
        place = after(from, next)?;
    }
    Ok(())
}

macro_rules! list {
    ($(#[$doc:meta])* $name:ident: $entry:ty = $request:ident, $reply:ident { $field:ident }) => {
        $(#[$doc])*
        ///
        /// # Errors
        ///
        /// Those of `ask`, and that it answers something else.
        pub async fn $name<F>(ask: &impl Fn(Request) -> F) -> Result<Vec<$entry>, ClientError>
        where
            F: Future<Output = Result<Reply, ClientError>>,
        {
            let mut all = Vec::new();
            let request = |from| Request::$request { from, limit: AT_ONCE };
            let part = |reply| match reply {
                Reply::$reply { $field, next } => Ok(($field, next)),
                other => Err(other),
            };
            read(ask, 0, request, part, |entries| all.extend(entries)).await?;
            Ok(all)
        }
    };
}

list! {
    /// Blades, compute before memory.
    blades: BladeStatus = ListBlades, Blades { blades }
}
list! {
    /// The switch's ports.
    ports: PortStatus = ListPorts, Ports { ports }
}
list! {
    /// Domains, by number, without what they have lost.
    domains: DomainStatus = ListDomains, Domains { domains }
}
list! {
    /// What vmas have lost, by address.
    losses: DomainLoss = ListLosses, Losses { losses }
}
list! {
    /// What the check has found that was asked for last.
    discrepancies: Discrepancy = ListDiscrepancies, Discrepancies { discrepancies }
}

/// The state of the system.
///
/// # Errors
///
/// Those of `ask`, and that it answers something else.
pub async fn status<F>(ask: &impl Fn(Request) -> F) -> Result<Status, ClientError>
where
    F: Future<Output = Result<Reply, ClientError>>,
{
    let Summary {
        slots_used,
        slots,
        splitting,
        copied,
        awaited,
    } = match ask(Request::Status).await? {
        Reply::Status(summary) => summary,
        other => return Err(unexpected(other)),
    };
    let blades = blades(ask).await?;
    let ports = ports(ask).await?;
    let mut domains = domains(ask).await?;
    for DomainLoss { domain, loss } in losses(ask).await? {
        // One that has ended meanwhile has lost nothing.
        if let Ok(place) = domains.binary_search_by_key(&domain, |it| it.domain) {
            domains[place].losses.push(loss);
        }
    }
    Ok(Status {
        blades,
        domains,
        slots_used,
        slots,
        splitting,
        ports,
        copied,
        awaited,
    })
}

/// Vmas, by address.
///
/// # Errors
///
/// Those of `ask`, and that it answers something else.
pub async fn vmas<F>(ask: &impl Fn(Request) -> F) -> Result<Vec<VmaStatus>, ClientError>
where
    F: Future<Output = Result<Reply, ClientError>>,
{
    let mut all: Vec<VmaStatus> = Vec::new();
    let request = |from| Request::ListVmas {
        from,
        limit: AT_ONCE,
    };
    let part = |reply| match reply {
        Reply::Vmas { vmas, next } => Ok((vmas, next)),
        other => Err(other),
    };
    read(ask, 0, request, part, |vmas| {
        for vma in vmas {
            match all.last_mut().filter(|last| is_continued(last, &vma)) {
                Some(last) => go_on(last, vma),
                None => all.push(vma),
            }
        }
    })
    .await?;
    Ok(all)
}

/// Whether `more` is what one vma has beyond the part before.
fn is_continued(last: &VmaStatus, more: &VmaStatus) -> bool {
    last.va == more.va && last.domain == more.domain
}

/// Adds what a vma has from where the part before has ended.
fn go_on(vma: &mut VmaStatus, more: VmaStatus) {
    vma.regions += more.regions;
    for range in more.access {
        match vma.access.last_mut() {
            Some(last) if last.access == range.access && last.va + last.length == range.va => {
                last.length += range.length;
            }
            _ => vma.access.push(range),
        }
    }
}

/// The first vma with an address from `from` on, without its further parts.
///
/// # Errors
///
/// Those of `ask`, and that it answers something else.
pub async fn vma_from<F>(
    ask: &impl Fn(Request) -> F,
    from: u64,
) -> Result<Option<VmaStatus>, ClientError>
where
    F: Future<Output = Result<Reply, ClientError>>,
{
    match ask(Request::ListVmas { from, limit: 1 }).await? {
        Reply::Vmas { vmas, .. } => Ok(vmas.into_iter().next()),
        other => Err(unexpected(other)),
    }
}

/// At most `most` regions of a range, in an order.
///
/// # Errors
///
/// Those of `ask`, and that it answers something else.
pub async fn regions<F>(
    ask: &impl Fn(Request) -> F,
    (from, to): (u64, u64),
    order: RegionOrder,
    most: usize,
) -> Result<Vec<RegionStatus>, ClientError>
where
    F: Future<Output = Result<Reply, ClientError>>,
{
    let mut all: Vec<RegionStatus> = Vec::new();
    let mut place = Some(from);
    while let Some(from) = place.filter(|_| all.len() < most) {
        let left = most - all.len();
        let request = Request::ListRegions {
            from,
            to,
            order,
            limit: u32::try_from(left).map_or(AT_ONCE, |left| left.min(AT_ONCE)),
        };
        let (regions, next) = match ask(request).await? {
            Reply::Regions { regions, next } => (regions, next),
            other => return Err(unexpected(other)),
        };
        all.extend(regions);
        place = after(from, next)?;
    }
    Ok(all)
}

/// The counters of compute blades that answer, by name.
///
/// # Errors
///
/// Those of `ask`, and that it answers something else.
pub async fn caches<F>(
    ask: &impl Fn(Request) -> F,
) -> Result<BTreeMap<String, BladeReport>, ClientError>
where
    F: Future<Output = Result<Reply, ClientError>>,
{
    let mut all = BTreeMap::new();
    let request = |from| Request::ListCaches {
        from,
        limit: AT_ONCE,
    };
    let part = |reply| match reply {
        Reply::Caches { caches, next } => Ok((caches.into_iter().collect(), next)),
        other => Err(other),
    };
    read(ask, 0, request, part, |caches| all.extend(caches)).await?;
    Ok(all)
}

/// Has the controller compare its state with tables and blades; what it found.
///
/// # Errors
///
/// Those of `ask`, and that it answers something else.
pub async fn check<F>(ask: &impl Fn(Request) -> F) -> Result<Check, ClientError>
where
    F: Future<Output = Result<Reply, ClientError>>,
{
    let mut check = match ask(Request::Check).await? {
        Reply::Checked(check) => check,
        other => return Err(unexpected(other)),
    };
    check.discrepancies = discrepancies(ask).await?;
    Ok(check)
}

impl Client {
    /// The state of the system ([`status`]).
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call), of which it makes several.
    pub async fn status(&self) -> Result<Status, ClientError> {
        status(&|request| self.call(request)).await
    }

    /// Vmas, by address ([`vmas`]).
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call), of which it makes several.
    pub async fn vmas(&self) -> Result<Vec<VmaStatus>, ClientError> {
        vmas(&|request| self.call(request)).await
    }

    /// The first vma with an address from `from` on ([`vma_from`]).
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call).
    pub async fn vma_from(&self, from: u64) -> Result<Option<VmaStatus>, ClientError> {
        vma_from(&|request| self.call(request), from).await
    }

    /// At most `most` regions of a range, in an order ([`regions`]).
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call), of which it makes several.
    pub async fn regions(
        &self,
        range: (u64, u64),
        order: RegionOrder,
        most: usize,
    ) -> Result<Vec<RegionStatus>, ClientError> {
        regions(&|request| self.call(request), range, order, most).await
    }

    /// The counters of compute blades that answer, by name ([`caches`]).
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call), of which it makes several.
    pub async fn caches(&self) -> Result<BTreeMap<String, BladeReport>, ClientError> {
        caches(&|request| self.call(request)).await
    }

    /// Has the controller compare its state with tables and blades ([`check`]).
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call), of which it makes several.
    pub async fn check(&self) -> Result<Check, ClientError> {
        check(&|request| self.call(request)).await
    }
}

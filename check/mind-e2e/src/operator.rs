//! An operator: one connection to the controller, for as many requests as a test has.

use std::time::Duration;

use anyhow::{Result, bail};
use mind_api::{
    Errno, Failure, Reply, Request,
    message::{RegionChange, Registration},
    operator::{Discrepancy, Status, VmaStatus},
};
use mind_connection::{Client, ClientError, client::ReceivedCommand};
use netns_setup::Plan;
use tokio::{
    runtime::{Builder, Runtime},
    sync::mpsc::Receiver,
};

/// How long the controller may take to answer.
const LIMIT: Duration = Duration::from_secs(30);

/// An operator on the switch.
#[derive(Debug)]
pub struct Operator {
    client: Client,
    /// Kept, for the connection ends with it; an operator is given none.
    _orders: Receiver<ReceivedCommand>,
    runtime: Runtime,
}

impl Operator {
    /// Connects from the namespace that the thread is in.
    pub(crate) fn connect() -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let connected = runtime.block_on(Client::connect(Plan::controller(), "test", LIMIT));
        let (client, orders) = connected?;
        Ok(Self {
            client,
            _orders: orders,
            runtime,
        })
    }

    /// The controller's status.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub fn status(&self) -> Result<Status> {
        Ok(self.runtime.block_on(self.client.status())?)
    }

    /// All vmas, by address.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub fn vmas(&self) -> Result<Vec<VmaStatus>> {
        Ok(self.runtime.block_on(self.client.vmas())?)
    }

    /// Lets the controller change the region of an address; returns whether it did: a region that
    /// stays busy, or has no other half, stays as it was.
    ///
    /// # Errors
    ///
    /// When it does not answer, or has no such address.
    pub fn change_region(&self, va: u64, change: RegionChange) -> Result<bool> {
        match self.ask(Request::ChangeRegion { va, change }) {
            Ok(Reply::Region { changed, .. }) => Ok(changed),
            Ok(other) => bail!("the controller answers with {other:?}"),
            Err(ClientError::Refused(failure)) if failure.errno == Errno::EINVAL => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The discrepancies between the controller's state, tables and blades, a line each.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub fn check(&self) -> Result<Vec<String>> {
        let check = self.runtime.block_on(self.client.check())?;
        let line = |it: Discrepancy| {
            format!(
                "{}: expected {}, found {}",
                it.object, it.expected, it.found
            )
        };
        Ok(check.discrepancies.into_iter().map(line).collect())
    }

    /// Registers as a blade.
    ///
    /// # Errors
    ///
    /// The controller's refusal.
    ///
    /// # Panics
    ///
    /// When it does not answer.
    pub fn register(&self, registration: Registration) -> Result<(), Failure> {
        match self.ask(Request::Register(registration)) {
            Ok(_) => Ok(()),
            Err(ClientError::Refused(failure)) => Err(failure),
            Err(error) => panic!("the controller does not answer: {error}"),
        }
    }

    fn ask(&self, request: Request) -> Result<Reply, ClientError> {
        self.runtime.block_on(self.client.call(request))
    }
}

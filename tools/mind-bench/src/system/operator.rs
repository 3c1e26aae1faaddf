//! An operator on the switch: one connection to the testbed's controller, for as many requests as a bench has.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use mind_api::{Reply, Request, message::RegionChange, operator::Status};
use mind_connection::{Client, Endpoint, endpoint::DEFAULT_SOCKET};
use tokio::runtime::{Builder, Runtime};

/// How long the controller may take to answer.
const LIMIT: Duration = Duration::from_secs(10);

/// A connection to the testbed's controller.
pub(crate) struct Operator {
    client: Client,
    runtime: Runtime,
}

impl Operator {
    /// Connects.
    pub(crate) fn connect() -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let endpoint: Endpoint = DEFAULT_SOCKET.parse().map_err(anyhow::Error::msg)?;
        let connect = Client::connect(endpoint, "mind-bench", LIMIT);
        let (client, _) = runtime.block_on(connect)?;
        Ok(Self { client, runtime })
    }

    /// The system at a glance.
    pub(crate) fn status(&self) -> Result<Status> {
        Ok(self.runtime.block_on(self.client.status())?)
    }

    /// Waits, and reads meanwhile what the controller sends.
    pub(crate) fn pause(&self, length: Duration) {
        self.runtime
            .block_on(async { tokio::time::sleep(length).await });
    }

    /// Has every blade write back and drop what it has of the region of `va`, which keeps its slot.
    pub(crate) fn reset_region(&self, va: u64) -> Result<()> {
        let change = RegionChange::Reset;
        let request = self.client.call(Request::ChangeRegion { va, change });
        let reply = self.runtime.block_on(request);
        let reply = reply.with_context(|| format!("cannot reset the region of {va:#x}"))?;
        match reply {
            Reply::Region { changed, .. } => {
                ensure!(
                    changed,
                    "the region of {va:#x} was busy for too long to be reset"
                );
                Ok(())
            }
            other => bail!("the controller answers a reset of {va:#x} with {other:?}"),
        }
    }
}

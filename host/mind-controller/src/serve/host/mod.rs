//! Makes the host a switch where it is none yet (a bridge, the ports on it, frames that hold a page), and puts
//! everything back at the end. [`plan`] says what has to be changed; here it is asked of the kernel, over netlink;
//! [`journal`] keeps it for the next controller, should this one be killed.

mod journal;
pub(super) mod plan;

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
};

use anyhow::{Context as _, Result};
use futures_util::TryStreamExt as _;
use rtnetlink::{
    Handle, LinkBridge, LinkUnspec,
    packet_route::{
        address::{AddressAttribute, AddressMessage, AddressScope},
        link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
    },
};

use self::{
    journal::Journal,
    plan::{Change, Cidr, Link, Wanted},
};

/// `ENODEV`.
const NO_DEVICE: i32 = 19;

/// What was changed on this host.
pub(super) struct Host {
    net: Handle,
    journal: Journal,
    /// How many changes were on the list when it was opened.
    earlier: usize,
    /// The bridge's first address.
    address: Option<Ipv4Addr>,
}

impl Host {
    /// Makes the host a switch with these ports. What is changed is noted in the file `journal`; what an earlier
    /// controller noted there is this one's to put back.
    ///
    /// # Errors
    ///
    /// When [`plan::plan`] refuses, or the kernel does; then what this one changed is put back. When the journal cannot be
    /// read.
    pub(super) async fn prepare(
        bridge: &str,
        ports: &[String],
        address: Option<Cidr>,
        mtu: u32,
        journal: PathBuf,
    ) -> Result<Self> {
        let journal = Journal::open(journal)?;
        let earlier = journal.all().count();
        if earlier > 0 {
            tracing::info!(
                "an earlier controller changed this host; it will be put back as it was before that"
            );
        }
        let (connection, net, _) =
            rtnetlink::new_connection().context("cannot open a netlink socket")?;
        tokio::spawn(connection);
        let mut found = Vec::new();
        for port in ports {
            let link = find(&net, port).await?;
            found.push(link.with_context(|| format!("there is no interface {port} here"))?);
        }
        let wanted = Wanted {
            bridge,
            address,
            mtu,
        };
        let changes = plan::plan(&wanted, find(&net, bridge).await?.as_ref(), &found)?;
        let mut host = Self {
            net,
            journal,
            earlier,
            address: None,
        };
        for change in changes {
            tracing::info!("{change}");
            // First on the list: one that was not made can be undone, too.
            let made = match host.journal.push(change.clone()) {
                Ok(()) => host.make(&change).await,
                Err(error) => Err(error),
            };
            if let Err(error) = made {
                let error = error.context(format!("cannot {change}"));
                // A bridge that has an address may not be wanted without.
                host.put_back_own().await;
                return Err(error);
            }
        }
        let bridge = find(&host.net, bridge).await?;
        let addresses = bridge.into_iter().flat_map(|bridge| bridge.addresses);
        host.address = addresses
            .filter_map(|address| match address {
                IpAddr::V4(address) => Some(address),
                IpAddr::V6(_) => None,
            })
            .next();
        Ok(host)
    }

    /// The bridge's first IPv4 address.
    pub(super) fn address(&self) -> Option<Ipv4Addr> {
        self.address
    }

    /// Undoes what was changed of interfaces that are neither the bridge nor among these ports: an earlier controller had
    /// them. What cannot be undone is reported, and tried again at the end.
    pub(super) async fn let_go(&mut self, bridge: &str, ports: &[String]) {
        let is_of_others = |change: &&Change| {
            change.interface() != bridge && !ports.iter().any(|port| port == change.interface())
        };
        let mut changes: Vec<_> = self.journal.all().filter(is_of_others).cloned().collect();
        changes.reverse();
        for change in changes {
            match self.undo(&change).await {
                Ok(()) => {
                    tracing::info!("undone: {change}");
                    if let Err(error) = self.journal.forget(&change) {
                        tracing::error!("{error:#}");
                    }
                }
                Err(error) => tracing::error!("cannot undo: {change}: {error:#}"),
            }
        }
    }

    /// Undoes all changes, the last one first. What cannot be undone is reported and left.
    pub(super) async fn put_back(self) {
        self.undo_all_after(0).await;
    }

    /// Undoes what this controller has changed, as one that could not begin: what earlier ones changed may be in use.
    pub(super) async fn put_back_own(self) {
        let earlier = self.earlier;
        self.undo_all_after(earlier).await;
    }

    /// Undoes all changes but the first ones.
    async fn undo_all_after(mut self, kept: usize) {
        while self.journal.all().count() > kept
            && let Some(change) = self.journal.last().cloned()
        {
            match self.undo(&change).await {
                Ok(()) => tracing::info!("undone: {change}"),
                Err(error) => tracing::error!("cannot undo: {change}: {error:#}"),
            }
            if let Err(error) = self.journal.pop() {
                tracing::error!("{error:#}");
            }
        }
    }

    async fn make(&self, change: &Change) -> Result<()> {
        match change {
            Change::Bridge { name, mac } => {
                let bridge = LinkBridge::new(name)
                    .address(mac.clone())
                    // It asks no host which groups it listens to.
                    .mcast_snooping(false)
                    .build();
                Ok(self.net.link().add(bridge).execute().await?)
            }
            Change::Address { link, address } => {
                let index = self.index(link).await?;
                let address = (IpAddr::V4(address.address), address.prefix);
                let request = self.net.address().add(index, address.0, address.1);
                Ok(request.execute().await?)
            }
            Change::Mtu { link, to, .. } => {
                self.set(LinkUnspec::new_with_name(link).mtu(*to).build())
                    .await
            }
            Change::Enslave { port, bridge } => {
                let bridge = self.index(bridge).await?;
                self.set(LinkUnspec::new_with_name(port).controller(bridge).build())
                    .await
            }
            Change::Up { link } => self.set(LinkUnspec::new_with_name(link).up().build()).await,
        }
    }

    async fn undo(&self, change: &Change) -> Result<()> {
        match change {
            Change::Bridge { name, .. } => match find(&self.net, name).await? {
                Some(bridge) => Ok(self.net.link().del(bridge.index).execute().await?),
                None => Ok(()),
            },
            Change::Address { link, address } => {
                let Some(index) = find(&self.net, link).await?.map(|link| link.index) else {
                    return Ok(());
                };
                let given = IpAddr::V4(address.address);
                let messages = addresses(&self.net, index).await?;
                let message = messages
                    .into_iter()
                    .find(|message| address_of(message) == Some(given));
                match message {
                    Some(message) => Ok(self.net.address().del(message).execute().await?),
                    None => Ok(()),
                }
            }
            Change::Mtu { link, from, .. } => {
                self.set(LinkUnspec::new_with_name(link).mtu(*from).build())
                    .await
            }
            Change::Enslave { port, .. } => {
                self.set(LinkUnspec::new_with_name(port).nocontroller().build())
                    .await
            }
            Change::Up { link } => {
                self.set(LinkUnspec::new_with_name(link).down().build())
                    .await
            }
        }
    }

    async fn set(&self, message: LinkMessage) -> Result<()> {
        Ok(self.net.link().set(message).execute().await?)
    }

    async fn index(&self, name: &str) -> Result<u32> {
        let link = find(&self.net, name).await?;
        Ok(link.with_context(|| format!("{name} is gone"))?.index)
    }
}

/// The interface called `name`, if there is one.
async fn find(net: &Handle, name: &str) -> Result<Option<Link>> {
    let mut links = net.link().get().match_name(name).execute();
    let message = match links.try_next().await {
        Ok(Some(message)) => message,
        Ok(None) => return Ok(None),
        Err(rtnetlink::Error::NetlinkError(error)) if error.raw_code() == -NO_DEVICE => {
            return Ok(None);
        }
        Err(error) => return Err(error).with_context(|| format!("cannot look at {name}")),
    };
    let mut link = link(name, &message);
    let messages = addresses(net, link.index)
        .await
        .with_context(|| format!("cannot list the addresses of {name}"))?;
    link.addresses = messages
        .iter()
        .filter(|message| message.header.scope != AddressScope::Link)
        .filter_map(address_of)
        .collect();
    Ok(Some(link))
}

/// What the kernel says of an interface, without its addresses.
fn link(name: &str, message: &LinkMessage) -> Link {
    let flags = message.header.flags;
    let mut link = Link {
        name: name.to_owned(),
        index: message.header.index,
        is_up: flags.contains(LinkFlags::Up),
        is_loopback: flags.contains(LinkFlags::Loopback),
        ..Link::default()
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::MaxMtu(mtu) => link.max_mtu = *mtu,
            LinkAttribute::Controller(index) => link.controller = Some(*index).filter(|&i| i != 0),
            LinkAttribute::LinkInfo(infos) => {
                link.is_bridge = infos.contains(&LinkInfo::Kind(InfoKind::Bridge));
            }
            _ => {}
        }
    }
    link
}

async fn addresses(net: &Handle, index: u32) -> Result<Vec<AddressMessage>> {
    let request = net.address().get().set_link_index_filter(index);
    Ok(request.execute().try_collect().await?)
}

fn address_of(message: &AddressMessage) -> Option<IpAddr> {
    let mut address = None;
    for attribute in &message.attributes {
        match attribute {
            // The interface's own, where the other is its peer's.
            AddressAttribute::Local(local) => return Some(*local),
            AddressAttribute::Address(other) => address = Some(*other),
            _ => {}
        }
    }
    address
}

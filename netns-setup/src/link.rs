//! The network between the namespaces: the bridge, the veth pairs, addresses and offloads.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd as _;
use std::process::Command;

use rtnetlink::packet_route::link::{InfoData, InfoVeth, LinkMessage};
use rtnetlink::{Handle, LinkBridge, LinkUnspec, LinkVeth};

use crate::error::{Error, Result};
use crate::namespace;
use crate::plan::{BRIDGE, Blade, INTERFACE, MTU, PREFIX_LENGTH, Plan};

/// Makes the bridge and the pairs to all blades, up and enslaved; the blades' ends are down and have no addresses yet.
///
/// # Errors
///
/// When the kernel refuses one of them.
pub fn wire_switch(plan: &Plan) -> Result<()> {
    let name = Plan::switch_namespace();
    namespace::within(&name, || {
        with_netlink(&name, async |net| {
            net.up("lo").await?;
            let bridge = LinkBridge::new(BRIDGE)
                .address(Plan::switch_mac().0.to_vec())
                // It sends no queries for multicast groups.
                .mcast_snooping(false)
                .up()
                .build();
            net.add(BRIDGE, bridge).await?;
            let index = net.index(BRIDGE)?;
            net.address(BRIDGE, Plan::switch_address()).await?;
            for blade in &plan.blades {
                net.add_pair(blade, index).await?;
            }
            Ok(())
        })?;
        for blade in &plan.blades {
            set_offloads(&blade.name)?;
        }
        Ok(())
    })
}

/// Gives a blade's end its address and offloads, and sets it up.
///
/// # Errors
///
/// When the kernel refuses one of them.
pub fn wire_blade(blade: &Blade) -> Result<()> {
    namespace::within(&blade.namespace, || {
        with_netlink(&blade.namespace, async |net| {
            net.up("lo").await?;
            net.address(INTERFACE, blade.address).await?;
            net.up(INTERFACE).await
        })?;
        set_offloads(INTERFACE)
    })
}

/// GRO on: a frame that XDP redirects into a veth is dropped where the peer has neither that nor a program. Transmit
/// checksums off: XDP would forward them incomplete.
fn set_offloads(interface: &str) -> Result<()> {
    let mut command = Command::new("ethtool");
    command.args(["-K", interface, "gro", "on", "tx", "off"]);
    let line = format!("ethtool -K {interface} gro on tx off");
    let output = command.output().map_err(|error| Error::Command {
        command: line.clone(),
        output: format!("{error} (Debian's package is ethtool)"),
    })?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Command {
        command: line,
        output: format!(
            "{}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        ),
    })
}

/// A netlink connection to the namespace of this thread.
struct Net<'a> {
    handle: Handle,
    /// Its name, for errors.
    namespace: &'a str,
}

/// Runs `work` with a connection to the namespace of this thread, called `namespace`.
fn with_netlink<'a, T>(
    namespace: &'a str,
    work: impl AsyncFnOnce(Net<'a>) -> Result<T>,
) -> Result<T> {
    let path = namespace::path(namespace);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(Error::io("make a runtime for", &path))?;
    runtime.block_on(async {
        let (connection, handle, _) =
            rtnetlink::new_connection().map_err(Error::io("open a netlink socket in", &path))?;
        tokio::spawn(connection);
        work(Net { handle, namespace }).await
    })
}

impl Net<'_> {
    fn error(&self, tried: String) -> impl FnOnce(rtnetlink::Error) -> Error {
        let namespace = self.namespace.to_owned();
        move |source| Error::Netlink {
            tried,
            namespace,
            source,
        }
    }

    fn index(&self, interface: &str) -> Result<u32> {
        nix::net::if_::if_nametoindex(interface)
            .map_err(Error::io("find the interface", interface.as_ref()))
    }

    async fn add(&self, name: &str, message: LinkMessage) -> Result<()> {
        let request = self.handle.link().add(message);
        request
            .execute()
            .await
            .map_err(self.error(format!("add the link {name}")))
    }

    async fn up(&self, name: &str) -> Result<()> {
        let message = LinkUnspec::new_with_name(name).up().build();
        let request = self.handle.link().set(message);
        request
            .execute()
            .await
            .map_err(self.error(format!("set the link {name} up")))
    }

    async fn address(&self, name: &str, address: Ipv4Addr) -> Result<()> {
        let index = self.index(name)?;
        let request = self
            .handle
            .address()
            .add(index, IpAddr::V4(address), PREFIX_LENGTH);
        request
            .execute()
            .await
            .map_err(self.error(format!("give {name} the address {address}")))
    }

    /// The port, here, and the blade's interface, in its own namespace from the first moment on.
    async fn add_pair(&self, blade: &Blade, bridge: u32) -> Result<()> {
        let path = namespace::path(&blade.namespace);
        let namespace = File::open(&path).map_err(Error::io("open the namespace", &path))?;
        let peer = LinkUnspec::new_with_name(INTERFACE)
            .mtu(MTU)
            .address(blade.mac.0.to_vec())
            .setns_by_fd(namespace.as_raw_fd())
            // Not up: the kernel refuses that until its pair is made.
            .build();
        let port = LinkVeth::new(&blade.name, INTERFACE)
            .mtu(MTU)
            .address(blade.port_mac.0.to_vec())
            .controller(bridge)
            .up()
            .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
            .build();
        self.add(&blade.name, port).await
    }
}

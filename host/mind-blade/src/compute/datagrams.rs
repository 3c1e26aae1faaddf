//! The blade's datagram socket: sends and receives datagrams of the protocol, without blocking.

use mind_common::addr::Page;
use std::{
    io::IoSlice,
    net::{Ipv4Addr, SocketAddrV4},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use anyhow::{Context as _, Result};
use mind_common::wire::{MAX_LEN, Malformed, PAGELESS_LEN, UDP_PORT};
use mind_machines::datagram::Datagram;
use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, sockopt,
    },
};

/// Room for datagrams that arrive while the engine is busy: every sharer's answer at once, and
/// more.
const RECEIVE_BUFFER: usize = 8 << 20;

/// The padding of datagrams.
static PADDING: [u8; MAX_LEN] = [0; MAX_LEN];

/// A socket that is connected to the switch.
pub(super) struct Datagrams {
    fd: OwnedFd,
    /// Datagrams that could not be sent: the queue was full. The same as a loss in the network.
    pub(super) unsent: u64,
}

/// A received datagram.
pub(super) struct Received {
    bytes: [u8; MAX_LEN],
    len: usize,
    /// Whether it was longer than the bytes that were read.
    pub(super) is_cut: bool,
}

impl Received {
    pub(super) fn new() -> Self {
        Self {
            bytes: [0; MAX_LEN],
            len: 0,
            is_cut: false,
        }
    }

    /// The datagram, parsed.
    pub(super) fn parse(&self) -> Result<Datagram<&Page>, Malformed> {
        Datagram::parse(&self.bytes[..self.len])
    }
}

impl Datagrams {
    /// Binds to the RoCEv2 port of the blade's address.
    pub(super) fn bind(own: Ipv4Addr, switch: Ipv4Addr) -> Result<Self> {
        let fd = rustix::net::socket_with(
            AddressFamily::INET,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
        .context("cannot make a UDP socket")?;
        let address = SocketAddrV4::new(own, UDP_PORT);
        rustix::net::bind(&fd, &address)
            .with_context(|| format!("cannot bind to {address}: is another blade running here?"))?;
        // Connected, the kernel looks up the route once, not for every datagram; and no other host can send to this
        // socket.
        let switch = SocketAddrV4::new(switch, UDP_PORT);
        rustix::net::connect(&fd, &switch)
            .with_context(|| format!("there is no way to the switch at {switch}"))?;
        mind_dataplane::checksum::leave_out(&fd).context("cannot switch UDP checksums off")?;
        if sockopt::set_socket_recv_buffer_size_force(&fd, RECEIVE_BUFFER).is_err() {
            sockopt::set_socket_recv_buffer_size(&fd, RECEIVE_BUFFER)
                .context("cannot set the receive buffer's size")?;
        }
        Ok(Self { fd, unsent: 0 })
    }

    /// Sends a datagram. One that cannot be sent now is counted and lost.
    pub(super) fn send(&mut self, datagram: &Datagram<&Page>) {
        let (headers, page) = datagram.emit();
        let headers = headers.as_bytes();
        // The rest is padding.
        let rest = match page {
            Some(page) => &page[..],
            None => &PADDING[..datagram.body.wire_len().saturating_sub(headers.len())],
        };
        let parts = [IoSlice::new(headers), IoSlice::new(rest)];
        let mut earlier = true;
        let sent = loop {
            let sent = rustix::net::sendmsg(
                &self.fd,
                &parts,
                &mut SendAncillaryBuffer::default(),
                SendFlags::empty(),
            );
            match sent {
                Err(Errno::INTR) => {}
                // An ICMP error of an earlier datagram; this call returned it, and sent nothing.
                Err(Errno::CONNREFUSED | Errno::HOSTUNREACH | Errno::NETUNREACH) if earlier => {
                    earlier = false;
                }
                sent => break sent,
            }
        };
        if let Err(errno) = sent {
            self.unsent += 1;
            tracing::debug!(%errno, opcode = ?datagram.body.opcode(), "a datagram was not sent");
        }
    }

    /// Receives a datagram, if one is there; of a long one only the headers, unless it may carry a page that a request
    /// waits for: most long ones are padding, and copying that takes as long as the rest of receiving.
    pub(super) fn receive(&self, into: &mut Received, with_page: bool) -> bool {
        let room = if with_page { MAX_LEN } else { PAGELESS_LEN };
        loop {
            match rustix::net::recv(&self.fd, &mut into.bytes[..room], RecvFlags::TRUNC) {
                Ok((taken, len)) => {
                    into.len = taken;
                    into.is_cut = len > taken;
                    return true;
                }
                // An ICMP error of an earlier datagram; this call returned it.
                Err(Errno::INTR | Errno::CONNREFUSED | Errno::HOSTUNREACH | Errno::NETUNREACH) => {}
                Err(_) => return false,
            }
        }
    }
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
